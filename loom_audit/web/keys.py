"""The switch of the keys: off for everybody whom this store's dashboard serves, until it is on."""

from fastapi import APIRouter
from starlette.responses import Response

from loom_audit.api.face import AuditStore
from loom_audit.errors import InvalidArguments, StorageFailed
from loom_audit.web.shared.dependencies import Form, Store
from loom_audit.web.shared.urls import first

router = APIRouter()
FILE = "keys-off"
"""There as long as keys are off. A browser forgets: each server has a host name of its own."""


@router.post("/keys")
def switch(store: Store, form: Form) -> Response:
    """Turn keys `on` or `off`. InvalidArguments for another word; StorageFailed where that cannot
    be noted.
    """
    wanted, file = first(form, "keys"), store.home / FILE
    if wanted not in ("on", "off"):
        raise InvalidArguments(f"keys are on or off, not {wanted!r}")
    try:
        if wanted == "off":
            file.touch(mode=0o600)
        else:
            file.unlink(missing_ok=True)
    except OSError as error:
        raise StorageFailed(f"cannot change {file}: {error.strerror}") from error
    return Response(status_code=204)


def are_off(store: AuditStore) -> bool:
    """Whether somebody turned the keys off."""
    return (store.home / FILE).exists()
