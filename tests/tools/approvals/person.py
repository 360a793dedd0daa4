"""A person who is asked, and what the log says of questions and answers."""

from collections.abc import Callable

from loom_audit.history.ground.questions import ApprovalRequest
from loom_audit.model.events import ApprovalRequested, CallDecided
from loom_audit.tools.calls.gate import Decision
from tests.tools.conftest import Bench

OVERWRITE = {"path": "notes.txt", "content": "new\n"}
YES = Decision("allowed", "person:me")
NO = Decision("denied", "person:me", "not that file")


Answer = Decision | bool | None


class Person:
    """Answers each question with the next of these, and remembers what was asked."""

    def __init__(self, *answers: Answer | Callable[[ApprovalRequest], Answer]) -> None:
        self.answers = list(answers)
        self.asked: list[ApprovalRequest] = []

    async def __call__(self, request: ApprovalRequest) -> Answer:
        self.asked.append(request)
        answer = self.answers.pop(0)
        return answer(request) if callable(answer) else answer


def call_kinds(bench: Bench) -> list[str]:
    return [e.kind for e in bench.events() if getattr(e.fact, "call_id", None)]


def questions(bench: Bench) -> list[ApprovalRequested]:
    facts = [e.fact for e in bench.events("approval.requested")]
    return [fact for fact in facts if isinstance(fact, ApprovalRequested)]


def answers(bench: Bench) -> list[CallDecided]:
    facts = [e.fact for e in bench.events("call.decided")]
    return [fact for fact in facts if isinstance(fact, CallDecided)]
