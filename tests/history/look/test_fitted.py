"""What was found and does not apply any more: what holds is its owner's, the rest is as on disk."""

import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random

import pytest

from loom_audit import AuditedWorkspace
from loom_audit.history.ground.continuous_log import DoesNotApply
from loom_audit.history.look.batches import Batch
from loom_audit.history.look.capture import scan
from loom_audit.history.look.change_index import update_index
from loom_audit.history.record.drift import record_drift
from loom_audit.history.record.fitted import append_or_fit, fitted
from loom_audit.model.events import Draft, FilesChanged
from loom_audit.model.files import FileChange
from tests.history.record.test_continuity import assert_whole, impossible, upheave
from tests.oracles.trees import tree_of

SAID = ("session", "agent:a")
"""Whose what was found is."""


def found_by(workspace: AuditedWorkspace) -> Batch:
    """What a look finds and has not put on record, which is one batch."""
    [found] = scan(workspace.attachment)
    return found


def own(changes: Sequence[FileChange]) -> Draft:
    return Draft(FilesChanged(tuple(changes), "baseline"), *SAID)


def owners(drafts: Sequence[Draft]) -> dict[str, str]:
    """By path whose its last change is."""
    facts = [(one.session, one.fact) for one in drafts]
    return {
        change.path: "own" if session else "outside"
        for session, fact in facts
        if isinstance(fact, FilesChanged)
        for change in fact.changes
    }


def remove(root: Path, *paths: str) -> None:
    for path in paths:
        one = root / path
        shutil.rmtree(one) if one.is_dir() else one.unlink()


def write(root: Path, **files: str) -> None:
    for path, content in files.items():
        (root / path).write_text(content)


def replace_src(root: Path) -> None:
    remove(root, "src")
    write(root, src="file")


Step = Callable[[Path], object]
RACES: dict[str, tuple[Step, Step, dict[str, str | None]]] = {
    "what was made is gone, with its folder": (
        lambda root: write(root, **{"src/new": "new", "top": "top"}),
        lambda root: remove(root, "src"),
        {"src/new": "outside", "top": "own", "src": "outside", "src/main.py": "outside"},
    ),
    "its folder is a file": (
        lambda root: write(root, **{"src/new": "new"}),
        replace_src,
        {"src/new": "outside", "src": "outside", "src/main.py": "outside"},
    ),
    "what was deleted is there again": (
        lambda root: remove(root, "a.txt", "src"),
        lambda root: write(root, **{"a.txt": "again"}),
        {"a.txt": "outside", "src": "own", "src/main.py": "own"},
    ),
    "what was moved is in another place": (
        lambda root: (root / "a.txt").rename(root / "src" / "b.txt"),
        lambda root: (root / "src" / "b.txt").rename(root / "c.txt"),
        {"a.txt": "own", "src/b.txt": "outside"},
    ),
    "nobody did anything": (
        lambda root: write(root, **{"src/new": "new"}),
        lambda root: None,
        {"src/new": "own"},
    ),
}


@pytest.mark.parametrize("how", RACES)
def test_what_holds_is_its_owner_s_and_the_rest_is_of_nobody(
    how: str, root: Path, workspace: AuditedWorkspace, tmp_path: Path
) -> None:
    do, then, whose = RACES[how]
    attachment = workspace.attachment
    with attachment.exclusive():
        do(root)
        found = found_by(workspace)
        then(root)
        result = fitted(attachment, [own(found.changes)])
        last = owners(result.drafts)
        assert {path: last.get(path) for path in whose} == whose
        assert result.lost == [], "all of it is on record, as far as it was so"
        update_index(attachment, result.entries, attachment.stored.log.append(result.drafts))
        record_drift(attachment)
    assert_whole(workspace, root, tmp_path)


@pytest.mark.parametrize("how", ["what was made is gone, with its folder", "its folder is a file"])
def test_what_does_not_apply_any_more_is_lost_and_the_rest_is_on_record(
    how: str, root: Path, workspace: AuditedWorkspace, tmp_path: Path
) -> None:
    """What a person did is on record already when what was found before it is to be recorded."""
    do, then, _ = RACES[how]
    attachment = workspace.attachment
    with attachment.exclusive():
        do(root)
        found = found_by(workspace)
        then(root)
        record_drift(attachment)
        write(root, later="later")
        said = [*(one for one in found.changes if one.path != "top"), *found_by(workspace).changes]
        with pytest.raises(DoesNotApply):
            attachment.stored.log.append([own(said)])
        result = fitted(attachment, [own(said)])
        assert owners(result.drafts) == {"later": "own"} and result.lost == ["src/new"]
        update_index(attachment, result.entries, attachment.stored.log.append(result.drafts))
    assert_whole(workspace, root, tmp_path)


def test_what_somebody_does_meanwhile_makes_no_impossible_record(
    root: Path, workspace: AuditedWorkspace, tmp_path: Path, seed: str
) -> None:
    """Also where what was found is itself of several moments, as it is of a long look."""
    chance, attachment, refused = Random(seed), workspace.attachment, 0
    for _ in range(40):
        with attachment.exclusive():
            record_drift(attachment)
            upheave(root, chance)
            found = found_by(workspace)
            said = [one for one in found.changes if chance.randrange(6)]
            upheave(root, chance)
            drafts = [own(said)]
            try:
                attachment.stored.log.append(drafts)
            except DoesNotApply:
                refused += 1
                entries = {one.path: found.entries[one.path] for one in said}
                update_index(attachment, entries, append_or_fit(attachment, drafts, entries))
                tree, disk = workspace.timeline.tree(), tree_of(root)
                assert all((one.path in tree) == (one.path.encode() in disk) for one in said)
            assert impossible(workspace) == []
    assert refused
    with attachment.exclusive():
        record_drift(attachment)
    assert workspace.verify().findings == ()
    workspace.replay(workspace.log.head(), tmp_path / "replayed")
    assert tree_of(tmp_path / "replayed") == tree_of(root)
