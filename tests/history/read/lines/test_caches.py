"""The list of caches, held against what lies beside a store and what its page says."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, ToolResult
from loom_audit.api.lines import lines_of
from loom_audit.history.read.lines import followed
from loom_audit.sql.store import places
from loom_audit.wiring.caches import (
    CACHES,
    FOLDER,
    MIRROR,
    TABLES,
    Cache,
    empty_caches,
    sizes_of,
)

DOCS = Path(__file__).parents[4] / "docs"

NOT_DERIVED = (".db.ahead", ".roots", ".looks", ".forgetting", MIRROR)
"""What lies beside the caches and cannot be made again: the head of an index that had seen more
than the log has, which folder a workspace was, what was seen as a call began, what is still to be
erased, and objects that the repository may have no longer."""


@pytest.fixture
def home(workspace: AuditedWorkspace) -> Path:
    return workspace.adapters.settings.home


@pytest.fixture
def filled(
    workspace: AuditedWorkspace, call: Callable[..., ToolResult], monkeypatch: pytest.MonkeyPatch
) -> AuditedWorkspace:
    """A workspace all of whose caches were filled."""
    monkeypatch.setattr(followed, "FROM_BYTES", 0)
    call("write_file", path="code.py", content="def found(): ...\n")
    assert call("search_code", query="found").success
    lines_of(workspace).blame("code.py")
    return workspace


def test_all_that_lies_beside_a_store_of_a_workspace_is_on_the_list(
    filled: AuditedWorkspace, home: Path
) -> None:
    ends = {path.name.removeprefix(filled.id) for path in (home / FOLDER).iterdir()}
    assert {cache.ends for cache in CACHES} <= ends
    assert ends <= {cache.ends for cache in CACHES} | {*NOT_DERIVED}
    assert all(size > 0 for _, size in sizes_of(home, filled.id))


def test_emptied_caches_are_gone_and_nothing_else_is(filled: AuditedWorkspace, home: Path) -> None:
    right, tree = lines_of(filled).blame("code.py"), filled.timeline.tree(filled.log.head())
    kept = {path.name for path in (home / FOLDER).iterdir() if path.name.endswith(NOT_DERIVED)}
    empty_caches(home, filled.id)
    assert {path.name for path in (home / FOLDER).iterdir()} == kept
    assert all(size == 0 for _, size in sizes_of(home, filled.id))
    assert lines_of(filled).blame("code.py") == right
    assert filled.timeline.tree(filled.log.head()) == tree
    assert filled.status().drift == ()


def test_the_derived_tables_are_those_of_the_list_of_places() -> None:
    assert {*TABLES} == {*places.OF_LOG, places.FULL_TEXT}


@pytest.mark.parametrize("cache", CACHES, ids=lambda cache: cache.name)
def test_the_page_of_the_stored_format_tells_of_each_cache(cache: Cache) -> None:
    text = (DOCS / "store-format.md").read_text("utf-8")
    [row] = [one for one in text.splitlines() if one.startswith(f"| `{cache.ends}` |")]
    assert cache.name in row and cache.holds in row and cache.costs in row
    assert all(f"`{end}`" in text for end in NOT_DERIVED)
