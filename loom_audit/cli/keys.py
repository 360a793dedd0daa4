"""`loom-audit keys`: the key by which a store signs its heads."""

from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import Group, command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import local_time
from loom_audit.cli.shared.output import Output
from loom_audit.cli.shared.records import time_text
from loom_audit.cli.shared.signed import signed_lines, signed_record

if TYPE_CHECKING:
    from loom_audit.api.upkeep.signing import KeyRing, SignedLog

_CODES = {
    exits.IN_PART: "the key is as asked for, and the head of a log, which is named, is not signed",
    exits.FAILED: "others may read the key",
    exits.CONFLICT: "there is a key already, or another process signs",
}


@command(examples=("loom-audit keys init",), codes=_CODES)
def init(invocation: Invocation) -> int:
    """Make the key of this store, and sign the head of each of its logs.

    An Ed25519 key in the configuration folder, which you alone may read. Commands under confinement
    do not see it; a program that runs as you does.
    """
    from loom_audit.api.upkeep.signing import make_key

    with invocation.store() as store:
        ring, logs = make_key(store)
        return _print(invocation.output, ring, logs)


@command(examples=("loom-audit keys rotate",), codes=_CODES)
def rotate(invocation: Invocation) -> int:
    """Put a new key in the place of this store's, which signs no more.

    That is on record in each log, whose next head both keys sign. It helps against a key that is
    lost from now on, not against one that was stolen: who has that can sign as before.
    """
    from loom_audit.api.upkeep.signing import rotate_key

    with invocation.store() as store:
        ring, logs = rotate_key(store)
        return _print(invocation.output, ring, logs)


@command(
    examples=("loom-audit keys list", "loom-audit keys list --json"),
    codes={exits.FAILED: "others may read the key"},
)
def show_keys(invocation: Invocation) -> None:
    """List the keys of this store, and the one that signs as others take it, for each log.

    What is printed is public. `NAME+HASH+BASE64` is the form of C2SP's signed notes.
    """
    from loom_audit.api.upkeep.signing import keys_of, verifiers

    output = invocation.output
    with invocation.store() as store:
        for row in _rows(keys_of(store)):
            taken = verifiers(store, row.pop("public")) if row["state"] != "earlier" else {}
            if output.json:
                times = {name: time_text(row[name]) for name in ("made", "retired")}
                output.record({**row, **times, "verifiers": taken})
                continue
            until = f" until {local_time(row['retired'])}" if row["retired"] else ""
            output.line(f"{row['state']:<8} {row['key']}  from {local_time(row['made'])}{until}")
            for text in taken.values():
                output.line(f"         {text}")


def _rows(ring: "KeyRing") -> Iterator[dict[str, Any]]:
    from loom_audit.api.upkeep.signing import key_id

    def row(state: str, public: bytes, made: datetime, retired: datetime | None) -> dict[str, Any]:
        key = key_id(public)
        return {"state": state, "key": key, "made": made, "retired": retired, "public": public}

    yield row("signs", ring.current.public, ring.current.made, None)
    if ring.next is not None:
        yield row("next", ring.next.public, ring.next.made, None)
    for one in reversed(ring.earlier):
        yield row("earlier", one.public, one.made, one.retired)


def _print(output: Output, ring: "KeyRing", logs: "Sequence[SignedLog]") -> int:
    from loom_audit.api.upkeep.signing import key_id

    key = key_id(ring.current.public)
    if output.json:
        output.record({"key": key, "logs": [signed_record(one) for one in logs]})
    else:
        for line in signed_lines(key, logs):
            output.line(*line)
    return exits.IN_PART if any(one.error for one in logs) else exits.OK


keys = Group(
    "Make, list or rotate the key by which a store signs its heads.",
    {"init": init, "list": show_keys, "rotate": rotate},
)
