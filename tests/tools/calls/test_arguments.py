"""Arguments as models write them: numbers as texts, and limits by the names other tools give."""

import pytest

from loom_audit.tools.calls.schemas import readable_arguments
from tests.tools.conftest import Bench

SCHEMA = {
    "properties": {
        "timeout": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
        "limit": {"type": "integer"},
        "seconds": {"type": "number"},
        "text": {"type": "string"},
        "either": {"anyOf": [{"type": "integer"}, {"type": "string"}]},
    }
}
NAMES = {"timeout_seconds": "timeout", "max_results": "limit"}


@pytest.mark.parametrize(
    ("given", "read"),
    [
        ({"timeout": "5", "limit": "020"}, {"timeout": 5, "limit": 20}),
        ({"seconds": "30"}, {"seconds": "30"}),
        ({"timeout": 5.5}, {"timeout": 5.5}),
        ({"text": "5", "either": "5"}, {"text": "5", "either": "5"}),
        ({"timeout": "5s", "limit": "-1"}, {"timeout": "5s", "limit": "-1"}),
        ({"timeout_seconds": "7"}, {"timeout": 7}),
        ({"max_results": 3}, {"limit": 3}),
        ({"timeout": 1, "timeout_seconds": 2}, {"timeout": 1, "timeout_seconds": 2}),
        ({"timeout_seconds": 2, "timeout": "1"}, {"timeout_seconds": 2, "timeout": 1}),
        ({"unknown": "1"}, {"unknown": "1"}),
    ],
)
def test_arguments_are_read(given: dict[str, object], read: dict[str, object]) -> None:
    kept = dict(given)
    assert readable_arguments(SCHEMA, given, NAMES) == read
    assert given == kept


def test_arguments_as_the_schema_has_them_are_the_caller_s_own() -> None:
    given = {"timeout": 5, "text": "x"}
    assert readable_arguments(SCHEMA, given, NAMES) is given


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "timeout", [{"timeout": "1"}, {"timeout_seconds": 1}, {"timeout_secs": "1"}]
)
def test_a_timeout_that_is_a_text_or_has_another_name_holds(
    bench: Bench, timeout: dict[str, object]
) -> None:
    result = bench.call("bash", {"command": "sleep 60", **timeout})
    assert result.error.code == "TIMEOUT" and "after 1 second" in str(result.error)
    assert bench.requested()[-1].arguments == {"command": "sleep 60", **timeout}


def test_the_longest_time_is_named(bench: Bench) -> None:
    result = bench.call("bash", {"command": "true", "timeout": "600"})
    assert result.error.code == "INVALID_ARGUMENTS" and "300" in str(result.error)
    for name in ("bash", "shell_execute", "run_code", "run_tests", "web_fetch", "oracle"):
        told = str(bench.registry.get(name).parameters["properties"]["timeout"]["description"])
        assert "at most" in told


def test_how_many_are_wanted_is_asked_by_any_name(bench: Bench) -> None:
    asked: dict[str, tuple[dict[str, object], str]] = {
        "search_code": ({"query": "print"}, "matches"),
        "search_files": ({"pattern": "."}, "matches"),
        "list_files": ({"recursive": True}, "files"),
        "list_directory": ({"recursive": True}, "entries"),
        "history": ({}, "entries"),
    }
    for tool, (arguments, listed) in asked.items():
        for name in ("limit", "max_results", "max_count", "head_limit"):
            found = bench.call(tool, {**arguments, name: "1"})
            assert found.success and len(found.data[listed]) == 1


def test_a_listing_and_a_search_that_a_limit_cuts_say_so(bench: Bench) -> None:
    listed = bench.call("list_files", {"recursive": True, "limit": 2})
    assert listed.data["truncated"] and "[more than 2 entries" in listed.output
    found = bench.call("search_files", {"pattern": ".", "limit": 2})
    assert found.data["truncated"] and "[more than 2 matches" in found.output
    files = bench.call("search_files", {"pattern": ".", "limit": 1, "files_only": True})
    assert files.data["truncated"] and len(files.data["matching_files"]) == 1
