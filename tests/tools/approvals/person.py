"""A person who is asked, and what the log says of questions and answers."""

from loom_audit.tools.calls.gate import Decision
from tests.tools.conftest import Bench

OVERWRITE = {"path": "notes.txt", "content": "new\n"}
YES = Decision("allowed", "person:me")
NO = Decision("denied", "person:me", "not that file")


class Person:
    """Answers each question with the next of these, and remembers what was asked."""

    def __init__(self, *answers) -> None:
        self.answers = list(answers)
        self.asked = []

    async def __call__(self, request):
        self.asked.append(request)
        answer = self.answers.pop(0)
        return answer(request) if callable(answer) else answer


def call_kinds(bench: Bench):
    return [e.kind for e in bench.events() if getattr(e.fact, "call_id", None)]


def questions(bench: Bench):
    return [e.fact for e in bench.events("approval.requested")]


def answers(bench: Bench):
    return [e.fact for e in bench.events("call.decided")]
