"""Connecting a client: our hook in its settings, and out of them again."""

import errno
import hashlib
import math
import os
import shutil
import time
from collections.abc import Callable, Sequence
from datetime import datetime
from pathlib import Path

import msgspec
from msgspec import Struct

from loom_audit.api.agents.finding import folder_of
from loom_audit.api.workspace import AuditedWorkspace
from loom_audit.clients import settings
from loom_audit.clients.known import CLIENTS
from loom_audit.clients.programs import PROGRAMS
from loom_audit.clients.reports import Client
from loom_audit.errors import Conflict, InvalidArguments
from loom_audit.history.ground.attachment import CONNECT
from loom_audit.history.ground.writer import Writer
from loom_audit.history.record.drift import record_drift
from loom_audit.wiring.files import audit_errors

_KEPT = "connected"
MOST_TIMES = 100
"""The number of the newest times a client was connected that are kept."""

_MARK = b"# loom-audit connect\n"


class Change(Struct, frozen=True):
    """A settings file as it is and as it would be; None for absent. `path` leads behind links."""

    client: str
    path: Path
    before: bytes | None
    after: bytes | None


class Kept(Struct, frozen=True):
    """What a settings file was before we were in it, and the hash of what we made of it.

    `made` are the folders that were made for it. It runs our hook `since` then, in seconds of 1970;
    0 where that was not kept.
    """

    path: str
    before: bytes | None
    after: str
    made: tuple[str, ...] = ()
    since: float = 0.0


def installed_clients() -> Sequence[str]:
    """The clients whose program or settings this user has."""
    return [
        name
        for name, client in CLIENTS.items()
        if is_on_path(name)
        or settings_file(name, None).parent.is_dir()
        or folder_of(client.place).is_dir()
    ]


def is_on_path(client: str) -> bool:
    """Whether the client can be started by its name in this shell."""
    return shutil.which(PROGRAMS[client]) is not None


def is_linked_worktree(root: str) -> bool:
    """Whether a folder is, or is in, a worktree of a git repository whose main folder is another.

    Its `.git` is a file, and the folder that this names has a `commondir` (gitrepository-layout).
    """
    _, git = _git_of(Path(root))
    return git is not None and (git / "commondir").is_file()


def settings_file(client: str, root: str | None) -> Path:
    """The file that is changed: a project's own, uncommitted one, or without `root` the user's."""
    place = CLIENTS[client].place
    return folder_of(place) / place.user if root is None else Path(root) / place.local


def plugin_of(client: Client, words: Sequence[str]) -> bytes:
    """The plugin that runs these words, for a client that takes our hooks so."""
    source = Path(settings.__file__).with_name(client.place.plugin).read_text("utf-8")
    return settings.plugin(source, words).encode()


def connecting(client: str, path: Path, words: Sequence[str]) -> Change:
    """The change after which the client runs these words. InvalidArguments, StorageFailed.

    `before` and `after` are the same when it runs them already.
    """
    known, (real, before) = CLIENTS[client], _read(path)
    if known.place.plugin:
        return Change(client, real, before, plugin_of(known, words))
    return _changed(client, real, before, lambda text: settings.connected(known, text, words))


def disconnecting(client: str, path: Path, hooks: Path) -> Change:
    """The change after which the client does not run our hook any more.

    A file that is as we left it becomes what it was; of another only ours is taken out.
    """
    real, before = _read(path)
    kept = _kept(hooks, real)
    if before is not None and kept is not None and kept.after == _hash(before):
        return Change(client, real, before, kept.before)
    if CLIENTS[client].place.plugin:
        return Change(client, real, before, None)
    return _changed(client, real, before, settings.disconnected)


def carry_out(change: Change, hooks: Path, *, connect: bool) -> None:
    """Write the file whole, with its mode, and keep what it was. Conflict when it was changed."""
    file, kept = kept_file(hooks, change.path), _kept(hooks, change.path)
    with audit_errors(str(change.path)):
        made = _make_folders(change.path.parent) if change.after is not None else ()
        if connect and kept is None and change.after is not None:
            known = Kept(str(change.path), change.before, _hash(change.after), made, time.time())
        elif connect and kept is not None and change.after is not None:
            known = msgspec.structs.replace(kept, after=_hash(change.after))
        else:
            known = None
        if known is not None:
            file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _put(file, msgspec.json.encode(known), 0o600)
        try:
            _replace(change)
        except BaseException:
            if known is not None and kept is None:
                file.unlink(missing_ok=True)
            elif known is not None:
                _put(file, msgspec.json.encode(kept), 0o600)
            _remove_empty(made)
            raise
        if known is None:
            if kept is not None and kept.since:  # before it is forgotten that it was connected
                past = [*_past(hooks, change.path), (kept.since, time.time())]
                _put(_past_file(hooks, change.path), msgspec.json.encode(past[-MOST_TIMES:]), 0o600)
            file.unlink(missing_ok=True)
            _remove_empty(kept.made if kept else ())


def kept_file(hooks: Path, path: Path) -> Path:
    """Where it is kept what a settings file was, in the folder of `Settings.hooks`."""
    return hooks / _KEPT / _hash(os.fsencode(path))[:16]


def check_writable(file: Path) -> None:
    """Whether a file can be put at a path, with the folders above it; nothing is written.

    InvalidArguments, PermissionDenied, StorageFailed.
    """
    folder = next(one for one in file.parents if os.path.lexists(one))
    with audit_errors(str(folder)):
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def record_as_it_is(workspace: AuditedWorkspace) -> None:
    """Put on record what is on disk, so that no session counts as its author."""
    with workspace.attachment.exclusive():
        record_drift(workspace.attachment)


def record_written(workspace: AuditedWorkspace, change: Change) -> None:
    """Put on record that a person made a change by `connect`, where its file is in the workspace.

    What else was changed there has to be on record already.
    """
    root = Path(os.path.realpath(workspace.root))
    if change.before == change.after or not change.path.is_relative_to(root):
        return
    path = os.fsencode(change.path.relative_to(root)).decode("utf-8", "surrogateescape")
    with workspace.attachment.exclusive():
        record_drift(
            workspace.attachment,
            lambda one: one == path or path.startswith(f"{one}/"),
            writer=Writer(workspace.attachment, "", workspace.actor, CONNECT),
        )


def is_connected(client: str, path: Path) -> bool:
    """Whether the file runs our hook; False where it cannot be read."""
    try:
        return _runs_hook(path.read_bytes())
    except OSError:
        return False


def puts_hook_in(change: Change) -> bool:
    """Whether a file runs our hook after a change, and did not before."""
    return _runs_hook(change.after) and not _runs_hook(change.before)


def _runs_hook(content: bytes | None) -> bool:
    return content is not None and settings.HOOK_CLIENT.encode() in content


def connected_since(hooks: Path, path: Path) -> float:
    """Since when a settings file runs our hook, in seconds of 1970; 0 where that is not known."""
    kept = _kept(hooks, Path(os.path.realpath(path)))
    return kept.since if kept is not None else 0.0


def was_connected(
    hooks: Path, client: str, root: str, started: datetime, at: datetime
) -> bool | None:
    """Whether a client ran our hook in a folder at that time; None where that is not known.

    Its session `started` then: one that began outside of all times that are kept took our hooks in
    another way, as by `run`.
    """
    times = list[tuple[float, float]]()
    for place in (settings_file(client, root), settings_file(client, None)):
        real = Path(os.path.realpath(place))
        times += _past(hooks, real)
        kept, is_there = _kept(hooks, real), is_connected(client, place)
        if is_there != (kept is not None) or (kept is not None and not kept.since):
            return None  # a person put it there or took it out, or an earlier release did
        if kept is not None:
            times.append((kept.since, math.inf))

    def known(when: datetime) -> bool:
        return any(since <= when.timestamp() <= until for since, until in times)

    return known(at) or (False if known(started) else None)


def take_along(hooks: Path, old: str, new: str) -> None:
    """Keep what we know of a folder's settings under its new place. StorageFailed."""
    for client in CLIENTS:
        file = Path(os.path.realpath(settings_file(client, new)))
        before = settings_file(client, old)
        known, past = _kept(hooks, before), _past(hooks, before)
        with audit_errors(str(hooks)):
            if past:
                _put(_past_file(hooks, file), msgspec.json.encode(past), 0o600)
                _past_file(hooks, before).unlink(missing_ok=True)
        if known is None or not file.exists():
            continue
        moved, left = kept_file(hooks, file), kept_file(hooks, before)
        made = tuple(new + one.removeprefix(old) for one in known.made if one.startswith(old))
        with audit_errors(str(moved)):
            _put(
                moved,
                msgspec.json.encode(msgspec.structs.replace(known, path=str(file), made=made)),
                0o600,
            )
            left.unlink(missing_ok=True)


def leave_out_of_git(root: str, path: Path) -> bool:
    """Let git not see a project's own file: a line in `info/exclude`, which is not committed.

    Whether a line was added; none is where there is no repository, or it is there.
    """
    line, file = _exclude_line(root, path)
    if file is None:
        return False
    with audit_errors(str(file)):
        known = file.read_bytes() if file.exists() else b""
        if line in known.splitlines():
            return False
        file.parent.mkdir(exist_ok=True)
        end = b"" if not known or known.endswith(b"\n") else b"\n"
        _put(file, known + end + _MARK + line + b"\n", _mode(file))
    return True


def let_git_see(root: str, path: Path) -> None:
    """Take the line that hides a project's file out of `info/exclude`, where it is ours."""
    line, file = _exclude_line(root, path)
    if file is None or not file.exists():
        return
    with audit_errors(str(file)):
        known = file.read_bytes()
        kept = known.replace(_MARK + line + b"\n", b"")
        if kept != known:
            _put(file, kept, _mode(file))


def _mode(file: Path) -> int:
    return file.stat().st_mode & 0o777 if file.exists() else 0o644


def _exclude_line(root: str, path: Path) -> tuple[bytes, Path | None]:
    """The line for a file, and the file of the repository that holds the root where it belongs.

    Git looks for it in the common directory of all worktrees (gitrepository-layout).
    """
    folder, git = _git_of(Path(root))
    if git is None:
        return b"", None
    common = git / "commondir"
    if common.is_file():
        git = git / common.read_text("utf-8", "surrogateescape").strip()
    return b"/" + os.fsencode(path.relative_to(folder)), git / "info" / "exclude"


def _git_of(root: Path) -> tuple[Path, Path | None]:
    """The folder of the worktree that holds the root, and the folder of git that belongs to it."""
    for folder in (root, *root.parents):
        git = folder / ".git"
        if git.is_file():
            told = git.read_text("utf-8", "surrogateescape").removeprefix("gitdir:").strip()
            git = folder / told
        if git.is_dir():
            return folder, git
    return root, None


def _changed(client: str, path: Path, before: bytes | None, change: Callable[[str], str]) -> Change:
    text = (before or b"").decode("utf-8", "surrogateescape")
    try:
        changed = change(text)
    except InvalidArguments as error:
        error.message = f"{path}: {error.message}"
        error.hint = error.hint or "Mend this file first; nothing was changed."
        raise
    after = None if not changed else changed.encode("utf-8", "surrogateescape")
    return Change(client, path, before, before if changed == text else after)


def _read(path: Path) -> tuple[Path, bytes | None]:
    real = Path(os.path.realpath(path))
    with audit_errors(str(real)):
        return real, real.read_bytes() if os.path.lexists(real) else None


def _replace(change: Change) -> None:
    real, now = _read(change.path)
    if now != change.before:
        raise Conflict(f"{real} was changed by somebody else in this moment", hint="Try it again.")
    if change.after is None:
        real.unlink(missing_ok=True)
    elif change.after != now:
        mode = 0o600 if now is None else real.stat().st_mode & 0o7777
        _put(real, change.after, mode)


def _put(file: Path, content: bytes, mode: int) -> None:
    written = file.with_name(f".{file.name}.{os.getpid()}")
    try:
        with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as new:
            new.write(content)
            new.flush()
            os.fsync(new.fileno())
        written.chmod(mode)
        written.replace(file)
    finally:
        written.unlink(missing_ok=True)


def _make_folders(folder: Path) -> tuple[str, ...]:
    """The folders that were not there, outermost first, which are there now."""
    missing = [one for one in (folder, *folder.parents) if not one.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    return tuple(str(one) for one in reversed(missing))


def _remove_empty(folders: Sequence[str]) -> None:
    """Remove folders that are empty, of which the outermost is the first."""
    for folder in reversed(folders):
        if Path(folder).is_dir() and not os.listdir(folder):
            Path(folder).rmdir()


def _kept(hooks: Path, path: Path) -> Kept | None:
    try:
        kept = msgspec.json.decode(kept_file(hooks, path).read_bytes(), type=Kept)
    except (OSError, msgspec.DecodeError):
        return None
    return kept if kept.path == str(path) else None


def _past_file(hooks: Path, path: Path) -> Path:
    """Where it is kept when a settings file ran our hook, in times that are over."""
    return kept_file(hooks, path).with_suffix(".past")


def _past(hooks: Path, path: Path) -> Sequence[tuple[float, float]]:
    """From when until when, in seconds of 1970, oldest first."""
    try:
        kept = _past_file(hooks, path).read_bytes()
        return msgspec.json.decode(kept, type=list[tuple[float, float]])
    except (OSError, msgspec.DecodeError):
        return ()


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()
