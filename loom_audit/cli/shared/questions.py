"""Calls that wait for an answer: how they and the answers are shown."""

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

from loom_audit.cli.shared.lines import DIFF_STYLES, local_time, value_lines
from loom_audit.cli.shared.output import Output, Piece, Style
from loom_audit.cli.shared.parameters import argument, option
from loom_audit.cli.shared.records import plain
from loom_audit.model.text.display import one_line
from loom_audit.model.text.textdiff import marked_lines

if TYPE_CHECKING:
    from loom_audit.api.face import ApprovalRequest
    from loom_audit.model.events import Event

CallArgument = Annotated[str, argument("CALL", help="The number of its request, or its id.")]
ReasonOption = Annotated[
    str, option("--reason", metavar="TEXT", help="Why; the model can read it.")
]
_HEADS = ("+++", "---", "diff ", "rename ", "delete ")
WHOLE_ARGUMENTS = """Give all of them: --args '{"path": "b.txt", "content": "hello"}'."""


def question_text(request: "ApprovalRequest", arguments: Any) -> str:
    """The tool of a question with its command or paths, on one line."""
    from loom_audit.tools.approvals.policy import call_subject

    what = call_subject(arguments) or json.dumps(arguments, ensure_ascii=False)
    return f"{request.tool} {one_line(what, 100)}"


def question_lines(request: "ApprovalRequest") -> list[list[Piece]]:
    """The lines that say what is asked, by whom, why, and with which arguments."""
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


def preview_lines(request: "ApprovalRequest") -> Iterator[tuple[str, Style]]:
    """The lines of a preview, which is a diff where files would change, each with its style."""
    for text, part in marked_lines(request.preview.removesuffix("\n").split("\n")):
        # a preview that is not a diff is all text, as is a command
        plain_text = part == "head" and not text.startswith(_HEADS)
        yield text, "" if plain_text else DIFF_STYLES[part]


def print_answer(output: Output, event: "Event", what: str, about: str, **more: Any) -> None:
    """Print what was answered and what it is about; with JSON the fact, `outcome` and `more`."""
    if output.json:
        said = {"seq": event.seq, "id": event.id, **plain(event.fact), "outcome": what}
        output.record(said | more)
    else:
        output.line((f"{what}: ", "bold"), about)
