"""Logs of any length, made in large appends: every call changes one file of 20,000."""

import hashlib
from collections.abc import Iterator
from pathlib import Path

from benchmarks.projects import name, new_store
from loom_audit.api.face import AuditedWorkspace, AuditStore
from loom_audit.model.events import (
    BaselineFinished,
    CallFinished,
    CallRequested,
    ChangeIntended,
    Draft,
    FilesChanged,
    SessionEnded,
    SessionStarted,
)
from loom_audit.model.files import BlobId, FileChange, FileState, parents

PATHS = 20_000
CONTENTS = 2_000
AT_ONCE = 2_000


def new_log(folder: Path, events: int) -> tuple[AuditStore, AuditedWorkspace]:
    """A store with a log of at least so many events, over an empty directory."""
    work = folder / "work"
    work.mkdir(parents=True)
    store = new_store(folder / "store")
    log = store.adapters.attach(work, ignore="", max_file_bytes=None).stored.log
    workspace = store.workspace(log.id)
    states = [_put(workspace, n) for n in range(CONTENTS)]
    held = {name(n): states[n % CONTENTS] for n in range(PATHS)}
    folders = sorted({folder for path in held for folder in parents(path)})
    listed = {folder: FileState("directory", None, 0o755, 0) for folder in folders} | held
    changes = tuple(FileChange(path, None, state) for path, state in listed.items())
    log.append([Draft(FilesChanged(changes, "baseline"), "", "outside")])
    log.append([Draft(BaselineFinished(PATHS, 0), "", "outside")])
    drafts: list[Draft] = []
    for draft in _calls(held, states):
        drafts.append(draft)
        if len(drafts) >= AT_ONCE:
            head = log.append(drafts)[-1].seq
            drafts = []
            if head >= events:
                break
    return store, workspace


def _put(workspace: AuditedWorkspace, n: int) -> FileState:
    data = b"".join(hashlib.sha256(b"%d %d" % (n, line)).hexdigest().encode() for line in range(4))
    return FileState("file", BlobId(workspace.blobs.put(data)), 0o644, len(data))


def _calls(held: dict[str, FileState], states: list[FileState]) -> Iterator[Draft]:
    paths = [*held]
    n = 0
    while True:
        session = f"session{n // 1000}"
        if n % 1000 == 0:
            if n:
                yield Draft(SessionEnded(), f"session{n // 1000 - 1}", "agent:benchmark")
            yield Draft(SessionStarted("benchmark"), session, "agent:benchmark")
        path = paths[n * 7919 % PATHS]
        before = held[path]
        after = states[n * 31 % CONTENTS]
        change = (FileChange(path, before, after),)
        held[path] = after
        arguments = {"path": path, "content": {"size": after.size}}
        for fact in (
            CallRequested(f"{n:032x}", "write_file", arguments, "write"),
            ChangeIntended(f"{n:032x}", change),
            FilesChanged(change, "tool", f"{n:032x}"),
            CallFinished(
                f"{n:032x}",
                "write_file",
                "write",
                "ok",
                {"success": True, "output": f"Wrote {path}", "files_changed": [path]},
            ),
        ):
            yield Draft(fact, session, "agent:benchmark")
        n += 1
