"""Which directories are refused as workspaces, each with its reason."""

import os
from pathlib import Path

import pytest

from loom_audit.disk.machine.roots import check_root, check_target, is_in_place, is_mount_point
from loom_audit.errors import AuditError, Conflict, FileNotFound, InvalidPath, PermissionDenied


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "data" / "store"
    folder.mkdir(parents=True)
    return folder


def refused(path: Path | str, store: Path, others: tuple[str, ...] = ()) -> AuditError:
    with pytest.raises(AuditError) as caught:
        check_root(path, store_dir=store, others=others)
    assert caught.value.hint or isinstance(caught.value, FileNotFound)
    caught.value.message.encode()
    return caught.value


def test_a_plain_directory_is_given_back_by_its_real_path(tmp_path: Path, store: Path) -> None:
    (tmp_path / "ws").mkdir()
    (tmp_path / "link").symlink_to("ws")
    for name in ("ws", "link", "ws/../ws/"):
        real = check_root(f"{tmp_path}/{name}", store_dir=store, others=[])
        assert real == str(tmp_path / "ws")


@pytest.mark.parametrize(
    "path", ["/", "/proc", "/proc/self", "/sys", "/etc", "/usr", "/tmp", "/dev"]
)
def test_folders_of_the_system_are_refused(path: str, store: Path) -> None:
    if not os.path.isdir(path):
        pytest.skip(f"there is no {path} here")
    assert isinstance(refused(path, store), InvalidPath)


def test_home_and_what_holds_it_are_refused_and_what_is_in_it_is_not(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = tmp_path / "homes" / "me"
    (home / "project").mkdir(parents=True)
    monkeypatch.setenv("HOME", str(home))
    assert "home" in refused(home, store).message
    assert "home" in refused(tmp_path / "homes", store).message
    check_root(home / "project", store_dir=store, others=[])


def test_what_is_not_a_directory_is_refused(tmp_path: Path, store: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "dangling").symlink_to("gone")
    os.mkfifo(tmp_path / "fifo")
    assert isinstance(refused(tmp_path / "file", store), InvalidPath)
    assert isinstance(refused(tmp_path / "fifo", store), InvalidPath)
    assert isinstance(refused(tmp_path / "gone", store), FileNotFound)
    assert isinstance(refused(tmp_path / "dangling", store), FileNotFound)
    assert isinstance(refused("nul\0", store), InvalidPath)


def test_a_git_folder_is_refused(tmp_path: Path, store: Path) -> None:
    (tmp_path / ".git/hooks").mkdir(parents=True)
    assert isinstance(refused(tmp_path / ".git", store), InvalidPath)
    assert isinstance(refused(tmp_path / ".git/hooks", store), InvalidPath)


def test_the_store_and_a_workspace_never_hold_each_other(tmp_path: Path, store: Path) -> None:
    (store / "sub").mkdir()
    for path in (store, store.parent, store / "sub"):
        assert isinstance(refused(path, store), Conflict)
    (tmp_path / "link").symlink_to(store / "sub")
    assert isinstance(refused(tmp_path / "link", store), Conflict)
    (tmp_path / "ws").mkdir()
    check_root(tmp_path / "ws", store_dir=tmp_path / "not made yet", others=[])
    assert isinstance(refused(tmp_path / "ws", tmp_path / "ws/not/made/yet"), Conflict)


@pytest.mark.parametrize("forged", ["", "\0", "/a\0b", "relative", "/nowhere/at all"])
def test_a_forged_root_of_another_workspace_is_nowhere_and_in_nobody_s_way(
    tmp_path: Path, store: Path, forged: str
) -> None:
    assert not is_in_place(forged) and not is_mount_point(forged)
    check_target(tmp_path / "new", store_dir=store, others=[forged])


def test_workspaces_never_hold_each_other(tmp_path: Path, store: Path) -> None:
    (tmp_path / "a/b/c").mkdir(parents=True)
    (tmp_path / "ab").mkdir()
    other = str(tmp_path / "a/b")
    error = refused(tmp_path / "a", store, (other,))
    assert isinstance(error, Conflict)
    assert error.details["other"] == other
    assert isinstance(refused(tmp_path / "a/b/c", store, (other,)), Conflict)
    assert check_root(other, store_dir=store, others=[other]) == other
    check_root(tmp_path / "ab", store_dir=store, others=[other, str(tmp_path / "a")])
    check_root(tmp_path / "ab", store_dir=store, others=["/vanished/long/ago"])


def test_a_directory_that_may_not_be_read_is_denied(as_ordinary_user: Path) -> None:
    (as_ordinary_user / "ws").mkdir(mode=0o000)
    elsewhere = Path("/nonexistent-store")
    assert isinstance(refused(as_ordinary_user / "ws", elsewhere), PermissionDenied)
