"""Commands about calls that wait for an answer: approvals, approve, deny; and the prompt."""

import json
import os
import sys
import termios
from typing import TYPE_CHECKING, Annotated, Any

import typer

from loom_audit.cli import exits
from loom_audit.cli.lines import local_time, value_lines
from loom_audit.cli.options import Invocation, command
from loom_audit.cli.output import Output, Piece, Style
from loom_audit.cli.records import plain, time_text
from loom_audit.cli.waiting import how_to_answer, number
from loom_audit.errors import ApprovalDenied, Conflict, InvalidArguments
from loom_audit.model.display import one_line
from loom_audit.model.events import Call

if TYPE_CHECKING:
    from loom_audit.history.approvals import ApprovalRequest
    from loom_audit.model.events import Event
    from loom_audit.tools.approvals.asking_gate import Asked
    from loom_audit.tools.calls.gate import Decision

CallArgument = Annotated[
    str, typer.Argument(metavar="CALL", help="The number of its request, or its id.")
]
ReasonOption = Annotated[
    str, typer.Option("--reason", metavar="TEXT", help="Why; the model can read it.")
]

_WHOLE = """Give all of them: --args '{"path": "b.txt", "content": "hello"}'."""

RECOMMENDED = """\
# Which calls are allowed, asked about or denied. The first rule that matches decides; where
# none does, the tool does: overwriting, deleting, installing and pushing are asked about.
# See docs/approvals.md. A file with an error lets nothing start.

timeout = 600  # seconds for an answer; none in that time is a no

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


def add(app: typer.Typer) -> None:
    """Put these commands on the application."""
    section = "Approve"
    command(
        app,
        "approvals",
        section=section,
        examples=(
            "loom-audit approvals",
            "loom-audit approvals show 42",
            "loom-audit approvals init",
        ),
        codes={exits.CONFLICT: "answered already, or the file is there"},
    )(approvals)
    command(
        app,
        "approve",
        section=section,
        examples=(
            "loom-audit approve 42",
            """loom-audit approve 42 --args '{"path": "b.txt", "content": "hello"}'""",
        ),
        codes={
            exits.FAILED: "a rule denied it",
            exits.UNAVAILABLE: "",
            exits.CONFLICT: "somebody else answered first, or it is asked again",
        },
    )(approve)
    command(
        app,
        "deny",
        section=section,
        examples=("loom-audit deny 42 --reason 'use the other branch'",),
        codes={exits.UNAVAILABLE: "", exits.CONFLICT: "somebody else answered first"},
    )(deny)


def approvals(
    at: Invocation,
    action: Annotated[
        str, typer.Argument(metavar="show|init", help="Show one, or write a file of rules.")
    ] = "",
    name: Annotated[str, typer.Argument(metavar="CALL", help="The one to show.")] = "",
) -> None:
    """List the calls that wait for an answer.

    `show CALL` prints one with what it would change. `init` writes recommended rules to
    approvals.toml in the configuration folder, which makes them hold from the next session on.
    """
    if action == "init" and not name:
        _write_rules(at)
        return
    if action not in ("", "show") or bool(name) != (action == "show"):
        raise InvalidArguments(
            "expected nothing, `show CALL` or `init`", hint="See `loom-audit approvals --help`."
        )
    from loom_audit.history.approvals import find, pending

    with at.workspace() as workspace:
        if name:
            _show(at.output, find(workspace.attachment, name))
            return
        waiting = pending(workspace.attachment)
        for request in waiting:
            if at.output.json:
                at.output.record(record(request))
            else:
                at.output.line(*_line(request))
        if not waiting:
            at.output.note("no call waits for an answer")


def approve(
    at: Invocation,
    name: CallArgument,
    args: Annotated[
        str | None,
        typer.Option("--args", metavar="JSON", help="Arguments to run it with instead."),
    ] = None,
    reason: ReasonOption = "",
    lasting: Annotated[
        bool,
        typer.Option("--for-session", help="Also what is asked for the same reason later in it."),
    ] = False,
) -> None:
    """Let a call run that waits for an answer."""
    from loom_audit.api.approvals import read_arguments

    arguments = None if args is None else read_arguments(args, hint=_WHOLE)
    _answer(at, name, "allowed", reason, arguments=arguments, lasting=lasting)


def deny(at: Invocation, name: CallArgument, reason: ReasonOption = "") -> None:
    """Refuse a call that waits for an answer; the model is told so."""
    _answer(at, name, "denied", reason)


def _answer(at: Invocation, name: str, decision: Any, reason: str, **more: Any) -> None:
    from loom_audit.api import person
    from loom_audit.api.approvals import check_arguments
    from loom_audit.history.approvals import answer, find, wait_after_answer

    with at.workspace() as workspace:
        request = find(workspace.attachment, name)
        if decision == "allowed" and name != str(number(request)) and request.fact.number > 1:
            raise Conflict(
                f"{request.tool} was asked about again: this is question {request.fact.number}",
                hint=f"See `loom-audit approvals show {request.seq}`, then answer {request.seq}.",
                details={"question": request.seq},
            )
        if more.get("arguments") is not None:
            check_arguments(workspace, request, more["arguments"])
        event = answer(workspace.attachment, request, decision, person(), reason=reason, **more)
        if decision == "denied":
            _told(at.output, event, "denied", _about(request, request.arguments))
            return
        used = more.get("arguments")
        about = _about(request, request.arguments if used is None else used)
        _came_of(at.output, event, wait_after_answer(workspace.attachment, request, event), about)


def _came_of(output: Output, event: "Event", came: "ApprovalRequest | Call", about: str) -> None:
    """Say what really came of a yes. Conflict when it is asked again, ApprovalDenied."""
    if not isinstance(came, Call):
        _told(output, event, "asked again", about, question=came.seq)
        raise Conflict(
            f"it was not allowed yet: asked again as {came.seq}: {came.reason}",
            hint=f"See `loom-audit approvals show {came.seq}`, then answer {came.seq}.",
            details={"question": came.seq},
        )
    if came.seq is None:
        more = "; the process that asked goes on with it, `loom-audit log` says what came of it"
        _told(output, event, "answered", about + more)
    elif came.status == "denied":
        _told(output, event, "refused", about)
        raise ApprovalDenied(
            f"the answer was yes, and yet {came.error or 'it was denied'}",
            hint="A rule holds for arguments put in place too. Nothing was done.",
        )
    elif came.status == "ok":
        _told(output, event, "allowed", f"{about}; it ran, call {came.seq}")
    else:
        ended = f"; it ended {came.status}, call {came.seq}: {one_line(came.error, 200)}"
        _told(output, event, "allowed", about + ended)


def _told(output: Output, event: "Event", what: str, about: str, **more: Any) -> None:
    if output.json:
        said = {"seq": event.seq, "id": event.id, **plain(event.fact), "outcome": what}
        output.record(said | more)
    else:
        output.line((f"{what}: ", "bold"), about)


def _about(request: "ApprovalRequest", arguments: Any) -> str:
    """The tool with its command or paths."""
    from loom_audit.tools.approvals.policy import named_in

    what = named_in(arguments) or json.dumps(arguments, ensure_ascii=False)
    return f"{request.tool} {one_line(what, 100)}"


def record(request: "ApprovalRequest") -> dict[str, Any]:
    """A question as a line of JSON."""
    return {
        "seq": request.seq,
        "requested": request.requested,
        "at": time_text(request.at),
        "session": request.session,
        "actor": request.actor,
        "effect": request.effect,
        "alive": request.alive,
        **plain(request.fact),
    }


def _line(request: "ApprovalRequest") -> list[Piece]:
    gone = "" if request.alive else "  its process is gone: `loom-audit recover`"
    return [
        (f"{number(request):>6}  ", "bold"),
        f"{local_time(request.at)}  {request.actor}  ",
        (_about(request, request.arguments), "cyan"),
        f"  {request.reason}",
        (gone, "yellow"),
    ]


def _show(output: Output, request: "ApprovalRequest") -> None:
    if output.json:
        output.record(record(request))
        return
    for line in _shown(request):
        output.line(*line)
    for text in request.preview.removesuffix("\n").split("\n"):
        output.marked(text, _style(text))


def _shown(request: "ApprovalRequest") -> list[list[Piece]]:
    question = ""
    if request.fact.number > 1:
        question = f", question {request.fact.number}: answer {request.seq}"
    rule = f" ({request.fact.rule})" if request.fact.rule else ""
    lines: list[list[Piece]] = [
        [("call     ", "bold"), f"{request.requested} ({request.call_id}){question}"],
        [("asked    ", "bold"), f"{local_time(request.at)} by {request.actor}"],
        [("tool     ", "bold"), (request.tool, "cyan"), f", effect {request.effect}"],
        [("because  ", "bold"), request.reason, rule],
        [("arguments", "bold")],
    ]
    return lines + [[text] for text in value_lines(request.arguments)]


def _style(line: str) -> Style:
    if line.startswith(("+++", "---", "diff ", "rename ", "delete ")):
        return "bold"
    if line.startswith("@@"):
        return "cyan"
    return "green" if line.startswith("+") else "red" if line.startswith("-") else ""


def _write_rules(at: Invocation) -> None:
    from loom_audit.config import APPROVALS, read_settings

    file = read_settings(at.shared.store).configuration / APPROVALS
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    try:
        with file.open("x", encoding="utf-8") as made:
            made.write(RECOMMENDED)
    except FileExistsError:
        raise Conflict(f"{file} is there already", hint="Edit it.") from None
    if at.output.json:
        at.output.record({"file": str(file)})
    else:
        at.output.line((f"{file} is written", "green"), "; it holds from the next session on")


# --- the prompt of `call` -----------------------------------------------------------------


def prompt(at: Invocation) -> "Asked":
    """Asks at the terminal; where there is none, says how to answer from another one."""

    async def ask(request: "ApprovalRequest") -> "Decision | None":
        if not at.output.interactive:
            at.output.note(
                ("waits: ", "yellow"), f"{request.reason}; {how_to_answer(request)} answers"
            )
            return None
        # what was typed before is no answer to what is shown now
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        for line in _shown(request):
            at.output.note(*line)
        for text in request.preview.removesuffix("\n").split("\n"):
            at.output.note((text.replace("\t", "    "), _style(text)))
        return await _typed(at.output)

    return ask


async def _typed(output: Output) -> "Decision | None":
    """What the person types, read without holding a thread so that others may answer first."""
    import anyio

    from loom_audit.api import person
    from loom_audit.api.approvals import read_arguments
    from loom_audit.tools.calls.gate import Decision

    while True:
        output.stderr.write("Allow? [y]es, [n]o, for this [s]ession, or other arguments as JSON: ")
        output.stderr.flush()
        try:
            await anyio.wait_readable(sys.stdin.fileno())
        except anyio.get_cancelled_exc_class():
            output.stderr.write("\n")
            raise
        raw = os.read(sys.stdin.fileno(), 65_536)
        if not raw:
            output.note("no answer here; it may come from elsewhere")
            return None
        text = raw.decode("utf-8", "surrogateescape").strip()
        word, _, reason = text.partition(" ")
        match word.lower():
            case "y" | "yes":
                return Decision("allowed", person(), reason)
            case "s" | "session":
                return Decision("allowed", person(), reason, lasting=True)
            case "n" | "no":
                return Decision("denied", person(), reason)
        if text.startswith("{"):
            try:
                return Decision("allowed", person(), arguments=read_arguments(text, hint=_WHOLE))
            except InvalidArguments as error:
                output.note(("error: ", "red"), error.message)
        else:
            output.note(
                "y allows this call, n refuses it, s allows what is asked for the same reason "
                "in this session too; words after the letter are the reason. A JSON object is "
                "run as the arguments instead."
            )
