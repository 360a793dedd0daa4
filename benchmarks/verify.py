"""Verifying a log against a bare loop that reads and hashes the same rows."""

from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path

from benchmarks.events import new_log
from benchmarks.figures import Figure, Sizes, interleaved
from loom_audit.history.check.verification import verify
from loom_audit.model.files import BlobId
from loom_audit.model.stored.codec import MAX_LEAF
from loom_audit.ports import BlobStore
from loom_audit.sql.evidence.evidence import open_evidence
from loom_audit.sql.ground.driver import connect
from loom_audit.sql.ground.packing import unpack

FOLLOWING = ("file_change", "change_set", "call", "tree_entry", "path", "session")
"""The tables that follow the log, which verifying compares with it."""


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    length = 20_000 if sizes.quick else 1_000_000 if sizes.huge else 100_000
    store, workspace = new_log(folder, length)
    path = folder / "store" / "audit.db"

    def whole(quick: bool) -> None:
        evidence = open_evidence(store.adapters.database, workspace.id)
        try:
            found = verify(evidence, heads=[workspace.head()], quick=quick)
        finally:
            evidence.close()
        if not found.ok:
            raise SystemExit(f"verify found {found.findings[:3]}")

    times = interleaved(
        1 if sizes.huge else 7 if sizes.quick else 3,
        {
            "ours": lambda: whole(quick=False),
            "bare": lambda: bare(path, workspace.blobs),
            "ours, quick": lambda: whole(quick=True),
            "bare, quick": lambda: bare(path, None),
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


def bare(path: Path, blobs: BlobStore | None) -> None:
    """Read the events, and with `blobs` all else that verifying reads, and hash what is hashed.

    Everything in the order in which it lies in the file: nothing is sorted or looked up.
    """
    connection = connect(str(path), "ro")
    try:
        for leaf, hashed in connection.execute("SELECT leaf, leaf_hash FROM event"):
            if sha256(b"\0" + unpack(leaf, MAX_LEAF)).digest() != hashed:
                raise SystemExit("a leaf does not match its hash")
        if blobs is None:
            return
        for content, salt in connection.execute("SELECT content, salt FROM payload"):
            digest = b"" if content is None else sha256(unpack(content, MAX_LEAF)).digest()
            sha256((salt or b"") + digest).digest()
        for (digest,) in connection.execute("SELECT sha256 FROM blob WHERE encoding <> 'absent'"):
            blobs.get(BlobId(digest.hex()))
        for table in FOLLOWING:
            for row in connection.execute(f"SELECT * FROM {table}"):
                hash(row)
    finally:
        connection.close()
