"""What was said, on pages: a clipped text beside a call, and the page of one whole text."""

from fastapi import APIRouter, Request
from msgspec import Struct
from starlette.responses import Response

from loom_audit.api.review.conversation import Said, conversation_of
from loom_audit.web.shared.budget import Budget, weight
from loom_audit.web.shared.dependencies import Query, Render, Workspace
from loom_audit.web.shared.pages import wants_fragment
from loom_audit.web.shared.texts import text_part
from loom_audit.web.shared.urls import address

router = APIRouter()
SHORT = 600
"""Characters of a prompt or a message beside something else."""
LINES = 12


class Quote(Struct, frozen=True):
    """The beginning of what was said; `cut` says that more of it follows."""

    said: Said
    text: str
    cut: bool

    @property
    def weight(self) -> int:
        """How much of a page's budget it takes."""
        return weight(6, self.text)


def quote(said: Said | None, most: int = SHORT) -> Quote | None:
    """The beginning of what was said, at most LINES lines; None for nothing."""
    if said is None:
        return None
    whole = said.text.strip()
    lines = whole[:most].split("\n")
    text = "\n".join(lines[:LINES])
    return Quote(said, text.rstrip(), len(text) < len(whole))


@router.get("/w/{workspace}/said/{seq}")
def one(request: Request, workspace: Workspace, seq: int, query: Query, pages: Render) -> Response:
    """Show the whole of one prompt or message."""
    said = conversation_of(workspace).at(seq)
    budget = Budget(query, ("text",), fragment=wants_fragment(request))
    base = address("w", workspace.id, "said", seq)
    text = text_part(budget, "text", said.text)
    if wants_fragment(request) and budget.wanted:
        return pages.fragment(request, "_text.html", "text", text=text, base=base)
    return pages.page(request, "said.html", said=said, text=text, base=base, section="calls")
