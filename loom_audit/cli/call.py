"""`loom-audit call`: one bundled tool; a person at the terminal is asked."""

import json
import os
import re
import sys
import termios
from typing import TYPE_CHECKING, Annotated

from loom_audit.cli.shared import exits
from loom_audit.cli.shared.command import command
from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.lines import how_to_answer
from loom_audit.cli.shared.options import COMMAND_LINE, AgentOption, actor_of
from loom_audit.cli.shared.output import Output
from loom_audit.cli.shared.parameters import argument
from loom_audit.cli.shared.questions import WHOLE_ARGUMENTS, preview_lines, question_lines
from loom_audit.errors import InvalidArguments

if TYPE_CHECKING:
    from loom_audit.api.face import ApprovalRequest
    from loom_audit.tools.approvals.asking_gate import AskCallback
    from loom_audit.tools.calls.gate import Decision
    from loom_audit.tools.calls.result import ToolResult

_PAIR = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


@command(
    examples=(
        "loom-audit call write_file path=a.txt content=hello",
        """loom-audit call write_file '{"path": "a.txt", "content": "hello"}'""",
        'echo \'{"command": "ls"}\' | loom-audit call shell_execute -',
    ),
    codes={
        exits.FAILED: "the tool failed or was denied",
        exits.UNAVAILABLE: "",
        exits.CONFLICT: "",
    },
)
def call(
    invocation: Invocation,
    tool: Annotated[str, argument("TOOL")],
    arguments: Annotated[
        list[str] | None,
        argument("NAME=VALUE|JSON|-", help="The arguments, or - for JSON on standard input."),
    ] = None,
    agent: AgentOption = COMMAND_LINE,
) -> int:
    """Call one bundled tool and print its result.

    `loom-audit tools TOOL` lists its arguments. A NAME=VALUE is read as what the tool takes there:
    a text as it stands, anything else as JSON; of a list, each as one of its items. Arguments
    that are not JSON are refused by the tool, and on record as the text they are. Of its output,
    of which a model sees 10 KB, up to 1 MiB is printed.
    """
    from loom_audit.api.ground.event_loop import run_interrupted_once

    output = invocation.output
    values = _read(tool, arguments or [])
    with invocation.workspace() as workspace:
        gate = workspace.default_gate(ask=prompt(output, workspace.actor))
        actor = actor_of(agent, workspace.actor)
        with workspace.session(agent, actor=actor, gate=gate, background=False) as session:
            result = run_interrupted_once(session.call(tool, values))
    if output.json:
        output.record({**result.to_dict(), "output": result.full_output})
    else:
        _print_result(invocation, result)
    if result.success:
        return exits.OK
    return exits.FAILED if result.error is None else exits.exit_code(result.error.code)


def _read(tool: str, given: list[str]) -> object:
    """The arguments as they were typed. InvalidArguments for JSON among NAME=VALUE."""
    pairs = [_PAIR.fullmatch(word) for word in given]
    found = [(pair[1], pair[2]) for pair in pairs if pair is not None]
    if found and len(found) == len(given):
        from loom_audit.api.registry import builtin_registry
        from loom_audit.cli.shared.typed_values import typed_values

        known = builtin_registry().get(tool)
        return typed_values(found, known.parameters if known else {})
    if len(given) > 1:
        raise InvalidArguments(
            "several arguments must all be NAME=VALUE",
            hint="Write `path=a.txt content=hello`, or one text of JSON in quotes.",
        )
    text = given[0] if given else "{}"
    if text == "-":
        text = sys.stdin.buffer.read().decode("utf-8", "backslashreplace")
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return text  # which the tool refuses, and says where


def _print_result(invocation: Invocation, result: "ToolResult") -> None:
    """The output on standard output; an error, which the output begins with, on the other."""
    output = invocation.output
    text = result.full_output.removesuffix("\n")
    error = result.error
    if error is not None:
        for said in (f"Error: {error.message}", error.hint):
            if said and text.startswith(said):
                text = text.removeprefix(said).removeprefix("\n")
    if text:
        output.text(text)
    if error is not None:
        output.note(("error: ", "red"), error.message)
        if error.hint:
            output.note(("hint: ", "yellow"), error.hint)


def prompt(output: Output, person: str) -> "AskCallback":
    """Asks the person at the terminal; where there is none, says how to answer from another one."""

    async def ask(request: "ApprovalRequest") -> "Decision | None":
        if not output.interactive:
            output.note(
                ("waits: ", "yellow"), f"{request.reason}; {how_to_answer(request)} answers"
            )
            return None
        # what was typed before does not answer what is shown now
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        for line in question_lines(request):
            output.note(*line)
        for text, style in preview_lines(request):
            output.note((text.replace("\t", "    "), style))
        return await _typed(output, person)

    return ask


async def _typed(output: Output, person: str) -> "Decision | None":
    """What the person types, read without holding a thread so that others may answer first."""
    import anyio

    from loom_audit.api.control.approvals import read_arguments
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
                return Decision("allowed", person, reason)
            case "s" | "session":
                return Decision("allowed", person, reason, lasting=True)
            case "n" | "no":
                return Decision("denied", person, reason)
        if text.startswith("{"):
            try:
                return Decision(
                    "allowed", person, arguments=read_arguments(text, hint=WHOLE_ARGUMENTS)
                )
            except InvalidArguments as error:
                output.note(("error: ", "red"), error.message)
        else:
            output.note(
                "y allows this call, n refuses it, s allows what is asked for the same reason "
                "in this session too; words after the letter are the reason. A JSON object is "
                "run as the arguments instead."
            )
