"""Verifying a log against a bare loop that reads and hashes the same rows."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from benchmarks.events import new_log
from benchmarks.figures import Figure, Sizes, interleaved
from loom_audit.history.integrity import verify
from loom_audit.sql.engine import connect
from loom_audit.sql.evidence import open_evidence

EVENTS = "SELECT leaf, leaf_hash FROM event ORDER BY log, seq"
PAYLOADS = "SELECT salt, content FROM payload ORDER BY log, seq"
CONTENTS = "SELECT content FROM blob_content"


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    length = 20_000 if sizes.quick else 1_000_000 if sizes.huge else 100_000
    store, workspace = new_log(folder, length)
    path = folder / "store" / "audit.db"

    def whole(quick: bool) -> None:
        evidence = open_evidence(store.parts.database, workspace.id)
        try:
            found = verify(evidence, heads=[workspace.head()], quick=quick)
        finally:
            evidence.close()
        if not found.ok:
            raise SystemExit(f"verify found {found.findings[:3]}")

    times = interleaved(
        1 if sizes.huge else 3,
        {
            "ours": lambda: whole(quick=False),
            "bare": lambda: bare(path, EVENTS, PAYLOADS, CONTENTS),
            "ours, quick": lambda: whole(quick=True),
            "bare, quick": lambda: bare(path, EVENTS),
        },
    )
    store.close()
    for mode in ("", ", quick"):
        yield Figure(
            "verify",
            f"verify{' --quick' if mode else ''}, {length:,} events",
            times["ours" + mode],
            "ms",
            "read and hash the rows",
            times["bare" + mode],
            5.0,
        )


def bare(path: Path, *statements: str) -> bytes:
    """Read every row and hash what it holds."""
    connection = connect(str(path), "ro")
    last = b""
    try:
        for statement in statements:
            cursor = connection.execute(statement)
            while rows := cursor.fetchmany(256):
                for row in rows:
                    last = sha256(b"".join(part for part in row if part is not None)).digest()
    finally:
        connection.close()
    return last
