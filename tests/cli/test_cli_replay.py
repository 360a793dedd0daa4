"""`replay`: a point rebuilt elsewhere, never in a workspace or the store."""

from pathlib import Path

import pytest

from tests.cli.shells import Shell, walk


def test_a_point_is_rebuilt_byte_for_byte_elsewhere(audited: Shell, tmp_path: Path) -> None:
    (audited.workspace / "link").symlink_to("a.txt")
    (audited.workspace / "empty").mkdir()
    audited.sh("head -c 5000 /dev/urandom > blob.bin; chmod 750 src")
    then = audited.tree()
    audited.sh("rm -rf src link")
    audited("replay", "head~1", "--to", str(tmp_path / "then"))
    assert walk(tmp_path / "then") == then
    audited("replay", "head", "--to", str(tmp_path / "then"), code=5)


@pytest.mark.parametrize("folder", ["work", "work/out", "work/src/new/deep", "home", "home/out"])
def test_a_replay_into_a_workspace_or_the_store_is_refused_and_changes_nothing(
    audited: Shell, folder: str
) -> None:
    before, log = audited.tree(), audited.records("log", "--events", "-n", "0")
    target = audited.workspace.parent / folder
    there = target.exists()
    refused = audited("replay", "head", "--to", str(target), code=5)
    assert "hint: " in refused.errors
    assert audited.tree() == before and target.exists() == there
    assert audited.records("log", "--events", "-n", "0") == log


def test_a_replay_through_a_symlink_into_the_workspace_is_refused(
    audited: Shell, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(audited.workspace)
    before = audited.tree()
    assert audited("replay", "head", "--to", str(tmp_path / "link" / "out"), code=5).errors
    assert audited.tree() == before


def test_a_replay_into_another_workspace_is_refused(audited: Shell, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    audited("init", str(other))
    assert audited("replay", "head", "--to", str(other), code=5).errors
    assert [*other.iterdir()] == []


def test_a_workspace_that_is_gone_is_rebuilt_where_it_was(audited: Shell) -> None:
    before = audited.tree()
    audited.workspace.rename(audited.workspace.with_name("moved"))
    parent = audited.workspace.parent
    audited("replay", "head", "--to", str(audited.workspace), "--workspace", "work", cwd=parent)
    assert audited.tree() == before
    assert audited.records("status")[0]["drift"] == []


def test_a_replay_of_a_point_that_does_not_exist_makes_no_folder(
    audited: Shell, tmp_path: Path
) -> None:
    assert audited("replay", "99999", "--to", str(tmp_path / "out"), code=4).errors
    assert not (tmp_path / "out").exists()


def test_a_replay_to_a_symlink_that_leads_nowhere_is_refused(
    audited: Shell, tmp_path: Path
) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "gone")
    refused = audited("replay", "head", "--to", str(tmp_path / "link"), "--json", code=2)
    assert '"INVALID_PATH"' in refused.errors and '"hint"' in refused.errors
    assert not (tmp_path / "gone").exists()


def test_a_replay_to_a_path_with_a_nul_is_refused(audited: Shell, tmp_path: Path) -> None:
    refused = audited("replay", "head", "--to", f"{tmp_path}/a\0b", "--json", code=2)
    assert '"INVALID_PATH"' in refused.errors
