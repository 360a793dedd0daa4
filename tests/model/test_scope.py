"""What a scope holds, against its words: a path is recorded when no part of it is left out."""

from hypothesis import given
from hypothesis import strategies as st

from loom_audit.model.scope import Scope

NAMES = st.sampled_from(["a", "b", "node_modules", ".git", "build", "x.log", ".loom-audit-tmp-1"])
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)


@given(st.sampled_from(["", "build\n", "*.log\n!a/x.log\n"]), st.lists(PATHS, max_size=12))
def test_a_path_is_held_when_neither_it_nor_a_folder_above_is_excluded_whatever_was_asked_before(
    ignore: str, paths: list[str]
) -> None:
    asked = Scope(ignore)
    for path in paths:
        parts = path.split("/")
        above = ["/".join(parts[:n]) for n in range(1, len(parts))]
        for directory in (True, False):
            fresh = Scope(ignore)
            expected = all(fresh.excludes(one, directory=True) is None for one in above)
            expected = expected and fresh.excludes(path, directory=directory) is None
            assert asked.includes(path, directory=directory) is expected


def test_a_path_of_two_thousand_folders_is_held() -> None:
    assert Scope().includes("a/" * 2000 + "b")
