"""25 kinds of pages over real calls, beside the least that the same server answers.

That is its `/healthz`, asked by the same browser. Each page is asked in turns with all others, and
"first" of a server of its own, which has shown nothing but the overview yet.
"""

import gzip
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

from benchmarks.events import new_log
from benchmarks.figures import Figure, Sizes, interleaved, timed
from benchmarks.projects import name
from benchmarks.recorded import CALLS, Recorded, record
from benchmarks.serving import Browser, serving
from loom_audit.api.face import AuditedWorkspace, prepare_search
from loom_audit.api.lines import lines_of
from loom_audit.model.conversation import PromptSubmitted
from loom_audit.ports import CallFilter, EventFilter

HELLO = "/healthz"
BACK = 20.0
"""Milliseconds for the point `head~5000`."""
SECONDS = 2
"""So long after a server has started somebody comes."""
NODES, KB = 1_500, 50.0
"""A first view has at most so many elements and, with the files it loads, so many kilobytes."""


class Page(NamedTuple):
    """The address of a page below its workspace, and how often `/healthz` it may take, asked again
    and asked first.
    """

    path: str
    most: float | None = None
    first: float | None = None


def measure(folder: Path, sizes: Sizes) -> Iterator[Figure]:
    made = record(folder / "recorded", 500 if sizes.quick else CALLS)
    prepare_search(made.workspace.timeline)
    yield from compare(made.store.url, made.workspace, pages_of(made), "real", sizes)
    back = made.made
    point = partial(made.workspace.timeline.point, f"head~{back}")
    took = timed(point) * 1000
    yield Figure("pages", f"the point head~{back}, first", took, "ms")
    took = statistics.median(timed(point) for _ in range(5)) * 1000
    yield Figure("pages", f"the point head~{back}", took, "ms", most=BACK)
    made.store.close()
    for length in (20_000 if sizes.quick else 100_000, *((1_000_000,) if sizes.huge else ())):
        store, workspace = new_log(folder / str(length), length)
        with store:
            prepare_search(workspace.timeline)
            of = f"{length:,} events"
            yield from compare(store.url, workspace, synthetic_pages(workspace), of, sizes)


def compare(
    store: str, workspace: AuditedWorkspace, pages: Mapping[str, Page], of: str, sizes: Sizes
) -> Iterator[Figure]:
    """Ask for all pages in turns, then for each of a server of its own."""
    rounds, starts = (5, 1) if sizes.quick else (20, 3)
    home = f"/w/{workspace.id}"
    paths = {title: home + page.path for title, page in pages.items()}
    with serving(store) as (url, cookie):
        browser = Browser(url, cookie)
        works: dict[str, Callable[[], object]] = {
            title: partial(browser.get, path) for title, path in paths.items()
        }
        times = interleaved(rounds, {HELLO: partial(browser.get, HELLO), **works}, warm=2)
        sent = {title: browser.get(path) for title, path in paths.items()}
        loads = {one: len(browser.get(one)) for page in sent.values() for one in shape(page)[1]}
        browser.close()
    for title, page in pages.items():
        nodes, loaded = shape(sent[title])
        kilobytes = (len(sent[title]) + sum(loads[one] for one in loaded)) / 1000
        over = "  LARGE" if nodes > NODES or kilobytes > KB else ""
        note = f"{nodes:,} nodes, {kilobytes:.0f} KB{over}"
        hello = times[HELLO]
        yield Figure("pages", f"{title}, {of}", times[title], "ms", HELLO, hello, page.most, note)
        took, hello = first_of(store, f"{home}/", paths[title], starts)
        yield Figure("pages", f"{title}, {of}, first", took, "ms", HELLO, hello, page.first)


def first_of(store: str, home: str, path: str, starts: int) -> tuple[float, float]:
    """The medians of milliseconds for a page of a server of which only the overview was asked,
    some seconds after it started, and for its `/healthz` afterwards.
    """
    pages, hellos = [], []
    for _ in range(starts):
        with serving(store) as (url, cookie):
            browser = Browser(url, cookie)
            time.sleep(SECONDS)
            browser.get(home)
            pages.append(timed(partial(browser.get, path)) * 1000)
            hellos += [timed(partial(browser.get, HELLO)) * 1000 for _ in range(20)]
            browser.close()
    return statistics.median(pages), statistics.median(hellos)


def shape(page: bytes) -> tuple[int, set[str]]:
    """How many elements a page as it was sent has, and the files that it loads."""
    text = (gzip.decompress(page) if page[:2] == b"\x1f\x8b" else page).decode()
    return _elements(text), {*re.findall(r'(?:src|href)="(/static/[^"]+)"', text)}


def _elements(text: str) -> int:
    parser = _Counting()
    parser.feed(text)
    return parser.count


class _Counting(HTMLParser):
    count = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.count += 1


def pages_of(made: Recorded) -> dict[str, Page]:
    """25 kinds of pages of the store of real calls."""
    timeline = made.workspace.timeline
    head = timeline.log.head()
    session = timeline.session(made.large)
    review = f"/s/{made.large}"
    newest, old = (
        next(one for one in timeline.calls(wanted) if one.seq and one.changed and one.paths)
        for wanted in (CallFilter(limit=200), CallFilter(limit=200, before=head // 2))
    )
    prompts = EventFilter(kinds=(PromptSubmitted.kind,), session=made.large, limit=1)
    prompt = next(event.seq for event in timeline.events(prompts))
    later = min(session.started + 10_000, head)
    lines = lines_of(made.workspace)
    changed = lines.net(lines.of_session(made.large)).files[0].path
    return {
        "overview": Page("/", 10),
        "timeline": Page("/calls", 10),
        "timeline, older": Page(f"/calls?before={head // 2}", 10),
        "newest call": Page(f"/c/{newest.seq}", 10, 25),
        "old call": Page(f"/c/{old.seq}", 10, 25),
        "call of every file": Page(f"/c/{made.wide}"),
        "call of a long command": Page(f"/c/{made.long}", 10, 25),
        "review": Page(review, 15, 90),
        "review, a turn": Page(f"{review}?turn={prompt}", 15, 90),
        "review, a file": Page(f"{review}?diff={changed}", 15, 90),
        "steps": Page(f"{review}/steps", 10),
        "commands": Page(f"{review}/commands", 15, 90),
        "taken back": Page(f"{review}/taken-back", 15, 90),
        "what failed": Page(f"{review}/only/failed", 15, 90),
        "prompt": Page(f"/said/{prompt}"),
        "root folder": Page("/at/head/", 25),
        "folder then": Page(f"/at/{head // 2}/package0/d1", 25),
        "file": Page(f"/at/head/{name(1)}", 25),
        "file then": Page(f"/at/{head // 2}/{name(1)}", 25),
        "blame of a window": Page(f"/at/head/{name(1)}?view=blame", 25, 80),
        "history of a file": Page(f"/history/{name(1)}"),
        "history of a folder": Page("/history/package0"),
        "compare": Page(f"/compare/{session.started}..{later}", 60),
        "a common word": Page("/find?q=value", 25),
        "plan of an undo": Page(f"/plan?verb=revert&target={newest.seq}"),
    }


def synthetic_pages(workspace: AuditedWorkspace) -> dict[str, Page]:
    """The kinds of pages for which a log of made-up calls is long enough to tell."""
    timeline = workspace.timeline
    head = timeline.log.head()
    newest, old = (
        timeline.calls(wanted)[0]
        for wanted in (
            CallFilter(before=head - 10, limit=1),
            CallFilter(limit=1, before=head // 2),
        )
    )
    session = timeline.calls(CallFilter(limit=1, before=head // 2))[0].session
    return {
        "overview": Page("/", 10),
        "timeline": Page("/calls", 10),
        "newest call": Page(f"/c/{newest.seq}", 10, 25),
        "old call": Page(f"/c/{old.seq}", 10, 25),
        "review of 1,000 calls": Page(f"/s/{session}", 15, 90),
        "steps": Page(f"/s/{session}/steps", 10),
        "folder": Page("/at/head/package0/d1", 25),
        "file": Page(f"/at/head/{newest.paths[0]}", 25),
        "history of a file": Page(f"/history/{newest.paths[0]}"),
        "compare": Page(f"/compare/{head // 2}..{head // 2 + 10_000}", 60),
        "a common word": Page("/find?q=write_file", 25),
    }
