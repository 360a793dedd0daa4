"""Bytes kept for an agent's small edits over a real project, against git.

The history: five releases of itsdangerous applied change by change, then edits of one to four
lines over the modules of jinja2 as it is installed here, each one `write_file`.
"""

import asyncio
import importlib.util
import random
import tarfile
from collections.abc import Iterator
from pathlib import Path, PurePosixPath

from benchmarks.figures import Figure, Sizes
from benchmarks.projects import Repository, new_store, on_disk
from loom_audit.api.face import Session
from loom_audit.sql.ground.driver import connect

RELEASES = Path(__file__).parents[1] / "tests" / "data" / "itsdangerous"
PACKAGE = "jinja2"

Step = tuple[str, bytes]
"""A path and its new content."""


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    work, packed = folder / "work", folder / "packed"
    work.mkdir(parents=True)
    steps = [*_history(sizes)]
    loose = Repository(folder / "loose", work)
    sampled = _record(folder, work, steps, loose)
    once = Repository(packed, work)
    once.run("fast-import", "--quiet", stdin=b"".join(_commits(steps)))
    once.run("repack", "-a", "-d", "-f", "-q")  # fast-import's own deltas are poor
    contents, rest = _stored(folder / "store")
    shadow = on_disk(folder / "loose") * len(steps) / sampled
    pack = _packed_contents(once)
    each = len(steps)
    of = f"{len(steps):,} edits, {len({data for _, data in steps}):,} contents"
    yield Figure(
        "storage",
        "contents, per edit",
        contents / each,
        "B",
        "git's pack of the same",
        pack / each,
        1.5,
        of,
    )
    yield Figure("storage", "everything else, per call", rest / each, "B", most=1800)
    yield Figure(
        "storage",
        "all together, per call",
        (contents + rest) / each,
        "B",
        "shadow repository never gc'd",
        shadow / each,
        0.2,
        f"the repository from its first {sampled:,} commits",
    )


def _history(sizes: Sizes) -> Iterator[Step]:
    for release in sorted(RELEASES.glob("*.tar.gz")):
        yield from _release(release)
    found = importlib.util.find_spec(PACKAGE)
    roots = list(found.submodule_search_locations or []) if found else []
    state = {
        f"{PACKAGE}/{path.name}": path.read_bytes()
        for root in roots
        for path in sorted(Path(root).glob("*.py"))
    }
    yield from state.items()
    choice = random.Random(7)
    paths = sorted(state)
    weights = [len(state[path]) for path in paths]
    for n in range(400 if sizes.quick else 3000):
        path = choice.choices(paths, weights)[0]
        state[path] = _edited(state[path], choice, n)
        yield path, state[path]


def _release(file: Path) -> Iterator[Step]:
    with tarfile.open(file) as archive:
        for member in archive:
            data = archive.extractfile(member)
            if data is not None:
                inside = PurePosixPath(*PurePosixPath(member.name).parts[1:])
                yield f"itsdangerous/{inside}", data.read()


def _edited(data: bytes, choice: random.Random, n: int) -> bytes:
    """One to four lines changed, moved in or taken out, as an agent does."""
    lines = data.split(b"\n")
    at = choice.randrange(max(1, len(lines) - 4))
    kind = choice.random()
    if kind < 0.5:
        word = b"value_%d" % choice.randrange(1000)
        lines[at] = lines[at].replace(b"=", b"= " + word + b" or", 1) + b"  # %d" % n
    elif kind < 0.85:
        taken = choice.randrange(max(1, len(lines) - 4))
        lines[at:at] = lines[taken : taken + choice.randint(1, 4)]
    else:
        del lines[at : at + choice.randint(1, 3)]
    return b"\n".join(lines)


def _record(folder: Path, work: Path, steps: list[Step], loose: Repository) -> int:
    """Every step as a call, and a commit of the shadow repository after the first of them."""
    commits = 0

    async def calls(session: Session) -> None:
        nonlocal commits
        for path, data in steps:
            content = {"path": path, "content": data.decode("utf-8", "replace")}
            result = await session.call("write_file", content)
            if not result.ok:
                raise SystemExit(result.output)
            if commits < 600:
                loose.commit()
                commits += 1

    with new_store(folder / "store") as store, store.attach(work).session("benchmark") as session:
        asyncio.run(calls(session))
    return commits


def _commits(steps: list[Step]) -> Iterator[bytes]:
    """The same history for `git fast-import`, a commit for each step."""
    for path, data in steps:
        yield b"commit refs/heads/all\ncommitter b <b@example.org> 0 +0000\ndata 0\n"
        yield b"M 100644 inline %b\ndata %d\n%b\n" % (path.encode(), len(data), data)


def _packed_contents(repository: Repository) -> int:
    """Bytes that contents take in the pack, without trees and commits."""
    listed = repository.run(
        "cat-file", "--batch-all-objects", "--batch-check=%(objecttype) %(objectsize:disk)"
    )
    rows = (line.split() for line in listed.decode().splitlines())
    return sum(int(size) for kind, size in rows if kind == "blob")


def _stored(store: Path) -> tuple[int, int]:
    """Bytes of the store that hold files' contents, and all the others.

    Without the change index: it grows with the workspace, not with calls.
    """
    connection = connect(str(store / "audit.db"), "ro")
    try:
        inside = connection.execute(
            "SELECT coalesce(sum(length(content)), 0) FROM blob_content WHERE blob IN "
            "(SELECT old_blob FROM file_change UNION SELECT new_blob FROM file_change)"
        ).fetchone()[0]
        pages, size = (
            connection.execute(f"PRAGMA {name}").fetchone()[0]
            for name in ("page_count", "page_size")
        )
    finally:
        connection.close()
    large = on_disk(store / "blobs") if (store / "blobs").exists() else 0
    return inside + large, pages * size - inside
