"""Peak memory of the main operations above that of the idle process, each in a new process."""

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from benchmarks.events import new_log
from benchmarks.figures import Figure, Sizes
from benchmarks.imports import write_transcript
from benchmarks.projects import content, fill, name, new_store
from loom_audit.api.agents.importing import import_file
from loom_audit.api.face import AuditStore, Session
from loom_audit.history.check.verification import verify
from loom_audit.sql.evidence.evidence import open_evidence

MEBIBYTE = 1024 * 1024


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    small, large = (1_000, 256) if sizes.quick else (10_000, 2048)
    length = 10_000 if sizes.quick else 1_000_000 if sizes.huge else 100_000
    for scenario, size, shown, most in (
        ("writing", 200, "200 write_file", None),
        ("baseline", small, f"baseline of {small:,} files", None),
        ("command", small, f"no-op shell_execute, {small:,} files", None),
        ("rollback", small, f"rollback of {small:,} files", None),
        ("tree", length, f"tree(point) of 20,000 paths, {length:,} events", None),
        ("verifying", length, f"verify of {length:,} events", None),
        ("importing", length, f"import of {length:,} calls", 128),
        ("capture", large, f"command that writes a file of {large:,} MiB", 64),
    ):
        place = folder / scenario
        if scenario in ("tree", "verifying"):
            new_log(place, length)[0].close()
        elif scenario == "importing":
            place.mkdir(parents=True)
            write_transcript(place / "session.jsonl", size)
        else:
            (place / "work").mkdir(parents=True)
            if scenario in ("baseline", "command", "rollback"):
                fill(place / "work", size)
        done = subprocess.run(
            [sys.executable, "-m", "benchmarks.memory", scenario, str(place), str(size)],
            stdout=subprocess.PIPE,
            check=True,
        )
        seen = json.loads(done.stdout)
        yield Figure(
            "memory",
            shown,
            seen["peak"] - seen["idle"],
            "MiB",
            most=most,
            note=f"above {seen['idle']:.0f} MiB of the idle process",
        )


# --- in the new process -------------------------------------------------------------------


def status(field: str) -> float:
    """A field of /proc/self/status in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) / 1024
    raise SystemExit(f"no {field} in /proc/self/status")


def _call(session: Session, tool: str, arguments: Mapping[str, object]) -> None:
    result = asyncio.run(session.call(tool, dict(arguments)))
    if not result.ok:
        raise SystemExit(result.output)


def _writing(place: Path, size: int) -> Callable[[AuditStore], None]:
    def work(store: AuditStore) -> None:
        with store.attach(place / "work").session("benchmark") as session:
            for n in range(size):
                text = content(n).decode("latin-1")
                _call(session, "write_file", {"path": name(n % 20), "content": text})

    return work


def _baseline(place: Path, size: int) -> Callable[[AuditStore], None]:
    def work(store: AuditStore) -> None:
        store.attach(place / "work")

    return work


def _command(place: Path, size: int) -> Callable[[AuditStore], None]:
    def work(store: AuditStore) -> None:
        with store.attach(place / "work").session("benchmark") as session:
            _call(session, "shell_execute", {"command": "true"})

    return work


def _rollback(place: Path, size: int) -> Callable[[AuditStore], None]:
    def work(store: AuditStore) -> None:
        workspace = store.attach(place / "work")
        first = workspace.log.head()
        with workspace.session("benchmark") as session, session.recording("fill"):
            fill(place / "work", size, 2)
        workspace.carry_out(workspace.plan_rollback(first))

    return work


def _capture(place: Path, size: int) -> Callable[[AuditStore], None]:
    def work(store: AuditStore) -> None:
        limit = 2 * size * MEBIBYTE
        workspace = store.attach(place / "work", max_file_bytes=limit)
        with workspace.session("benchmark") as session:
            command = f"head -c {size * MEBIBYTE} /dev/urandom > large.bin"
            _call(session, "shell_execute", {"command": command, "timeout": 300})
        state = workspace.timeline.state("large.bin")
        if state is None or state.blob is None or state.blob not in workspace.blobs:
            raise SystemExit("the file was not captured")

    return work


def _tree(place: Path, size: int) -> Callable[[AuditStore], None]:
    def work(store: AuditStore) -> None:
        [entry] = store.workspaces()
        store.workspace(entry.id).timeline.tree(size * 3 // 4)

    return work


def _importing(place: Path, size: int) -> Callable[[AuditStore], None]:
    def work(store: AuditStore) -> None:
        if import_file(store, place / "session.jsonl").calls != size:
            raise SystemExit("not every call was imported")

    return work


def _verifying(place: Path, size: int) -> Callable[[AuditStore], None]:
    def work(store: AuditStore) -> None:
        [entry] = store.workspaces()
        evidence = open_evidence(store.adapters.database, entry.id)
        try:
            if not verify(evidence).ok:
                raise SystemExit("verify found something")
        finally:
            evidence.close()

    return work


_SCENARIOS = {
    "writing": _writing,
    "baseline": _baseline,
    "command": _command,
    "rollback": _rollback,
    "tree": _tree,
    "importing": _importing,
    "verifying": _verifying,
    "capture": _capture,
}


def _main(scenario: str, place: Path, size: int) -> None:
    """Everything is imported and warm when the idle process is looked at."""
    spare = place / "spare"
    spare.mkdir()
    with new_store(place / "other") as store, store.attach(spare).session("warm") as session:
        _call(session, "write_file", {"path": "a", "content": "a"})
        _call(session, "shell_execute", {"command": "true"})
    work = _SCENARIOS[scenario](place, size)
    with new_store(place / "store") as store:
        Path("/proc/self/clear_refs").write_text("5")
        idle = status("VmRSS")
        work(store)
    print(json.dumps({"idle": idle, "peak": status("VmHWM")}))


if __name__ == "__main__":
    _main(sys.argv[1], Path(sys.argv[2]), int(sys.argv[3]))
