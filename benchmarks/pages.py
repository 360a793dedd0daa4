"""Pages of the dashboard, over HTTP, beside the least that the same server answers.

That is its `/healthz`, asked by the same browser through all that stands before every page.
"""

from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

from benchmarks.events import new_log
from benchmarks.figures import Figure, Sizes, interleaved
from benchmarks.serving import Browser, serving
from loom_audit.api.face import AuditedWorkspace
from loom_audit.ports import CallFilter

CALLS = 5_000
MOST = {
    "timeline": 8.0,
    "call": 6.0,
    "old call": 6.0,
    "overview": 10.0,
    "a common word": 25.0,
    "calls that say it": 25.0,
}


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """At 5,000 calls, each of which is four events, and at a million events."""
    for length in (4 * CALLS, *((1_000_000,) if sizes.huge else ())):
        store, workspace = new_log(folder / str(length), length)
        with store:
            yield from compare(store.url, workspace, f"{length:,} events", sizes)


def compare(store: str, workspace: AuditedWorkspace, of: str, sizes: Sizes) -> Iterator[Figure]:
    rounds = 10 if sizes.quick else 40
    with serving(store) as (url, cookie):
        browser = Browser(url, cookie)
        paths = {"hello": "/healthz", **_paths(workspace)}
        works: dict[str, Callable[[], object]] = {
            name: partial(browser.get, path) for name, path in paths.items()
        }
        times = interleaved(rounds, works, warm=5)
        sent = {name: len(browser.get(path)) for name, path in paths.items()}
        browser.close()
    for name, most in MOST.items():
        note = f"{sent[name]:,} bytes sent"
        yield Figure(
            "pages", f"{name}, {of}", times[name], "ms", "hello", times["hello"], most, note
        )


def _paths(workspace: AuditedWorkspace) -> dict[str, str]:
    home = f"/w/{workspace.id}"
    middle = workspace.log.head() // 2
    newest, old = (
        next(one for one in workspace.timeline.calls(wanted) if one.seq and one.changed)
        for wanted in (CallFilter(limit=200), CallFilter(limit=200, before=middle))
    )
    return {
        "timeline": f"{home}/calls",
        "call": f"{home}/c/{newest.seq}",
        "old call": f"{home}/c/{old.seq}",
        "overview": f"{home}/",
        # nearly every call says the name of this tool
        "a common word": f"{home}/find?q={newest.tool}",
        "calls that say it": f"{home}/calls?search={newest.tool}",
    }
