"""What every workspace promises: on disk by openat2, on disk the portable way, in memory."""

import hashlib
import io
import os
import shutil
import stat
import time
from functools import partial
from pathlib import Path
from typing import Protocol

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.disk.access.system import System, probe
from loom_audit.disk.workspace import DiskWorkspace
from loom_audit.errors import AuditError, Conflict, Corrupt, FileNotFound, InvalidPath
from loom_audit.model.files import BlobId, FileChange, FileState
from loom_audit.model.scope import TEMPORARY, Scope
from loom_audit.ports import (
    OPAQUE,
    Displaced,
    LeftOutFiles,
    Replacement,
    Stamp,
    Stamps,
    Workspace,
    opaque_stamp,
)
from tests.doubles import MemoryWorkspace

ODD = b"caf\xe9".decode("utf-8", "surrogateescape")


class Somebody(Protocol):
    """Another program that works in the same directory."""

    def write(self, path: str, content: bytes, mode: int = 0o644) -> None: ...
    def link(self, path: str, target: bytes) -> None: ...
    def folder(self, path: str, mode: int = 0o755) -> None: ...
    def remove(self, path: str) -> None: ...
    def chmod(self, path: str, mode: int) -> None: ...


class DiskSomebody:
    def __init__(self, root: str) -> None:
        self._root = root

    def _at(self, path: str) -> Path:
        return Path(self._root, path)

    def write(self, path: str, content: bytes, mode: int = 0o644) -> None:
        self._at(path).write_bytes(content)
        self._at(path).chmod(mode)

    def link(self, path: str, target: bytes) -> None:
        os.symlink(target, os.fsencode(self._at(path)))

    def folder(self, path: str, mode: int = 0o755) -> None:
        self._at(path).mkdir()
        self._at(path).chmod(mode)

    def chmod(self, path: str, mode: int) -> None:
        self._at(path).chmod(mode)

    def remove(self, path: str) -> None:
        if self._at(path).is_dir() and not self._at(path).is_symlink():
            shutil.rmtree(self._at(path))
        else:
            self._at(path).unlink()


KINDS = ("openat2", "portable", "memory")


def make(kind: str, root: Path, exclude: tuple[str, ...] = ()) -> tuple[Workspace, Somebody]:
    if kind == "memory":
        memory = MemoryWorkspace(str(root), exclude=exclude)
        return memory, memory
    root.mkdir(exist_ok=True)
    calls = probe() if kind == "openat2" else System()
    return DiskWorkspace(str(root), exclude=exclude, calls=calls), DiskSomebody(str(root))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    if request.param == "openat2" and not (probe().openat2 and probe().renameat2):
        pytest.skip("this kernel has no openat2 and renameat2")
    return str(request.param)


@pytest.fixture
def both(kind: str, tmp_path: Path) -> tuple[Workspace, Somebody]:
    return make(kind, tmp_path / "ws")


def of(content: bytes, mode: int = 0o644, kind: str = "file") -> FileState:
    blob = BlobId(hashlib.sha256(content).hexdigest())
    return FileState(kind, blob, mode, len(content))  # type: ignore[arg-type]


def link_to(target: bytes) -> FileState:
    return of(target, 0o777, "symlink")


def folder(mode: int = 0o755) -> FileState:
    return FileState("directory", None, mode, 0)


def put(
    workspace: Workspace,
    path: str,
    before: FileState | None,
    after: FileState | None,
    content: bytes | None = None,
) -> Displaced:
    stream = None if content is None else io.BytesIO(content)
    return workspace.replace(FileChange(path, before, after), stream)


def state(workspace: Workspace, path: str) -> FileState | None:
    """What is there, found out by other methods than the one under test."""
    stamp = workspace.stamp(path)
    if stamp is None:
        return None
    mode = stat.S_IMODE(stamp.mode)
    if stat.S_ISDIR(stamp.mode):
        return folder(mode)
    if stat.S_ISLNK(stamp.mode):
        return link_to(workspace.read_link(path))
    return of(workspace.read(path), mode)


def tree(workspace: Workspace) -> dict[str, FileState | None]:
    return {path: state(workspace, path) for path, _ in workspace.walk(Scope(), {})}


# --- names --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("a.txt", "a.txt"),
        ("a/./b//c", "a/b/c"),
        ("./a/", "a"),
        ("a/../b", "b"),
        ("a/b/../../c", "c"),
        ("", ""),
        (".", ""),
        ("/", None),
        ("a/..", ""),
        ("..", None),
        ("../x", None),
        ("a/../../x", None),
        ("/etc/passwd", None),
        ("/proc/self/cwd/a", None),
        ("nul\0byte", None),
        ("/\0", None),
        ("n" * 255, "n" * 255),
        ("n" * 256, None),
        ("é" * 128, None),
        ("/".join(["d" * 200] * 20), "/".join(["d" * 200] * 20)),
        ("/".join(["d" * 200] * 21), None),
        ("\ud800", None),
        (ODD, ODD),
        (" ", " "),
        ("a\nb", "a\nb"),
        ("\\..\\x", "\\..\\x"),
        ("~/x", "~/x"),
        (".git/config", ".git/config"),
    ],
)
def test_a_path_as_written_is_taken_lexically_or_refused(
    both: tuple[Workspace, Somebody], written: str, meant: str | None
) -> None:
    workspace, _ = both
    if meant is None:
        with pytest.raises(InvalidPath) as caught:
            workspace.relative(written)
        caught.value.message.encode()
    else:
        assert workspace.relative(written) == meant


def test_an_absolute_path_inside_is_a_workspace_path(both: tuple[Workspace, Somebody]) -> None:
    workspace, _ = both
    assert workspace.relative(workspace.root) == ""
    assert workspace.relative(workspace.root + "/a//b/../c") == "a/c"
    for outside in (
        workspace.root + "x",
        workspace.root + "/../x",
        os.path.dirname(workspace.root),
    ):
        with pytest.raises(InvalidPath):
            workspace.relative(outside)


# --- reading ------------------------------------------------------------------------------


def test_reading_gives_the_content_the_limit_and_a_stream(
    both: tuple[Workspace, Somebody],
) -> None:
    workspace, somebody = both
    somebody.write("a", b"0123456789")
    assert workspace.read("a") == b"0123456789"
    assert workspace.read("a", 4) == b"0123"
    assert workspace.read("a", 0) == b""
    assert workspace.read("a", 99) == b"0123456789"
    with workspace.open("a") as stream:
        assert stream.read() == b"0123456789"


def test_what_is_read_at_once_comes_with_the_stamp_of_what_was_read(
    both: tuple[Workspace, Somebody],
) -> None:
    workspace, somebody = both
    somebody.write("a", b"0123456789")
    seen = workspace.stamp("a")
    assert seen is not None
    content, after, has = workspace.read_and_stamp("a", 10)
    assert content == b"0123456789" and has.identity == workspace.identity("a") != ""
    assert (after.mode, after.size, after.ino) == (seen.mode, 10, seen.ino)
    assert workspace.read_and_stamp("a", 0)[0] == b""
    somebody.write("a", b"0123456789 and more")
    content, after, _ = workspace.read_and_stamp("a", seen.size)
    assert (content, after.size) == (b"0123456789", 19)
    somebody.write("a", b"0")
    assert workspace.read_and_stamp("a", seen.size)[0] == b"0"
    with pytest.raises(FileNotFound):
        workspace.read_and_stamp("b", 1)


def test_an_identity_stays_with_its_file_and_is_never_given_again(
    both: tuple[Workspace, Somebody],
) -> None:
    workspace, somebody = both
    assert workspace.identity("a") == workspace.identity("a/b") == ""
    somebody.folder("d")
    somebody.link("l", b"d")
    given = {workspace.identity("d"), workspace.identity("l")}
    for _ in range(5):
        somebody.write("a", b"x")
        given.add(workspace.identity("a"))
        assert workspace.read_and_stamp("a", 1)[2].identity == workspace.identity("a")
        somebody.write("a", b"changed in place", 0o600)
        assert workspace.identity("a") in given
        somebody.remove("a")
        somebody.remove("d")
        somebody.folder("d")
        given.add(workspace.identity("d"))
    assert len(given) == 2 + 5 + 5 and {len(one) for one in given} == {32}
    assert len({one[:12] for one in given}) == 1


def test_what_is_absent_or_no_file_is_named(both: tuple[Workspace, Somebody]) -> None:
    workspace, somebody = both
    somebody.folder("d")
    somebody.write("f", b"")
    for read in (workspace.read, workspace.open, workspace.read_link, workspace.mtime):
        with pytest.raises(FileNotFound):
            read("gone")
    with pytest.raises(InvalidPath, match="directory"):
        workspace.read("d")
    with pytest.raises(InvalidPath):
        workspace.open("")
    with pytest.raises(InvalidPath):
        workspace.read_link("f")
    with pytest.raises(InvalidPath):
        workspace.read("f/x")
    assert workspace.stamp("gone") is None
    assert workspace.stamp("f/x") is None
    assert workspace.stamp("gone/x") is None


def test_links_inside_are_followed(both: tuple[Workspace, Somebody]) -> None:
    workspace, somebody = both
    somebody.folder("d")
    somebody.folder("d/e")
    somebody.write("d/e/f", b"found")
    somebody.link("l", b"d/e/f")
    somebody.link("d/up", b"../d/e")
    somebody.link("absolute", workspace.root.encode() + b"/d/./e")
    somebody.link("chain", b"d/up/f")
    somebody.link("root", b".")
    for path in ("l", "d/up/f", "absolute/f", "chain", "root/root/chain"):
        assert workspace.read(path) == b"found", path
        assert workspace.resolve(path) == "d/e/f", path
        assert workspace.mtime(path) == workspace.mtime("d/e/f")
    assert [name for name, _ in workspace.list("absolute")] == ["f"]
    assert workspace.read_link("d/up") == b"../d/e"
    assert workspace.stamp("d/up/f") is None, "a tree has nothing below a link"


@pytest.mark.parametrize(
    "target",
    [b"/etc/passwd", b"../outside", b"/proc/self/root/etc/passwd", b"d/../../outside", b"/"],
)
def test_links_that_lead_outside_are_refused(
    both: tuple[Workspace, Somebody], target: bytes, tmp_path: Path
) -> None:
    workspace, somebody = both
    (tmp_path / "outside").write_text("secret")
    somebody.folder("d")
    somebody.link("l", target)
    for refused in (workspace.read, workspace.open, workspace.resolve, workspace.mtime):
        with pytest.raises(InvalidPath):
            refused("l")
    with pytest.raises(InvalidPath):
        workspace.read("l/x")
    assert state(workspace, "l") == link_to(target)


def test_links_in_a_circle_are_refused(both: tuple[Workspace, Somebody]) -> None:
    workspace, somebody = both
    somebody.link("a", b"b")
    somebody.link("b", b"a")
    for refused in (workspace.read, workspace.resolve):
        with pytest.raises(InvalidPath):
            refused("a")


def test_resolving_leaves_what_is_not_there_as_written(both: tuple[Workspace, Somebody]) -> None:
    workspace, somebody = both
    somebody.folder("d")
    somebody.link("l", b"d")
    somebody.link("dangling", b"d/new.txt")
    assert workspace.resolve("l/new/file.txt") == "d/new/file.txt"
    assert workspace.resolve("dangling") == "d/new.txt"
    assert workspace.resolve("x/y") == "x/y"
    assert workspace.resolve("") == ""


def test_a_list_is_sorted_and_has_stamps(both: tuple[Workspace, Somebody]) -> None:
    workspace, somebody = both
    somebody.write("b", b"12", 0o600)
    somebody.folder("a", 0o700)
    somebody.link("c", b"b")
    somebody.write(ODD, b"")
    listed = dict(workspace.list())
    assert [name for name, _ in workspace.list()] == sorted(["a", "b", "c", ODD])
    assert stat.S_IMODE(listed["b"].mode) == 0o600 and listed["b"].size == 2
    assert stat.S_ISLNK(listed["c"].mode)
    assert listed["a"] == (stat.S_IFDIR | 0o700, 0, 0, 0, listed["a"].ino)
    with pytest.raises(InvalidPath):
        workspace.list("b")
    with pytest.raises(FileNotFound):
        workspace.list("gone")


def test_a_walk_has_parents_first_and_only_what_is_in_scope(
    both: tuple[Workspace, Somebody],
) -> None:
    workspace, somebody = both
    for path in (".git", "src", "src/deep", "node_modules", "empty", "src/.git"):
        somebody.folder(path)
    for path in (".git/config", "src/a.py", "src/deep/" + ODD, "node_modules/x", "b.log"):
        somebody.write(path, b"x")
    somebody.write(TEMPORARY + "1", b"x")
    somebody.link("to", b"src")
    walked = [path for path, _ in workspace.walk(Scope(ignore="*.log\n"), {})]
    expected = {"src", "src/a.py", "src/deep", "src/deep/" + ODD, "empty", "to"}
    assert set(walked) == expected
    assert len(walked) == len(expected)
    for path in walked:
        above = path.rpartition("/")[0]
        assert not above or walked.index(above) < walked.index(path)
    assert {path for path, _ in workspace.walk(Scope(), {}, "src")} == {
        path for path in expected if path.startswith("src/")
    }
    known = {"b.log": 1, "node_modules": 1, "node_modules/x": 1}
    walked = [path for path, _ in workspace.walk(Scope(ignore="*.log\n"), known)]
    # a folder out of scope is not entered, though a file of its name was recorded once
    assert set(walked) == {*expected, "b.log"}
    assert not list(workspace.walk(Scope(), {}, "gone"))


def look(workspace: Workspace) -> Stamps:
    """What a walk says, all of it settled."""
    known = Stamps()
    for path, stamp in workspace.walk(Scope(), {}):
        assert isinstance(stamp, Stamp)
        known[path] = stamp
    return known


def test_differences_name_what_is_not_as_it_was_and_nothing_else(
    both: tuple[Workspace, Somebody], monkeypatch: pytest.MonkeyPatch
) -> None:
    workspace, somebody = both
    real = time.time_ns
    monkeypatch.setattr(time, "time_ns", lambda: real() + 10_000_000_000)
    for path in ("kept", "kept/deep", "emptied", "gone", "gone/deep", "was a folder"):
        somebody.folder(path)
    for path in ("a", "kept/a", "kept/b", "kept/deep/" + ODD, "emptied/a", "gone/deep/a", "was"):
        somebody.write(path, b"x")
    somebody.link("to", b"a")
    known = look(workspace)
    assert set(known) == {path for path, _ in workspace.walk(Scope(), {})}
    assert [*workspace.differences(Scope(), known)] == []

    somebody.write("a", b"longer")
    somebody.write("kept/new", b"x")
    for path in ("emptied/a", "gone/deep/a", "gone/deep", "gone", "was a folder", "was", "to"):
        somebody.remove(path)
    somebody.folder("was")
    somebody.write("was a folder", b"x")
    somebody.link("to", b"b")
    found = [*workspace.differences(Scope(), known)]
    assert dict(found) == {
        **{path: workspace.stamp(path) for path in ("a", "kept/new", "was", "was a folder", "to")},
        **dict.fromkeys(("emptied/a", "gone", "gone/deep", "gone/deep/a")),
    }
    assert len(found) == len(dict(found))

    known = look(workspace)
    out = dict(workspace.differences(Scope(ignore="kept/\na\n"), known))
    kept = out.pop("kept")
    assert isinstance(kept, Stamp) and stat.S_IFMT(kept.mode) == OPAQUE
    assert out == dict.fromkeys(path for path in known if path.startswith("kept/"))


def test_differences_list_what_is_left_out_with_its_identity(
    both: tuple[Workspace, Somebody],
) -> None:
    workspace, somebody = both
    for path in ("pkg", "pkg/node_modules", "pkg/node_modules/venv", "out", ".git", ODD):
        somebody.folder(path)
    for path in ("tree", f"{ODD}/venv", TEMPORARY + "1", "linked", "fine"):
        somebody.folder(path)
    for path in ("tree/.git", "pkg/venv", "file.out", TEMPORARY + "2", "out/x"):
        somebody.write(path, b"x")
    somebody.link("linked/.git", b"../.git")
    scope = Scope(ignore="out/\n*.out\n")
    listed = {"pkg/node_modules", "out", ".git", f"{ODD}/venv", "tree/.git", "linked/.git"}
    known = Stamps()

    def listing() -> dict[str, Stamp]:
        files: LeftOutFiles = {}
        found = dict(workspace.differences(scope, Stamps(), files))
        assert files == {("", "ignored"): (1, 1)}
        opaque = {
            path: stamp
            for path, stamp in found.items()
            if isinstance(stamp, Stamp) and stat.S_IFMT(stamp.mode) == OPAQUE
        }
        assert not {path for path in found if path.startswith(tuple(f"{o}/" for o in listed))}
        return opaque

    first = listing()
    assert first.keys() == listed
    assert len({*first.values()}) == len(listed)
    for path, stamp in first.items():
        assert stamp[:4] == opaque_stamp(workspace.identity(path), 0)[:4]
        known[path] = stamp
    somebody.write("out/y", b"y")
    somebody.folder("pkg/node_modules/new")
    assert listing() == first
    assert not dict(workspace.differences(scope, known)).keys() & listed
    somebody.remove(".git")
    somebody.folder(".git")
    somebody.remove("pkg")
    somebody.folder("fine/venv")
    now = listing()
    assert now.keys() == listed - {"pkg/node_modules"} | {"fine/venv"}
    same = {path for path in now.keys() & first.keys() if now[path] == first[path]}
    assert same == listed - {"pkg/node_modules", ".git"}
    changed = dict(workspace.differences(scope, known))
    assert changed["pkg/node_modules"] is None and changed[".git"] == now[".git"]


def test_a_folder_is_renamed_when_it_is_the_one_and_only_to_an_absent_name(
    both: tuple[Workspace, Somebody],
) -> None:
    workspace, somebody = both
    for path in ("lib", "lib/deep", "taken", "sub"):
        somebody.folder(path)
    somebody.write("lib/deep/x", b"x")
    identity = workspace.identity("lib")
    for target, known in ((".git", "0" * 32), ("sub/.git", ""), ("taken", identity)):
        with pytest.raises(Conflict):
            workspace.rename("lib", target, known)
    assert workspace.read("lib/deep/x") == b"x"
    assert workspace.renames_folders() != workspace_is_portable(workspace)
    if workspace_is_portable(workspace):
        with pytest.raises(Conflict):
            workspace.rename("lib", "sub/.git", identity)
        return
    with pytest.raises(FileNotFound):
        workspace.rename("lib", "absent/lib", identity)
    workspace.rename("lib", "sub/.git", identity)
    assert workspace.identity("sub/.git") == identity and workspace.stamp("lib") is None
    workspace.rename("sub/.git", "node_modules", identity)
    assert workspace.read("node_modules/deep/x") == b"x"


def workspace_is_portable(workspace: Workspace) -> bool:
    """Whether it has none of the calls that only some kernels have."""
    return isinstance(workspace, DiskWorkspace) and not workspace._beneath.calls.renameat2


def test_stamps_know_each_path_as_one_kind() -> None:
    known = Stamps()
    file, other = Stamp(stat.S_IFREG, 1, 2, 3, 4), Stamp(stat.S_IFREG, 5, 6, 7, 8)
    directory = Stamp(stat.S_IFDIR, 0, 0, 0, 0)
    for path, stamp in (("a", file), ("a", directory), ("a/b", other), ("a/c", file), ("", file)):
        known[path] = stamp
    assert sorted(known) == ["", "a", "a/b", "a/c"]
    assert known.get("a") == directory and known.get("a/b") == other
    known["a"] = file
    for path in ("a/b", "a/c", "", "never", "never/there"):
        known.forget(path)
    assert [*known] == ["a"] and known.get("a") == file
    assert "a/b" not in known and "a" in known


def test_the_store_and_other_workspaces_inside_are_neither_recorded_nor_written(
    kind: str, tmp_path: Path
) -> None:
    root = tmp_path / "ws"
    workspace, somebody = make(kind, root, (str(root / "sub/store"), str(tmp_path / "else")))
    somebody.folder("sub")
    somebody.folder("sub/store")
    somebody.write("sub/store/audit.db", b"x")
    found = dict(workspace.walk(Scope(), {}))
    assert found["sub/store"] == "store"
    assert set(found) == {"sub", "sub/store"}
    with pytest.raises(InvalidPath, match="store"):
        put(workspace, "sub/store/audit.db", None, None)


def test_a_stamp_stays_until_something_changes(both: tuple[Workspace, Somebody]) -> None:
    workspace, somebody = both
    somebody.write("a", b"one")
    before = workspace.stamp("a")
    assert before is not None
    somebody.write("a", b"two")
    assert workspace.stamp("a") != before
    somebody.folder("d")
    assert workspace.stamp("d") == workspace.stamp("d")


# --- replacing ----------------------------------------------------------------------------


STATES: list[tuple[FileState | None, bytes | None]] = [
    (None, None),
    (of(b"new"), b"new"),
    (of(b"other", 0o4755), b"other"),
    (of(b""), b""),
    (link_to(b"x/y"), b"x/y"),
    (link_to(b"caf\xe9"), b"caf\xe9"),
    (folder(0o700), None),
    (folder(0o1777), None),
]


def establish(somebody: Somebody, path: str, what: FileState | None, data: bytes | None) -> None:
    if what is None:
        return
    if what.kind == "directory":
        somebody.folder(path, what.mode)
    elif what.kind == "symlink":
        somebody.link(path, data or b"")
    else:
        somebody.write(path, data or b"", what.mode)


@pytest.mark.parametrize("after", range(len(STATES)))
@pytest.mark.parametrize("before", range(len(STATES)))
def test_any_state_replaces_any_other_and_is_put_back(
    both: tuple[Workspace, Somebody], before: int, after: int
) -> None:
    workspace, somebody = both
    somebody.folder("d")
    old, old_data = STATES[before]
    new, data = STATES[after]
    for path in ("d/x", "y"):
        establish(somebody, path, old, old_data)
        displaced = put(workspace, path, old, new, data)
        assert state(workspace, path) == new
        assert displaced.state == old
        if old and old.kind != "directory":
            with displaced.open() as stream:
                assert stream.read() == old_data
        else:
            with pytest.raises(FileNotFound):
                displaced.open()
        displaced.put_back()
        assert state(workspace, path) == old
        assert displaced.state == old
        displaced = put(workspace, path, old, new, data)
        assert displaced.state == old
        displaced.discard()
        assert state(workspace, path) == new
    assert workspace.leftovers() == []
    assert set(tree(workspace)) == {"d"} | ({"d/x", "y"} if new else set())


@pytest.mark.parametrize("mode", [0o000, 0o400, 0o600, 0o644, 0o755, 0o2755, 0o4755, 0o1644])
def test_the_mode_is_exact_whatever_the_umask(both: tuple[Workspace, Somebody], mode: int) -> None:
    workspace, _ = both
    old = os.umask(0o077)
    try:
        put(workspace, "f", None, of(b"x", mode), b"x").discard()
        put(workspace, "d", None, folder(mode)).discard()
    finally:
        os.umask(old)
    for path in ("f", "d"):
        stamp = workspace.stamp(path)
        assert stamp is not None and stat.S_IMODE(stamp.mode) == mode


def test_a_change_of_mode_alone_keeps_the_inode_and_its_time(
    both: tuple[Workspace, Somebody],
) -> None:
    workspace, somebody = both
    somebody.write("f", b"x", 0o644)
    before = workspace.stamp("f")
    displaced = put(workspace, "f", of(b"x"), of(b"x", 0o600), b"x")
    after = workspace.stamp("f")
    assert before is not None and after is not None
    assert (after.ino, after.mtime_ns) == (before.ino, before.mtime_ns)
    assert stat.S_IMODE(after.mode) == 0o600
    assert displaced.state == of(b"x") and displaced.links == 1
    displaced.put_back()
    assert state(workspace, "f") == of(b"x")
    put(workspace, "f", of(b"x"), of(b"x"), b"x").discard()
    same = workspace.stamp("f")
    assert same is not None and (same.ino, same.mtime_ns) == (before.ino, before.mtime_ns)


def test_a_change_of_mode_finds_out_that_the_content_is_another(
    both: tuple[Workspace, Somebody],
) -> None:
    workspace, somebody = both
    somebody.write("f", b"theirs")
    displaced = put(workspace, "f", of(b"x"), of(b"x", 0o600), b"x")
    assert displaced.state == of(b"theirs")
    displaced.put_back()
    assert state(workspace, "f") == of(b"theirs")


def test_a_folder_that_is_not_empty_stays(both: tuple[Workspace, Somebody]) -> None:
    workspace, somebody = both
    somebody.folder("d")
    somebody.write("d/theirs", b"x")
    for after, data in ((None, None), (of(b"x"), b"x"), (link_to(b"x"), b"x")):
        with pytest.raises(Conflict):
            put(workspace, "d", folder(), after, data)
    assert tree(workspace) == {"d": folder(), "d/theirs": of(b"x")}
    assert workspace.leftovers() == []


def test_nothing_is_put_back_over_an_edit_of_the_replacement(
    both: tuple[Workspace, Somebody],
) -> None:
    workspace, somebody = both
    somebody.write("f", b"first")
    displaced = put(workspace, "f", of(b"first"), of(b"ours"), b"ours")
    somebody.remove("f")
    somebody.write("f", b"theirs")
    with pytest.raises(Conflict):
        displaced.put_back()
    assert workspace.read("f") == b"theirs"
    with displaced.open() as stream:
        assert stream.read() == b"first"
    displaced.discard()
    assert workspace.leftovers() == []


def test_an_edit_in_place_of_the_replacement_is_seen_too(
    both: tuple[Workspace, Somebody],
) -> None:
    workspace, somebody = both
    displaced = put(workspace, "f", None, of(b"ours"), b"ours")
    somebody.write("f", b"longer than ours")
    with pytest.raises(Conflict):
        displaced.put_back()
    assert workspace.read("f") == b"longer than ours"


def test_what_somebody_made_where_we_deleted_stays(both: tuple[Workspace, Somebody]) -> None:
    workspace, somebody = both
    somebody.write("f", b"x")
    somebody.folder("d")
    file, directory = put(workspace, "f", of(b"x"), None), put(workspace, "d", folder(), None)
    somebody.write("f", b"theirs")
    somebody.write("d", b"theirs")
    for displaced in (file, directory):
        with pytest.raises(Conflict):
            displaced.put_back()
    assert workspace.read("f") == workspace.read("d") == b"theirs"


def test_a_folder_we_made_stays_when_somebody_put_something_in(
    both: tuple[Workspace, Somebody],
) -> None:
    workspace, somebody = both
    displaced = put(workspace, "d", None, folder())
    somebody.write("d/theirs", b"x")
    with pytest.raises(Conflict):
        displaced.put_back()
    assert tree(workspace) == {"d": folder(), "d/theirs": of(b"x")}
    assert workspace.leftovers() == []


def test_content_that_is_not_what_it_should_be_is_not_written(
    both: tuple[Workspace, Somebody],
) -> None:
    workspace, somebody = both
    somebody.write("f", b"x")
    for path, after in (("f", of(b"right")), ("g", of(b"right")), ("h", link_to(b"right"))):
        with pytest.raises(Corrupt):
            put(workspace, path, None, after, b"wrong")
    assert tree(workspace) == {"f": of(b"x")}
    assert workspace.leftovers() == []


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("", InvalidPath),
        (".git", InvalidPath),
        (".git/config", InvalidPath),
        ("sub/.git/hooks/pre-commit", InvalidPath),
        ("../x", InvalidPath),
        ("a//b", InvalidPath),
        ("/x", InvalidPath),
        (TEMPORARY + "x", InvalidPath),
        ("n" * 256, InvalidPath),
        ("gone/x", FileNotFound),
        ("file/x", InvalidPath),
        ("link/x", InvalidPath),
    ],
)
def test_what_may_not_be_written_is_refused(
    both: tuple[Workspace, Somebody], path: str, error: type[AuditError]
) -> None:
    workspace, somebody = both
    somebody.folder("d")
    somebody.link("link", b"d")
    somebody.write("file", b"x")
    before = tree(workspace)
    for after, data in ((of(b"x"), b"x"), (folder(), None), (link_to(b"x"), b"x")):
        with pytest.raises(error):
            put(workspace, path, None, after, data)
        steps = [Replacement(FileChange(path, None, after), lambda: io.BytesIO(b"x"))]
        with pytest.raises(error):
            workspace.replace_all(steps)
    assert tree(workspace) == before
    assert workspace.leftovers() == []


def test_git_may_be_read(both: tuple[Workspace, Somebody]) -> None:
    workspace, somebody = both
    somebody.folder(".git")
    somebody.write(".git/config", b"[core]")
    assert workspace.read(workspace.relative(".git/config")) == b"[core]"


def test_leftovers_are_found_anywhere(both: tuple[Workspace, Somebody]) -> None:
    workspace, somebody = both
    somebody.folder("node_modules")
    somebody.write("node_modules/" + TEMPORARY + "1", b"x")
    somebody.folder(TEMPORARY + "2")
    somebody.link(TEMPORARY + "3", b"x")
    somebody.write("f", b"x")
    left = workspace.leftovers()
    assert sorted(left) == sorted(
        ["node_modules/" + TEMPORARY + "1", TEMPORARY + "2", TEMPORARY + "3"]
    )


def test_what_was_displaced_is_a_leftover_until_discarded(
    both: tuple[Workspace, Somebody],
) -> None:
    workspace, somebody = both
    somebody.write("f", b"old")
    displaced = put(workspace, "f", of(b"old"), of(b"new"), b"new")
    [left] = workspace.leftovers()
    assert workspace.read(left) == b"old"
    displaced.discard()
    assert workspace.leftovers() == []


def test_whether_case_is_folded_is_known(both: tuple[Workspace, Somebody]) -> None:
    workspace, somebody = both
    somebody.write("Aa", b"x")
    assert workspace.folds_case() == (workspace.stamp("aA") is not None)


# --- many at once -------------------------------------------------------------------------


def steps_to(
    old: dict[str, tuple[FileState, bytes | None]], new: dict[str, tuple[FileState, bytes | None]]
) -> list[Replacement]:
    steps = []
    for path in sorted(old.keys() | new.keys()):
        before, after = old.get(path), new.get(path)
        if before == after:
            continue
        change = FileChange(path, before[0] if before else None, after[0] if after else None)
        data = after[1] if after else None
        steps.append(Replacement(change, None if data is None else partial(io.BytesIO, data)))
    return steps


NAMES = st.sampled_from(["a", "b", "a/c", "a/d", "a/c/e", "b/f", ODD, "b/" + ODD])
ENTRIES = st.sampled_from([(state, data) for state, data in STATES if state is not None])


@st.composite
def trees(draw: st.DrawFn) -> dict[str, tuple[FileState, bytes | None]]:
    chosen = draw(st.dictionaries(NAMES, ENTRIES, max_size=8))
    for path in sorted(chosen):
        above = path.rpartition("/")[0]
        if above and (above not in chosen or chosen[above][0].kind != "directory"):
            chosen[above] = (folder(draw(st.sampled_from([0o755, 0o700, 0o555]))), None)
    whole = dict(chosen)
    for path in sorted(chosen):
        above = path.rpartition("/")[0]
        if above and (above not in whole or whole[above][0].kind != "directory"):
            whole[above] = (folder(), None)
    for path in list(whole):
        above = path.rpartition("/")[0]
        top = above.rpartition("/")[0]
        if top and (top not in whole or whole[top][0].kind != "directory"):
            whole[top] = (folder(), None)
    return whole


def establish_tree(somebody: Somebody, entries: dict[str, tuple[FileState, bytes | None]]) -> None:
    for path in sorted(entries):
        what, data = entries[path]
        establish(somebody, path, folder() if what.kind == "directory" else what, data)
    for path in sorted(entries, reverse=True):
        if entries[path][0].kind == "directory":
            somebody.chmod(path, entries[path][0].mode)


@pytest.mark.parametrize("kind", KINDS)
@given(old=trees(), new=trees(), back=st.booleans())
def test_one_tree_becomes_another_and_is_put_back(
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    old: dict[str, tuple[FileState, bytes | None]],
    new: dict[str, tuple[FileState, bytes | None]],
    back: bool,
) -> None:
    root = tmp_path_factory.mktemp("trees")
    try:
        workspace, somebody = make(kind, root / "ws")
        establish_tree(somebody, old)
        steps = steps_to(old, new)
        displaced = workspace.replace_all(steps)
        assert tree(workspace) == {path: entry[0] for path, entry in new.items()}
        for step, each in zip(steps, displaced, strict=True):
            assert each.state == step.change.before
        if back:
            order = sorted(
                zip(steps, displaced, strict=True), key=lambda pair: rank(pair[0]), reverse=True
            )
            for _, each in order:
                each.put_back()
            assert tree(workspace) == {path: entry[0] for path, entry in old.items()}
        else:
            for each in displaced:
                each.discard()
            assert workspace.leftovers() == []
    finally:
        shutil.rmtree(root, ignore_errors=True)


def rank(step: Replacement) -> tuple[int, int]:
    """The order in which the contract says that steps are done."""
    change, depth = step.change, step.change.path.count("/")
    if change.after is None:
        gone_folder = change.before is not None and change.before.kind == "directory"
        return (1, -depth) if gone_folder else (0, 0)
    return (2, depth) if change.after.kind == "directory" else (3, 0)


def test_a_batch_that_fails_says_where_and_hands_over_what_it_did(
    both: tuple[Workspace, Somebody],
) -> None:
    workspace, somebody = both
    somebody.write("a", b"old")
    somebody.folder("d")
    somebody.write("d/theirs", b"x")
    steps = [
        Replacement(FileChange("a", of(b"old"), None)),
        Replacement(FileChange("d", folder(), None)),
        Replacement(FileChange("z", None, of(b"z")), lambda: io.BytesIO(b"z")),
    ]
    done: dict[int, Displaced] = {}
    with pytest.raises(Conflict) as caught:
        workspace.replace_all(steps, done)
    assert caught.value.details["path"] == "d"
    assert caught.value.details["done"] == 1
    assert set(tree(workspace)) == {"d", "d/theirs"}
    assert done[0].state == of(b"old")
    done[0].put_back()
    assert tree(workspace) == {"a": of(b"old"), "d": folder(), "d/theirs": of(b"x")}
    assert workspace.leftovers() == []


def test_the_same_path_twice_is_refused(both: tuple[Workspace, Somebody]) -> None:
    workspace, _ = both
    step = Replacement(FileChange("a", None, of(b"x")), lambda: io.BytesIO(b"x"))
    with pytest.raises(InvalidPath):
        workspace.replace_all([step, step])
    assert tree(workspace) == {}
    assert workspace.leftovers() == []


def test_a_replacement_without_steps_does_nothing(both: tuple[Workspace, Somebody]) -> None:
    assert both[0].replace_all([]) == []
