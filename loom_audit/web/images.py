"""Pictures on record, each at an address of its own where nothing in it can run."""

from fastapi import APIRouter
from starlette.responses import Response

from loom_audit.errors import FileNotFound, InvalidArguments, TooLarge
from loom_audit.model.kinds import MOST_BYTES, kind_of
from loom_audit.model.text.display import visible
from loom_audit.web.shared.dependencies import Workspace
from loom_audit.web.shared.urls import unquoted

router = APIRouter()


@router.get("/w/{workspace}/image/{point}/{path:path}")
def image(workspace: Workspace, point: str, path: str) -> Response:
    """A picture as it was; its type is what its bytes say, and one of four.

    FileNotFound, TooLarge; InvalidArguments for what is not such a picture.
    """
    path = unquoted(path)
    state = workspace.timeline.state(path, workspace.timeline.point(unquoted(point)))
    if state is None or state.blob is None or state.kind != "file":
        raise FileNotFound(f"no file {visible(path)} is on record at {unquoted(point)}")
    if state.size > MOST_BYTES:
        raise TooLarge("the picture is over 8 MiB", hint="Download it.")
    content = workspace.timeline.content(state)
    kind = kind_of(content)
    if not kind.is_shown(len(content)):
        raise InvalidArguments(
            f"{visible(path)} is not a picture that is shown", hint="Download it."
        )
    return Response(
        content,
        media_type=kind.media,
        headers={
            "content-disposition": "inline",
            "content-security-policy": "sandbox; default-src 'none'",
        },
    )
