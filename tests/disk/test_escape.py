"""Nothing leads out of a workspace, not even a race; what is not a file is never read."""

import errno
import gc
import hashlib
import io
import os
import socket
import stat
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path

import pytest

from loom_audit.disk.access import system
from loom_audit.disk.access.root_directory import RootDirectory
from loom_audit.disk.access.system import System, probe
from loom_audit.disk.workspace import DiskWorkspace
from loom_audit.errors import AuditError, InvalidPath, NoWorkspace
from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.model.scope import Scope
from loom_audit.ports import Replacement

SECRET = b"secret"
SECONDS = 2.0
MOST_SECONDS = 60.0
ROOT = Path(__file__).parents[2]


@pytest.fixture(params=[probe(), System()], ids=["openat2", "portable"])
def calls(request: pytest.FixtureRequest) -> System:
    assert isinstance(request.param, System)
    return request.param


@pytest.fixture
def workspace(tmp_path: Path, calls: System) -> DiskWorkspace:
    root = tmp_path / "ws"
    root.mkdir()
    return DiskWorkspace(str(root), calls=calls)


def of(content: bytes, mode: int = 0o644) -> FileState:
    return FileState("file", BlobId(hashlib.sha256(content).hexdigest()), mode, len(content))


@contextmanager
def swapped(root: Path) -> Generator[None, None, None]:
    """While another process lets `d` in the workspace and a link to outside trade places."""
    outside = root.parent / "outside"
    outside.mkdir()
    (outside / "f").write_bytes(SECRET)
    (root / "d").mkdir()
    (root / "d" / "f").write_bytes(b"public")
    (root.parent / "link").symlink_to("../outside")
    mode = "exchange" if probe().renameat2 else "rename"
    with subprocess.Popen(
        [sys.executable, str(Path(__file__).with_name("swapper.py")), str(root), mode],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    ) as swapper:
        try:
            assert swapper.stdout is not None
            assert swapper.stdout.readline() == b"ready\n"
            yield
            assert swapper.poll() is None, "the swapper has died: nothing was tested"
        finally:
            swapper.kill()


def raced(is_enough: Callable[[], bool]) -> Iterator[int]:
    """Rounds against the other process, for some seconds, longer where it is seldom met."""
    began = time.monotonic()
    for number in count(1):
        passed = time.monotonic() - began
        if passed > MOST_SECONDS or (passed > SECONDS and is_enough()):
            return
        yield number


@pytest.mark.few(1)
def test_no_read_leaks_while_a_folder_and_a_link_trade_places(workspace: DiskWorkspace) -> None:
    root = Path(workspace.root)
    seen = Counter[str]()
    with swapped(root):
        for _ in raced(lambda: seen["ok"] > 50 and seen["INVALID_PATH"] > 5):
            looks: tuple[Callable[[], bytes | str], ...] = (
                lambda: workspace.read("d/f"),
                lambda: workspace.read(workspace.resolve("d/f")),
                lambda: workspace.open("d/f").read(),
                lambda: "f" if workspace.list("d")[0][1].size == len(b"public") else SECRET,
            )
            for look in looks:
                try:
                    found = look()
                except AuditError as error:
                    seen[error.code] += 1
                    continue
                assert found != SECRET
                seen["ok"] += 1
            for path, found_stamp in workspace.walk(Scope(), {}):
                assert path in ("d", "d/f")
                assert path == "d" or not isinstance(found_stamp, str)
    assert seen["ok"] > 50, seen
    assert seen["INVALID_PATH"] > 5, f"the race was never met: {seen}"


@pytest.mark.few(1)
def test_no_write_lands_outside_while_a_folder_and_a_link_trade_places(
    workspace: DiskWorkspace,
) -> None:
    root = Path(workspace.root)
    seen = Counter[str]()
    with swapped(root):
        for number in raced(lambda: seen["ok"] > 5):
            content = str(number).encode()
            change = FileChange("d/g", None, of(content))
            try:
                if number % 3:
                    workspace.replace(change, io.BytesIO(content)).discard()
                else:
                    step = Replacement(change, partial(io.BytesIO, content))
                    workspace.replace_all([step])[0].discard()
            except AuditError as error:
                seen[error.code] += 1
                continue
            seen["ok"] += 1
    outside = root.parent / "outside"
    assert os.listdir(outside) == ["f"]
    assert (outside / "f").read_bytes() == SECRET
    assert seen["ok"] > 5, seen


def test_without_protection_the_race_leaks(tmp_path: Path) -> None:
    """The control: what the tests above look for does happen to a check of the path's text."""
    root = tmp_path / "ws"
    root.mkdir()
    leaks = 0
    with swapped(root):
        end = time.monotonic() + 20
        while time.monotonic() < end and not leaks:
            try:
                path = (root / "d/f").resolve()
                path.relative_to(root)
                leaks += (root / "d/f").read_bytes() == SECRET
            except (OSError, ValueError):
                continue
    assert leaks


@pytest.mark.parametrize("kind", ["fifo", "socket"])
def test_what_is_not_a_file_is_refused_by_name_and_never_waited_for(
    workspace: DiskWorkspace, kind: str
) -> None:
    path = Path(workspace.root) / "x"
    if kind == "fifo":
        os.mkfifo(path)
    else:
        here = Path.cwd()
        os.chdir(workspace.root)  # a socket's address is at most 108 bytes long
        try:
            socket.socket(socket.AF_UNIX).bind("x")
        finally:
            os.chdir(here)
    for refused in (
        lambda: workspace.open("x"),
        lambda: workspace.read("x"),
        lambda: workspace.replace(FileChange("x", None, of(b"x")), io.BytesIO(b"x")),
        lambda: workspace.replace(FileChange("x", None, None), None),
        lambda: workspace.replace_all([Replacement(FileChange("x", None, None))]),
        lambda: workspace.replace_all(
            [Replacement(FileChange("x", None, of(b"x")), lambda: io.BytesIO(b"x"))]
        ),
    ):
        with pytest.raises(InvalidPath, match=kind):
            refused()
    assert dict(workspace.walk(Scope(), {})) == {"x": f"not a file: {kind}"}
    assert [name for name, _ in workspace.list()] == ["x"]
    assert workspace.leftovers() == []


def test_devices_are_refused(workspace: DiskWorkspace) -> None:
    path = Path(workspace.root) / "zero"
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("only root can make devices")
    with pytest.raises(InvalidPath, match="character device"):
        workspace.read("zero", 10)
    assert dict(workspace.walk(Scope(), {})) == {"zero": "not a file: character device"}


def test_a_link_to_what_is_not_a_file_is_refused_too(workspace: DiskWorkspace) -> None:
    root = Path(workspace.root)
    os.mkfifo(root / "fifo")
    (root / "l").symlink_to("fifo")
    with pytest.raises(InvalidPath, match="fifo"):
        workspace.read("l")


def test_a_root_given_by_a_link_takes_both_names(tmp_path: Path, calls: System) -> None:
    root = tmp_path / "real"
    (root / "d").mkdir(parents=True)
    (root / "d/f").write_bytes(b"x")
    given = tmp_path / "given"
    given.symlink_to(root)
    (root / "l").symlink_to(given / "d")
    workspace = DiskWorkspace(str(given), calls=calls)
    assert workspace.root == str(root)
    assert workspace.relative(f"{given}/d/f") == workspace.relative(f"{root}/d/f") == "d/f"
    assert workspace.read("l/f") == b"x"
    assert workspace.resolve("l/f") == "d/f"


def test_a_workspace_that_vanished_or_was_exchanged_is_noticed(
    workspace: DiskWorkspace,
) -> None:
    root = Path(workspace.root)
    (root / "f").write_bytes(b"x")
    root.rename(root.with_name("moved"))
    for use in (
        lambda: workspace.walk(Scope(), {}),
        workspace.list,
        workspace.leftovers,
        lambda: workspace.stamp(""),
        lambda: workspace.replace(FileChange("f", None, of(b"y")), io.BytesIO(b"y")),
        lambda: workspace.replace_all([]),
    ):
        with pytest.raises(NoWorkspace, match="vanished"):
            use()
    root.mkdir()
    with pytest.raises(NoWorkspace, match="another directory"):
        workspace.replace(FileChange("f", None, of(b"y")), io.BytesIO(b"y"))
    assert os.listdir(root) == []
    assert (root.with_name("moved") / "f").read_bytes() == b"x"


def test_an_absent_root_is_an_error_of_ours(tmp_path: Path) -> None:
    with pytest.raises(AuditError):
        DiskWorkspace(str(tmp_path / "gone"))
    (tmp_path / "file").write_text("")
    with pytest.raises(AuditError):
        DiskWorkspace(str(tmp_path / "file"))


def test_openat2_that_keeps_doubting_gives_way_to_the_walk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not probe().openat2:
        pytest.skip("this kernel has no openat2")
    (tmp_path / "d").mkdir()
    (tmp_path / "d/f").write_bytes(b"x")
    workspace = DiskWorkspace(str(tmp_path))
    asked = 0

    def doubt(*_: object) -> int:
        nonlocal asked
        asked += 1
        raise BlockingIOError(errno.EAGAIN, "again")

    monkeypatch.setattr(system, "openat2", doubt)
    assert workspace.read("d/f") == b"x"
    assert workspace.resolve("d/f") == "d/f"
    stamp = workspace.stamp("d/f")
    assert stamp is not None and stamp.size == 1
    assert 0 < asked < 200


def test_many_opens_leave_no_descriptor_behind(workspace: DiskWorkspace) -> None:
    root = Path(workspace.root)
    (root / "d").mkdir()
    (root / "d/f").write_bytes(b"x")
    (root / "l").symlink_to(workspace.root + "/d/f")
    (root / "out").symlink_to("/etc/passwd")
    os.mkfifo(root / "fifo")

    def work() -> None:
        for path in ("d/f", "l", "out", "fifo", "gone/x", "d/f/x"):
            for use in (workspace.read, workspace.resolve, workspace.stamp, workspace.list):
                try:
                    use(path)
                except AuditError:
                    continue
        list(workspace.walk(Scope(), {}))
        next(workspace.walk(Scope(), {}))
        change = FileChange("d/g", None, of(b"g"))
        workspace.replace(change, io.BytesIO(b"g")).put_back()
        workspace.replace_all([Replacement(change, lambda: io.BytesIO(b"g"))])[0].put_back()

    work()
    gc.collect()  # what an earlier test left open is not closed in between
    before = len(os.listdir("/dev/fd"))
    for _ in range(20):
        work()
    assert len(os.listdir("/dev/fd")) == before


def test_descriptors_are_closed_on_exec_and_with_the_workspace(tmp_path: Path) -> None:
    beneath = RootDirectory(str(tmp_path), probe())
    assert not os.get_inheritable(beneath.fd)
    descriptor = beneath.open_folder("")
    assert not os.get_inheritable(descriptor)
    os.close(descriptor)
    number = beneath.fd
    beneath.close()
    with pytest.raises(OSError):
        os.fstat(number)


def test_a_file_of_a_tebibyte_is_stamped_and_never_read_for_it(workspace: DiskWorkspace) -> None:
    path = Path(workspace.root) / "big"
    with path.open("wb") as file:
        try:
            file.truncate(1 << 40)
        except OSError as error:
            pytest.skip(f"this filesystem holds no file of a tebibyte: {error}")
    stamp = workspace.stamp("big")
    assert stamp is not None and stamp.size == 1 << 40
    assert dict(workspace.walk(Scope(), {})).keys() == {"big"}
    assert workspace.read("big", 10) == bytes(10)
