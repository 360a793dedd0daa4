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
MOST = {"timeline": 8.0, "call": 6.0, "overview": 8.0}


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    """At 5,000 calls, each of which is four events, and at a million events."""
    for length in (4 * CALLS, *((1_000_000,) if sizes.huge else ())):
        store, workspace = new_log(folder / str(length), length)
        store.close()
        yield from compare(store.url, workspace, f"{length:,} events", 10 if sizes.quick else 40)


def compare(store: str, workspace: AuditedWorkspace, of: str, rounds: int) -> Iterator[Figure]:
    with serving(store) as (url, cookie):
        browser = Browser(url, cookie)
        paths = {"hello": "/healthz", **_paths(workspace)}
        works: dict[str, Callable[[], object]] = {
            name: partial(browser.get, path) for name, path in paths.items()
        }
        times = interleaved(rounds, works, warm=5)
        sizes = {name: len(browser.get(path)) for name, path in paths.items()}
        browser.close()
    for name, most in MOST.items():
        note = f"{sizes[name]:,} bytes sent"
        yield Figure(
            "pages", f"{name}, {of}", times[name], "ms", "hello", times["hello"], most, note
        )


def _paths(workspace: AuditedWorkspace) -> dict[str, str]:
    home = f"/w/{workspace.id}"
    found = workspace.timeline.calls(CallFilter(limit=200))
    call = next(one for one in found if one.seq and one.changed)
    return {"timeline": f"{home}/calls", "call": f"{home}/c/{call.seq}", "overview": f"{home}/"}
