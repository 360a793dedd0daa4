"""Checking a log against itself, the heads kept elsewhere, the other logs, and the disk."""

from collections.abc import Callable, Sequence
from contextlib import closing, suppress

from msgspec.structs import replace

from loom_audit.errors import AuditError, NoWorkspace, StorageFailed
from loom_audit.history.check import verification
from loom_audit.history.check.disk_check import find_hidden, find_missing
from loom_audit.history.check.log_check import SHORTER, Finding
from loom_audit.history.check.signed_check import check_signed
from loom_audit.history.check.verification import Verification
from loom_audit.history.ground.attachment import Attachment
from loom_audit.model.events import TreeHead
from loom_audit.ports import OnProgress
from loom_audit.wiring.adapters import Adapters
from loom_audit.wiring.signing import keys_of, signed_heads_of


def verify(
    adapters: Adapters,
    id: str,
    attachment: Callable[[], Attachment],
    heads: Sequence[TreeHead],
    quick: bool,
    sample: int | None,
    report: OnProgress | None,
) -> Verification:
    """Check the log of this id; every finding.

    The heads are those kept outside the store, signed or not, and those given. The disk is read,
    through the `attachment`, unless the check is `quick` or of a `sample`; when all was checked is
    kept.
    """
    settings = adapters.settings
    signed = check_signed(signed_heads_of(settings, id), keys_of(settings))
    kept = [*adapters.kept_heads(id), *signed.heads, *heads]
    with closing(adapters.evidence(id)) as evidence:
        found = verification.verify(
            evidence, heads=kept, quick=quick, sample=sample, progress=report
        )
    missing = [
        Finding(None, "log", f"log {log} is not in the store as far as heads were kept. {SHORTER}")
        for log in adapters.missing_logs()
        if log != id
    ]
    unread = "is damaged: what the head in it vouched for was not compared"
    damaged = [
        Finding(None, "head.damaged", f"{line} {unread}", "incomplete")
        for line in adapters.damaged_heads(id)
    ]
    hidden, checked = list[Finding](), dict(found.checked)
    if not quick and sample is None:
        try:
            hidden = find_missing(attachment())
            found_on_disk, checked["paths_on_disk"] = find_hidden(attachment())
            hidden += found_on_disk
        except NoWorkspace:
            pass  # then there is no disk to be compared
        except AuditError as error:
            if not found.findings:  # otherwise it is told already what is damaged
                said = f"the log cannot be compared with the disk: {error}"
                hidden.append(Finding(None, "disk.unreadable", said, "unreadable"))
    done = replace(
        found,
        findings=(*found.findings, *signed.findings, *missing, *damaged, *hidden),
        checked=checked,
        signed=signed.signed_to(found.anchored, found.findings),
    )
    if not quick and sample is None:
        with suppress(StorageFailed):  # lists then name an earlier one
            adapters.keep_verified(id, done.size, done.exit_code)
    return done
