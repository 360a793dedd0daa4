"""Background commands of a session: their start and their end on record, and what they may write.

What one changes is found by the looks of others, as what any call left running does; of what is in
the folders that it may write it is a candidate, and of nothing else.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from stat import S_ISDIR

from msgspec.structs import replace

from loom_audit.errors import (
    AuditError,
    AuditUnavailable,
    Conflict,
    ExecutionFailed,
    FileNotFound,
    InvalidArguments,
    InvalidPath,
    NotADirectory,
    NotFound,
    NoWorkspace,
)
from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.ground.process_state import Backgrounds, KeptBackground
from loom_audit.history.ground.writer import Writer
from loom_audit.history.look.survivors import Running
from loom_audit.history.record.call import OpenCall, exclusive
from loom_audit.history.record.drift import record_drift
from loom_audit.history.record.looks import look_after, look_before
from loom_audit.history.record.watching import note_command
from loom_audit.model.backgrounds import BackgroundFinished, BackgroundStarted, WritableFolder
from loom_audit.model.files import is_directory, parents
from loom_audit.model.scope import NEVER
from loom_audit.ports import Background, BackgroundRunner, Command, EventFilter, Runner

MOST_RUNNING = 8
MOST_KNOWN = 24
"""The number of background commands that are known: the oldest that have ended are forgotten."""

MOST_FOLDERS = 16
OUTPUT_BYTES = 4096
"""The number of the last bytes of a command's output that go on record at its end."""


def start_background(
    call: OpenCall, runner: Runner, command: Command, writes: Sequence[str]
) -> KeptBackground:
    """Start a command that goes on when its call has ended, and that can write these folders.

    Conflict where nothing goes on between calls, and when too many run; ExecutionFailed;
    FileNotFound, NotADirectory, InvalidPath for a folder that it cannot be given.
    """
    attachment, kept = call.writer.attachment, _backgrounds(call.writer)
    if not isinstance(runner, BackgroundRunner):
        raise ExecutionFailed("No background commands can be run here")
    with exclusive(attachment):
        running = [name for name, one in kept.known.items() if not one.command.is_over]
        if len(running) >= MOST_RUNNING:
            raise Conflict(
                f"{MOST_RUNNING} background commands run already: {', '.join(running)}",
                hint="Stop one with bash_stop first.",
            )
        note_command(attachment)
        look_before(call.record)
        folders = dict(_writable_folders(attachment, writes))
        started = _start(attachment, runner, command, folders)
        one = KeptBackground(call.call_id, f"bg{kept.begun + 1}", started, tuple(folders))
        try:
            _let_be_candidate(call, one)
            call.record.commit(BackgroundStarted(one.call_id, one.name, one.writes))
        except BaseException:
            started.stop()
            look_after(call.record)  # what it did by then is the call's
            call.record.commit_and_index()
            raise
        kept.begun += 1
        kept.known[one.name] = one
        _forget_oldest(kept)
    # not before its start is on record
    started.tell_end(partial(_record_end, call.writer, one))
    call.sandbox = started.name
    return one


def _start(
    attachment: Attachment,
    runner: BackgroundRunner,
    command: Command,
    folders: Mapping[WritableFolder, int],
) -> Background:
    root = attachment.on_disk.workspace.root
    inodes = {f"{root}/{one.path}": inode for one, inode in folders.items()}
    held = replace(command, read_only=True, writable=(*command.writable, *inodes))
    return runner.start(root, held, inodes)


def _let_be_candidate(call: OpenCall, one: KeptBackground) -> None:
    """Let it be a candidate from now on. AuditUnavailable where that cannot be kept."""
    attachment = call.writer.attachment
    requested = attachment.stored.reading.call(*call.record.key).requested
    running = Running(attachment)
    # as one that was not seen yet: what it did since it began is found by the next look
    running.add(requested, {one.command.task: None})
    if requested not in running.kept():
        raise AuditUnavailable(
            "it cannot be kept that a background command runs",
            hint="Look whether the data folder can be written, with `loom-audit doctor`.",
        )
    call.record.lower_coverage(f"left running: {one.name}")


def _writable_folders(
    attachment: Attachment, writes: Sequence[str]
) -> Iterator[tuple[WritableFolder, int]]:
    """The folders, outermost only, with their inodes; each is one that is recorded."""
    workspace = attachment.on_disk.workspace
    if len(writes) > MOST_FOLDERS:
        raise InvalidArguments(f"writes names more than {MOST_FOLDERS} folders")
    paths = {workspace.relative(path): path for path in writes}
    for path, written in sorted(paths.items()):
        if flaw := _flaw(attachment, path):
            raise InvalidPath(
                f"A background command cannot be given {written}: {flaw}",
                hint="Name folders of the workspace that are on record, such as `logs`.",
                details={"path": written},
            )
        stamp = workspace.stamp(path)
        if stamp is None:
            raise FileNotFound(
                f"There is no folder {written} to write", hint=f"Make it first: `mkdir -p {path}`."
            )
        if not S_ISDIR(stamp.mode):
            raise NotADirectory(
                f"{written} is not a folder", hint="Name the folder that the file is to be in."
            )
        if not is_directory(attachment.stored.reading.state(path)):
            raise InvalidPath(
                f"A background command cannot be given {written}: what is in it is not recorded",
                hint="Let the command write into $TMPDIR or $SCRATCH_DIR instead.",
                details={"path": written},
            )
        if not any(above in paths for above in parents(path)):
            yield WritableFolder(path, workspace.identity(path)), stamp.ino


def _flaw(attachment: Attachment, path: str) -> str:
    """Why a path is not one of a folder to be written; empty when it may be."""
    workspace = attachment.on_disk.workspace
    if not path:
        return "it is the whole workspace"
    if not NEVER.isdisjoint(part.casefold() for part in path.split("/")):
        return "git runs what is in it"
    if workspace.resolve(path) != path:
        return "a link leads there"
    return "something else is mounted there" if workspace.is_mounted(path) else ""


# --- later calls --------------------------------------------------------------------------


def known_background(writer: Writer, name: str) -> KeptBackground:
    """The background command of that name of this session. NotFound, Conflict."""
    kept = _backgrounds(writer)
    if (one := kept.known.get(name)) is not None:
        return one
    names = [f"{n} ({'ended' if one.command.is_over else 'runs'})" for n, one in kept.known.items()]
    raise NotFound(
        f"This session has no background command {name}",
        hint=f"It has {', '.join(names)}." if names else "It has started none.",
    )


def joined_background(call: OpenCall, name: str) -> Background:
    """What runs the command of a call in the sandbox of a background command. NotFound, Conflict.

    The call changes what that may write, and nothing else.
    """
    one = known_background(call.writer, name)
    call.record.beside = one.call_id
    return one.command


def stop_background(call: OpenCall, name: str) -> KeptBackground:
    """Stop a background command, and put on record what it has changed since the last look."""
    one = known_background(call.writer, name)
    call.announce()
    if not one.command.is_over:
        one.how = "stopped"
        one.command.stop()
    with exclusive(call.writer.attachment):
        look_before(call.record)
    return one


def _backgrounds(writer: Writer) -> Backgrounds:
    kept = writer.attachment.process.backgrounds.get(writer.session)
    if kept is None:
        raise Conflict(
            "Nothing goes on here when a call has ended: the session ends with it",
            hint="Run the command with a `timeout`, or the server and what asks it in one command; "
            "`workspace.session(...)` and the MCP server keep background commands.",
        )
    return kept


def _forget_oldest(kept: Backgrounds) -> None:
    over = [name for name, one in kept.known.items() if one.command.is_over and one.is_recorded]
    for name in over[: max(0, len(kept.known) - MOST_KNOWN)]:
        del kept.known[name]


# --- the end ------------------------------------------------------------------------------


def keep_backgrounds(writer: Writer) -> None:
    """Let this session have background commands, until `end_backgrounds`."""
    writer.attachment.process.backgrounds[writer.session] = Backgrounds()


def end_backgrounds(writer: Writer) -> None:
    """Stop what still runs of a session, and put on record how it ended, and what it changed.

    AuditUnavailable when that cannot be put on record; nothing runs any more then, too.
    """
    attachment = writer.attachment
    kept = attachment.process.backgrounds.pop(writer.session, None)
    known = [] if kept is None else [*kept.known.values()]
    with attachment.stored.lock.uninterrupted(), ExitStack() as stopping:
        for one in known:
            if not one.command.is_over:
                one.how = "closed"
            if not one.is_recorded:
                # each, also where one cannot be; of one that has ended its own end may be about to
                # be recorded, which is waited for
                stopping.callback(one.command.stop)
    for one in known:
        if not one.is_recorded:
            _append_end(writer, one)
    if any(Running(attachment).kept()) and known:
        with suppress(NoWorkspace), exclusive(attachment):
            record_drift(attachment)


def _record_end(writer: Writer, one: KeptBackground) -> None:
    with suppress(AuditError):  # the session's end does it again, else recovery
        _append_end(writer, one)


def _append_end(writer: Writer, one: KeptBackground) -> None:
    printed, total = one.command.output(0)
    output = printed[-OUTPUT_BYTES:].decode("utf-8", "replace")
    writer.record(
        BackgroundFinished(one.call_id, one.name, one.how, one.command.exit_code, total, output)
    )
    one.is_recorded = True


def lost_ends(stored: StoredLog, session: str) -> list[BackgroundFinished]:
    """The ends of a session's background commands that its process did not live to record."""
    found: dict[tuple[str, str], BackgroundFinished] = {}
    kinds = (BackgroundStarted.kind, BackgroundFinished.kind)
    for event in stored.log.read(EventFilter(kinds=kinds, session=session)):
        match event.fact:
            case BackgroundStarted(call_id=call_id, name=name):
                found[call_id, name] = BackgroundFinished(call_id, name, "interrupted")
            case BackgroundFinished(call_id=call_id, name=name):
                found.pop((call_id, name), None)
    return [*found.values()]
