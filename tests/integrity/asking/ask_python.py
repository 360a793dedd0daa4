"""What the Python face answers about the store of `readers`."""

import shutil
import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from loom_audit.api.face import AuditedWorkspace
from loom_audit.errors import AuditError
from loom_audit.model.plans.planning import Plan
from loom_audit.ports import CallFilter
from tests.integrity.asking.readers import Answer, Made, Opened, Reader, Readers

Question = Callable[[AuditedWorkspace], Any]


def python(made: Made) -> Readers:
    return Readers(_named(_verified(made)), _named(_lists(made)))


def _named(questions: Mapping[str, Question]) -> Mapping[str, Reader]:
    return {f"python: {name}": _reader(question) for name, question in questions.items()}


def _reader(question: Question) -> Reader:
    def ask(opened: Opened) -> Answer:
        try:
            return Answer(question(opened.workspace))
        except AuditError as error:
            return Answer(error.message, error.code)

    return ask


def _plan(plan: Plan) -> Any:
    return (
        plan.target,
        plan.changes,
        plan.reverts,
        plan.moves,
        plan.already,
        plan.merged,
        plan.kept,
        plan.blocked,
        plan.irreversible,
        plan.calls,
    )


def _verified(made: Made) -> Mapping[str, Question]:
    first, second, last = made.numbers[0], made.numbers[6], made.numbers[-1]
    middle, session = made.middle, f"session:{made.sessions[-1]}"

    def cat(path: str, point: str | int) -> Question:
        def read(w: AuditedWorkspace) -> Any:
            state = w.timeline.state(path, w.timeline.point(point))
            return state, None if state is None or not state.blob else w.timeline.content(state)

        return read

    def show(number: int) -> Question:
        return lambda w: w.timeline.call(number)

    return {
        "undo": lambda w: _plan(w.plan_undo()),
        "undo of a session": lambda w: _plan(w.plan_undo(session=made.sessions[-1])),
        "redo": lambda w: _plan(w.plan_redo()),
        "revert one": lambda w: _plan(w.plan_revert([first])),
        "revert two": lambda w: _plan(w.plan_revert([second, last])),
        "revert a session": lambda w: _plan(w.plan_revert([session])),
        "rollback to a number": lambda w: _plan(w.plan_rollback(middle)),
        "rollback some calls": lambda w: _plan(w.plan_rollback("head~2")),
        "rollback to a checkpoint": lambda w: _plan(w.plan_rollback("@v1")),
        "rollback of all": lambda w: _plan(w.plan_rollback(session)),
        "cat at the head": cat("src/0.py", "head"),
        "cat at a number": cat("src/1.py", middle),
        "cat what is deleted": cat("new.txt", "@v1"),
        "cat some calls back": cat("src/0.py", "head~4"),
        "a time": lambda w: w.timeline.meanings(made.time),
        "tree": lambda w: w.timeline.tree(),
        "tree at a number": lambda w: w.timeline.tree(middle),
        "diff": lambda w: w.timeline.diff(first, last),
        "diff back": lambda w: w.timeline.diff(w.log.head(), middle),
        "diff from a checkpoint": lambda w: w.timeline.diff(w.timeline.point("@v1"), last),
        "replay": lambda w: _replayed(w, middle),
        **{f"show {place}": show(number) for place, number in enumerate(made.numbers)},
    }


def _replayed(w: AuditedWorkspace, point: int) -> Any:
    target = Path(tempfile.mkdtemp(prefix="replayed-"))
    try:
        w.replay(point, target)
        return files_in(target)
    finally:
        shutil.rmtree(target)


def files_in(folder: Path) -> Mapping[str, bytes | None]:
    """Every path below, with its content where it is a file."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else None
        for path in sorted(folder.rglob("*"))
    }


def _lists(made: Made) -> Mapping[str, Question]:
    return {
        "log": lambda w: w.timeline.calls(),
        "log --events": lambda w: list(w.timeline.events()),
        "log --search": lambda w: w.timeline.calls(CallFilter(words="src")),
        "sessions": lambda w: w.timeline.sessions(),
        "a session's calls": lambda w: w.timeline.calls(CallFilter(session=made.sessions[0])),
        "history": lambda w: w.timeline.history("src", below=True),
        "checkpoints": lambda w: w.timeline.checkpoints(),
        "status": lambda w: (w.status().drift, w.status().open_calls),
    }
