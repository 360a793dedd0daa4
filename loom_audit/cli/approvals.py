"""`loom-audit approvals`: the calls that wait for an answer, and recommended rules."""

from typing import TYPE_CHECKING, Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import answer_number, local_time
from loom_audit.cli.shared.output import Output, Piece
from loom_audit.cli.shared.parameters import argument
from loom_audit.cli.shared.questions import preview_style, question_lines, question_text
from loom_audit.cli.shared.records import question_record
from loom_audit.errors import Conflict, InvalidArguments

if TYPE_CHECKING:
    from loom_audit.api.face import ApprovalRequest

RECOMMENDED = """\
# Which calls are allowed, asked about or denied. The first rule that matches decides; where
# none does, the tool does: overwriting, deleting, installing and pushing are asked about.
# See docs/approvals.md. A file with an error lets nothing start.

timeout = 600  # seconds for an answer; without one by then the call is denied

[[rule]]
path = ".env*"  # gitignore syntax, over the workspace paths a call names or would change
effect = "write"
action = "deny"
reason = "holds secrets"

[[rule]]
command = "sudo *"  # to deny or to ask, one command of a line is enough
action = "deny"
reason = "runs as another user, who is not held to the workspace"

[[rule]]
command = "git push *"
action = "ask"
reason = "publishes"

[[rule]]
command = "rm *"
action = "ask"
reason = "deletes"

[[rule]]
command = "git status *"  # to allow, every command of a line must match, and nothing may expand
action = "allow"
reason = "only looks"
"""


@command(
    examples=(
        "loom-audit approvals",
        "loom-audit approvals show 42",
        "loom-audit approvals init",
    ),
    codes={exits.CONFLICT: "answered already, or the file is there"},
)
def approvals(
    invocation: Invocation,
    action: Annotated[str, argument("show|init", help="Show one, or write a file of rules.")] = "",
    name: Annotated[str, argument("CALL", help="The one to show.")] = "",
) -> None:
    """List the calls that wait for an answer.

    `show CALL` prints one with what it would change. `init` writes recommended rules to
    approvals.toml in the configuration folder, which makes them hold from the next session on.
    """
    output = invocation.output
    if action == "init" and not name:
        _write_rules(invocation)
        return
    if action not in ("", "show") or bool(name) != (action == "show"):
        raise InvalidArguments(
            "expected nothing, `show CALL` or `init`", hint="See `loom-audit approvals --help`."
        )
    from loom_audit.api.approvals import find, pending

    with invocation.workspace() as workspace:
        if name:
            _show(output, find(workspace, name))
            return
        waiting = pending(workspace)
        for request in waiting:
            if output.json:
                output.record(question_record(request))
            else:
                output.line(*_line(request))
        if not waiting:
            output.note("no call waits for an answer")


def _line(request: "ApprovalRequest") -> list[Piece]:
    gone = "" if request.alive else "  its process is gone: `loom-audit recover`"
    return [
        (f"{answer_number(request):>6}  ", "bold"),
        f"{local_time(request.at)}  {request.actor}  ",
        (question_text(request, request.arguments), "cyan"),
        f"  {request.reason}",
        (gone, "yellow"),
    ]


def _show(output: Output, request: "ApprovalRequest") -> None:
    if output.json:
        output.record(question_record(request))
        return
    for line in question_lines(request):
        output.line(*line)
    for text in request.preview.removesuffix("\n").split("\n"):
        output.marked(text, preview_style(text))


def _write_rules(invocation: Invocation) -> None:
    output = invocation.output
    from loom_audit.config import APPROVALS

    file = invocation.settings.configuration / APPROVALS
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as made:
            made.write(RECOMMENDED)
    except FileExistsError:
        raise Conflict(f"{file} is there already", hint="Edit it.") from None
    if output.json:
        output.record({"file": str(file)})
    else:
        output.line((f"{file} is written", "green"), "; it holds from the next session on")
