"""`loom-audit watch`: what is changed from outside goes on record as it happens."""

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from msgspec.structs import replace

from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import change_lines
from loom_audit.cli.shared.output import Output
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.records import event_record
from loom_audit.errors import InvalidArguments

if TYPE_CHECKING:
    from loom_audit.model.events import Event


@command(
    examples=("loom-audit watch", "loom-audit watch ~/src/app --quiet"),
    codes={3: "the log cannot be written any more", 5: "another one watches, or nothing can be"},
)
def watch(
    invocation: Invocation,
    folder: Annotated[str | None, argument("WORKSPACE")] = None,
    quiet: Annotated[bool, option("--quiet", "-q", help="Do not print what is recorded.")] = False,
) -> None:
    """Record what you and other programs change as it happens, until Ctrl-C.

    Without it the look before an agent's next call finds that, all at once. One watches a
    workspace. What agents' calls change is recorded by those, with or without it.
    """
    if not sys.platform.startswith("linux"):
        raise InvalidArguments(
            "watch is for Linux: on other systems it is not tested",
            hint="What changes is found by the look before each call.",
        )
    output = invocation.output
    if folder is not None:
        invocation = replace(invocation, shared=replace(invocation.shared, workspace=folder))
    with invocation.workspace() as workspace:
        from loom_audit.api.upkeep.watching import Watcher

        def recorded(events: Sequence["Event"]) -> None:
            if not quiet:
                _print(output, events)

        def noted(text: str) -> None:
            output.note(text)
            if output.json:
                output.record({"note": text})
                output.stdout.flush()

        watcher = Watcher(workspace, recorded=recorded, noted=noted)
        with watcher:
            output.note(f"watching {workspace.root} (Ctrl-C ends it)")
            try:
                while True:
                    watcher.step()
            except KeyboardInterrupt:
                output.note("no longer watching")


def _print(output: Output, events: Sequence["Event"]) -> None:
    for event in events:
        changes = getattr(event.fact, "changes", ())
        if output.json:
            output.record(event_record(event))
        elif changes:
            at = f"{(event.occurred_at or event.at).astimezone():%H:%M:%S}"
            moves = getattr(event.fact, "moves", ())
            for line in change_lines(changes, moves, indent=f"{at}  "):
                output.line(*line)
    output.stdout.flush()
