"""Sums of a review that are kept: the same as those that are counted, and believed of nothing that
is shown.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from loom_audit import AuditedWorkspace, Session
from loom_audit.api.lines import Lines, NetChange, lines_of
from loom_audit.history.read.lines.kept_sums import FEW
from loom_audit.model.authorship.net_sums import decoded_sums, encoded_sums
from loom_audit.sql.line_maps import SqlLineMaps
from loom_audit.wiring.caches import FOLDER
from tests.history.read.lines.test_net_change import run

FILES = FEW + 4


@pytest.fixture
def reviewed(workspace: AuditedWorkspace, root: Path) -> Iterator[Session]:
    """A session that made many files, some of which it or others changed further."""
    (root / "mode").write_text("x\n")
    with workspace.session("one") as one, workspace.session("two") as two:
        for n in range(FILES):
            run(one, "write_file", path=f"f{n:02}", content="line\n" * (n + 1))
        run(one, "write_file", path="a.txt", content="other\n")
        run(two, "write_file", path="f01", content="line\nanother\n")
        run(
            one, "shell_execute", command="mv f02 moved; chmod 700 mode; printf '\\0' > bin; rm f03"
        )
        run(one, "shell_execute", command="mv f04 f05; printf 'back\\n' > f06")
        workspace.carry_out(workspace.plan_undo(session=one.id))
        yield one


def told(lines: Lines, session: Session, *, by_sums: bool, most: int = 9) -> NetChange:
    return lines.net(lines.of_session(session.id), max_lines=most, by_sums=by_sums)


def maps_of(workspace: AuditedWorkspace) -> SqlLineMaps:
    return SqlLineMaps(workspace.adapters.settings.home / FOLDER / f"{workspace.id}.lines.db")


def kept_of(workspace: AuditedWorkspace) -> dict[bytes, bytes]:
    def step(db: object) -> dict[bytes, bytes]:
        return dict(db.execute("SELECT name, content FROM map"))  # type: ignore[attr-defined]

    return maps_of(workspace)._file.do(step)


@pytest.mark.few(1)
@pytest.mark.parametrize("most", [0, 9, 1000])
def test_a_review_by_kept_sums_is_the_one_that_is_counted(
    reviewed: Session, workspace: AuditedWorkspace, most: int
) -> None:
    right = told(lines_of(workspace), reviewed, by_sums=False, most=most)
    assert len(right.files) > FEW and not kept_or_none(workspace)
    for _ in range(2):
        found = told(lines_of(workspace), reviewed, by_sums=True, most=most)
        assert [*found.files] == [*right.files]
        assert found == right
        assert kept_of(workspace)
    run(reviewed, "write_file", path="f07", content="other\n")
    right = told(lines_of(workspace), reviewed, by_sums=False, most=most)
    assert told(lines_of(workspace), reviewed, by_sums=True, most=most) == right


def kept_or_none(workspace: AuditedWorkspace) -> bool:
    return (workspace.adapters.settings.home / FOLDER / f"{workspace.id}.lines.db").exists()


def test_kept_sums_have_no_text(reviewed: Session, workspace: AuditedWorkspace) -> None:
    told(lines_of(workspace), reviewed, by_sums=True)
    assert not any(b"line" in one or b"moved" in one for one in kept_of(workspace).values())


def test_forged_sums_of_lines_that_are_shown_make_all_be_counted_anew(
    reviewed: Session, workspace: AuditedWorkspace
) -> None:
    right = told(lines_of(workspace), reviewed, by_sums=True)
    forged = forge(workspace, added=77)
    assert told(lines_of(workspace), reviewed, by_sums=True) == right
    assert kept_of(workspace).keys() == forged.keys()
    assert kept_of(workspace) != forged


def test_forged_sums_of_a_file_are_seen_when_its_lines_are(
    reviewed: Session, workspace: AuditedWorkspace
) -> None:
    right = told(lines_of(workspace), reviewed, by_sums=True, most=0)
    forge(workspace, added=77)
    lines = lines_of(workspace)
    believed = told(lines, reviewed, by_sums=True, most=0)
    assert [one.path for one in believed.files] == [one.path for one in right.files]
    assert believed.added > right.added
    calls = lines.of_session(reviewed.id)
    alone = lines.net(calls, paths=["f08"], by_sums=True)
    assert (alone.added, alone.files) == (right.added, lines.net(calls, paths=["f08"]).files)


def test_no_forged_sums_hide_that_a_file_is_changed(
    reviewed: Session, workspace: AuditedWorkspace
) -> None:
    right = told(lines_of(workspace), reviewed, by_sums=True, most=0)
    forge(workspace, length=0, added=0, removed=0, removed_again=0, brought_back=0, shared=0)
    believed = told(lines_of(workspace), reviewed, by_sums=True, most=0)
    assert [one.path for one in believed.files] == [one.path for one in right.files]
    assert believed.cancelled == right.cancelled


@pytest.mark.parametrize("seal", ["of what was kept", "of another file", "of another key"])
def test_sums_that_were_not_sealed_with_the_key_of_the_store_are_none(
    reviewed: Session, workspace: AuditedWorkspace, seal: str
) -> None:
    right = told(lines_of(workspace), reviewed, by_sums=True, most=0)
    kept = kept_of(workspace)
    if seal == "of what was kept":
        forged = forge(workspace, added=77)
        maps_of(workspace).keep({name: kept[name][:32] + forged[name][32:] for name in kept})
    elif seal == "of another file":
        maps_of(workspace).keep(dict(zip(kept, reversed(kept.values()), strict=True)))
    else:
        forge(workspace, b"k" * 32, added=77)
    assert kept_of(workspace) != kept
    assert told(lines_of(workspace), reviewed, by_sums=True, most=0) == right
    assert kept_of(workspace) == kept


def forge(workspace: AuditedWorkspace, key: bytes = b"", **counts: int) -> dict[bytes, bytes]:
    """Give all kept sums other counts, as who has the key of the store can; what is kept then."""
    own = lines_of(workspace).key
    forged = {
        name: encoded_sums(replace(sums, **counts), name, key or own)
        for name, data in kept_of(workspace).items()
        if (sums := decoded_sums(data, name, own))
    }
    maps_of(workspace).keep(forged)
    return forged


def test_damaged_sums_are_counted_again(reviewed: Session, workspace: AuditedWorkspace) -> None:
    right = told(lines_of(workspace), reviewed, by_sums=True)
    maps_of(workspace).keep(dict.fromkeys(kept_of(workspace), b"\xff nothing"))
    assert told(lines_of(workspace), reviewed, by_sums=True) == right
