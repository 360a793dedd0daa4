"""`loom-audit heads`: signs the heads of a store's logs, and hands them over."""

from typing import Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import Group, command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.options import folder
from loom_audit.cli.shared.parameters import option
from loom_audit.cli.shared.records import plain
from loom_audit.cli.shared.signed import signed_lines, signed_record
from loom_audit.model.text.display import count_text, visible


@command(
    examples=("loom-audit heads send", "loom-audit heads send --to /mnt/evidence"),
    codes={
        exits.FAILED: "others may read the key",
        exits.CONFLICT: "another process signs",
        exits.IN_PART: "a log, which is named, is not signed, or the folder has heads not of it",
    },
)
def send(
    invocation: Invocation,
    to: Annotated[
        str | None, option("--to", metavar="FOLDER", help="Put each signed head there, once.")
    ] = None,
) -> int:
    """Sign the head of each log, and put all signed heads in a folder.

    In a folder that another account or machine keeps, they prove later that nothing before them was
    written anew. What is there stays as it is; a head there that is not of this log is named: it is
    evidence that the log went back, or that there are two.
    """
    from loom_audit.api.upkeep.signing import hand_over_heads, key_id, sign_heads

    output = invocation.output
    with invocation.store() as store:
        ring, logs = sign_heads(store)
        handed = hand_over_heads(store, folder(to)) if to is not None else []
    key = key_id(ring.current.public)
    if output.json:
        signed = [signed_record(one) for one in logs]
        output.record({"key": key, "logs": signed, "handed_over": plain(handed)})
    else:
        for line in signed_lines(key, logs):
            output.line(*line)
        for put in handed:
            new = count_text(put.new, "new head")
            output.line(f"  {put.id}: {new} in {visible(to or '')}")
            for what in put.foreign:
                output.line(("  does not fit ", "red"), visible(what))
    wrong = any(one.error for one in logs) or any(one.foreign for one in handed)
    return exits.IN_PART if wrong else exits.OK


heads = Group("Sign the heads of a store's logs, and hand them over.", {"send": send})
