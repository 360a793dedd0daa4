"""Whoever folds a log folds the same tree: tables, verified reads, the verifier that is alone."""

from collections.abc import Mapping
from pathlib import Path
from random import Random
from sqlite3 import connect
from threading import RLock
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit import verify_alone
from loom_audit.history.ground import continuous_log
from loom_audit.history.ground.continuous_log import ContinuousLog, DoesNotApply
from loom_audit.history.ground.log_end import LogEnd
from loom_audit.history.ground.proven_log import ProvenLog
from loom_audit.history.ground.verified_tree import VerifiedTree
from loom_audit.model.continuity import TREE_FACTS, TreeFold
from loom_audit.model.events import (
    Draft,
    FilesChanged,
    PathsUntracked,
    ScopeAccepted,
    TreeRelisted,
    Untracked,
)
from loom_audit.model.files import FileChange, FileState
from loom_audit.sql.projections import keyframes
from tests.contracts.stores import DIRECTORY, Opened, draft, open_sqlite
from tests.given.examples import examples

PATHS = ("x", "x/a", "x/b", "x/b/c", "y", "y/a")
OPAQUE = FileState("opaque", None, 0, 0)
NO_HEADS: Any = SimpleNamespace(kept=lambda: (), keep=lambda head: None)


def some_draft(tree: TreeFold, chance: Random, files: list[FileState]) -> Draft:
    """A fact about a few paths: one that follows from the tree, or often one that cannot."""
    named = chance.sample(PATHS, chance.randint(1, 4))
    match chance.randrange(8):
        case 0:
            return draft(PathsUntracked(tuple(Untracked(path, "why") for path in named[:2])), "")
        case 1:
            return draft(ScopeAccepted("", (), tuple(named[:2])), "")
        case 2:
            listed = [FileChange(path, None, chance.choice([DIRECTORY, *files])) for path in named]
            return draft(TreeRelisted(tuple(listed), 1, True, (Untracked("y", "why"),)), "")
    changes: list[FileChange] = []
    now: dict[str, FileState | None] = {}
    for path in chance.choices(named, k=len(named) + chance.randrange(2)):
        before = now.get(path, tree.states.get(path)) if chance.randrange(20) else files[0]
        now[path] = chance.choice([None, DIRECTORY, DIRECTORY, DIRECTORY, OPAQUE, *files])
        if before != now[path]:
            changes.append(FileChange(path, before, now[path]))
    return draft(FilesChanged(tuple(changes), "outside"), "")


def told_alone(file: Path, folder: TreeFold) -> None:
    """The verifier that knows the format only finds nothing that cannot be, and the same paths."""
    rows = connect(f"{file.as_uri()}?mode=ro", uri=True, isolation_level=None)
    rows.text_factory = lambda raw: raw.decode("utf-8", "surrogateescape")
    try:
        check = verify_alone.Check(rows, verify_alone.Contents(rows, file.parent / "blobs"), [])
        check.store()
        found: Mapping[str, verify_alone.State] = check.files.states
        assert (found.keys(), check.counts["inconsistent"]) == (folder.states.keys(), 0)
        kinds = {path: str(state[0]) for path, state in found.items() if state}
        assert kinds == {path: state.kind[0] for path, state in folder.states.items()}
    finally:
        rows.close()


@pytest.mark.drawn
def test_what_is_taken_into_a_log_makes_one_tree_whoever_folds_it(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also below what is untracked, out of scope or opaque; what is refused changes nothing."""
    monkeypatch.setattr(keyframes, "KEYFRAME_EVENTS", 8)
    monkeypatch.setattr(continuous_log, "MOST_BEHIND", 200)

    @examples(12, 60)
    @given(st.integers(0))
    def check(seed: int) -> None:
        chance, opened = Random(seed), open_sqlite(tmp_path_factory.mktemp("store"))
        try:
            _check(chance, opened)
        finally:
            assert opened.database
            opened.database.close()

    check()


def _check(chance: Random, opened: Opened) -> None:
    files = [opened.file(content) for content in (b"1", b"22")]

    def log() -> ContinuousLog:
        return ContinuousLog(
            opened.log, NO_HEADS, opened.projections, keyframe=8, one_by_one=RLock()
        )

    ours, tree = log(), TreeFold()
    for _ in range(chance.randint(2, 16)):
        one = some_draft(tree, chance, files)
        head = opened.log.head()
        try:
            ours.append([one])
        except DoesNotApply:
            assert opened.log.head() == head
        else:
            tree.follow(one.fact)
        assert tree.broken is None
        assert (opened.projections.tree(), opened.projections.untracked()) == (
            tree.states,
            tree.untracked,
        )
        if not chance.randrange(6):
            ours = log()  # another process, which takes the tables for the log's
    tree = TreeFold()
    proven = ProvenLog(opened.log, NO_HEADS, LogEnd(opened.log, opened.projections))
    for event in opened.log.read():
        tree.follow(event.fact)
        verified = VerifiedTree(proven, opened.projections).fold(event.seq)
        assert (verified.states, verified.untracked) == (tree.states, tree.untracked)
        assert opened.projections.tree(event.seq) == tree.states
        assert opened.projections.untracked(event.seq) == tree.untracked
        for path in PATHS:
            assert opened.projections.state(path, event.seq) == tree.states.get(path)
        assert isinstance(event.fact, TREE_FACTS) or event.fact.kind == "tree.listed"
    assert opened.database
    told_alone(Path(opened.database.connections.path), tree)
