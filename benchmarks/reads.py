"""What a verified read costs: per event of the stretch it reads, and as a whole in a long log."""

import random
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.events import new_log
from benchmarks.figures import Figure, Sizes, interleaved
from loom_audit.api.face import AuditedWorkspace
from loom_audit.ports import CallFilter

STRETCH = 8_000


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    length = 20_000 if sizes.quick else 50_000
    store, workspace = new_log(folder, length)
    times = interleaved(5, _works(workspace, length), warm=1)
    decoded = STRETCH // 4  # of the four events of a call one says what it changed
    passed = times["a stretch passed over"]
    changed = (times["a stretch with its changes"] - passed) / decoded
    yield Figure("reads", "an event that is passed over", 1000 * passed / STRETCH, "µs")
    yield Figure("reads", "more for one that changed a file", 1000 * changed, "µs")
    for what in ("show the newest", "show an old one", "cat at a point", "diff of 1,000 events"):
        theirs = times.get(f"{what}, from the tables")
        against = "from the tables" if theirs else ""
        yield Figure("reads", f"{what} of {length:,} events", times[what], "ms", against, theirs)
    store.close()


def _works(workspace: AuditedWorkspace, length: int) -> dict[str, Callable[[], object]]:
    choice = random.Random(3)
    timeline = workspace.timeline
    newest = next(call for call in timeline.calls(CallFilter(limit=9)) if call.seq)
    old = timeline.calls(CallFilter(after=length // 2, newest_first=False, limit=1))[0]
    path = newest.paths[0]

    def fresh() -> AuditedWorkspace:
        """The workspace as another process opens it: no tree is known yet."""
        return type(workspace)(workspace.adapters, workspace.adapters.find(workspace.id), "x")

    def stretch(wanted: bool) -> int:
        events = timeline.proven.events(
            100, 100 + STRETCH, lambda envelope: wanted and envelope["kind"] == "files.changed"
        )
        return sum(1 for _ in events)

    def point() -> int:
        return choice.randrange(length // 2, length)

    return {
        "a stretch passed over": lambda: stretch(False),
        "a stretch with its changes": lambda: stretch(True),
        "show the newest": lambda: fresh().timeline.call(newest.requested),
        "show an old one": lambda: fresh().timeline.call(old.requested),
        "cat at a point": lambda: fresh().timeline.state(path, point()),
        "cat at a point, from the tables": lambda: timeline.projections.state(path, point()),
        "diff of 1,000 events": lambda: timeline.diff(length // 2, length // 2 + 1000),
    }
