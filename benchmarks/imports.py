"""Importing a transcript, against appending the same events and contents in batches."""

import json
import statistics
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

from msgspec.structs import replace

from benchmarks.figures import Figure, Sizes, timed
from benchmarks.projects import content, name, new_store
from loom_audit.api.agents import importing
from loom_audit.api.agents.importing import import_file
from loom_audit.history.told.importing import Importing, ImportTarget
from loom_audit.model.events import Draft, Event
from loom_audit.model.files import BlobId

ROUNDS = 5
FILES = 300


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    calls = 300 if sizes.quick else 3000
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / "session.jsonl"
    write_transcript(file, calls)
    batches = _batches(folder / "captured", file)
    ours: list[float] = []
    theirs: list[float] = []
    for n in range(ROUNDS):
        with new_store(folder / f"ours{n}") as store:
            ours.append(timed(partial(import_file, store, file)))
        theirs.append(_append(folder / f"theirs{n}", batches))
    yield Figure(
        "imports",
        f"import of {calls:,} calls",
        statistics.median(ours) * 1000,
        "ms",
        "the same events and contents, appended in the same batches",
        statistics.median(theirs) * 1000,
        2,
        note=f"{file.stat().st_size / calls:,.0f} bytes a call",
    )


def write_transcript(file: Path, calls: int) -> None:
    """A transcript like those of Claude Code: reads, edits with whole contents, commands."""
    common = {
        "sessionId": "benchmark",
        "cwd": "/home/dev/shop",
        "version": "2.1.328",
        "isSidechain": False,
        "userType": "external",
        "gitBranch": "main",
    }
    versions: dict[int, int] = {}
    with file.open("w") as out:
        for n in range(calls):
            at = f"2026-11-22T{n // 3600 % 24:02}:{n // 60 % 60:02}:{n % 60:02}.000Z"
            tool, arguments, given = _call(n, versions)
            asked = {"type": "tool_use", "id": f"toolu_{n}", "name": tool, "input": arguments}
            ended = {"type": "tool_result", "tool_use_id": f"toolu_{n}", "content": "done"}
            for kind, block, more in (
                ("assistant", asked, {}),
                ("user", ended, {"toolUseResult": given}),
            ):
                message = {"role": kind, "content": [block]}
                record = {"type": kind, "uuid": f"{kind}{n}", "timestamp": at, "message": message}
                out.write(json.dumps({**record, **common, **more}) + "\n")


def _call(n: int, versions: dict[int, int]) -> tuple[str, dict[str, Any], dict[str, Any]]:
    if n % 5 in (0, 1):
        command = {"command": f"make test-{n}", "description": "run the tests"}
        return "Bash", command, {"stdout": "ok\n" * 50, "stderr": "", "interrupted": False}
    number = n * 7919 % FILES
    path = f"/home/dev/shop/{name(number)}"
    if n % 5 == 2:
        return "Read", {"file_path": path}, {"type": "text", "file": {"filePath": path}}
    version = versions.get(number, 0)
    versions[number] = version + 1
    before = content(number, version).decode("utf-8", "replace") if version else None
    after = content(number, version + 1).decode("utf-8", "replace")
    kind = "update" if version else "create"
    told = {"type": kind, "filePath": path, "content": after, "originalFile": before}
    return "Write", {"file_path": path, "content": after}, told


class _Batch:
    """What one transaction stored."""

    def __init__(self) -> None:
        self.contents: list[tuple[bytes, BlobId | None]] = []
        self.drafts: Sequence[Draft] = ()


class _Captured:
    """A log and the contents of its store, of which every write is kept."""

    def __init__(self, target: ImportTarget) -> None:
        self._log, self._blobs = target.log, target.blobs
        self.batches = [_Batch()]

    def append(self, drafts: Sequence[Draft]) -> Sequence[Event]:
        self.batches[-1].drafts = drafts
        self.batches.append(_Batch())
        return self._log.append(drafts)

    def put(self, raw: bytes, *, similar_to: BlobId | None = None) -> BlobId:
        self.batches[-1].contents.append((raw, similar_to))
        return self._blobs.put(raw, similar_to=similar_to)

    def get(self, blob: BlobId) -> bytes:
        return self._blobs.get(blob)

    def head(self) -> int:
        return self._log.head()


def _batches(folder: Path, file: Path) -> Sequence[_Batch]:
    """What an import of the file writes, transaction by transaction."""
    kept: list[_Captured] = []

    class Capturing(Importing):
        def __init__(self, target: ImportTarget, client: str, session: str) -> None:
            both: Any = _Captured(target)
            kept.append(both)
            super().__init__(replace(target, log=both, blobs=both), client, session)

    with patch.object(importing, "Importing", Capturing), new_store(folder) as store:
        import_file(store, file)
    return [batch for batch in kept[0].batches if batch.drafts]


def _append(folder: Path, batches: Sequence[_Batch]) -> float:
    with new_store(folder) as store:
        log = store.adapters.log(store.adapters.imported_log("import:/home/dev/shop"))
        blobs = store.adapters.blobs

        def work() -> None:
            for batch in batches:
                for raw, similar in batch.contents:
                    blobs.put(raw, similar_to=similar)
                log.append(batch.drafts)

        return timed(work)
