"""What is said of changes of git."""

import pytest

from loom_audit.model.git.record import GitChanged, GitName
from loom_audit.model.git.words import git_words


@pytest.mark.parametrize("space", ["refs/heads/", "refs/remotes/origin/", "refs/other/"])
@pytest.mark.parametrize(("before", "after", "what"), [(1, None, "deleted"), (None, 1, "created")])
def test_of_a_branch_with_a_long_name_it_is_said_what_became_of_it(
    space: str, before: int | None, after: int | None, what: str
) -> None:
    name = space + "a" + "x" * 248 + "b"
    old, new = (str(one) * 40 if one else None for one in (before, after))
    fact = GitChanged("1 2", (GitName(name, old, new),), (), "command")
    [text] = git_words(fact)
    assert f"b {what} " in text and len(text) < 100


def test_of_a_head_with_long_names_both_are_told() -> None:
    long = [f"ref: refs/heads/{one}{'x' * 248}{one}" for one in "ab"]
    [text] = git_words(GitChanged("1 2", (GitName("HEAD", *long),), (), "command"))
    assert text.startswith("HEAD axx") and text.endswith("xb") and len(text) < 140


@pytest.mark.parametrize(
    ("before", "after", "said"),
    [
        (None, "ref: refs/heads/feat 1", "created at feat 1111111"),
        ("ref: refs/heads/feat 1", "ref: refs/heads/feat 2", "feat 1111111 → feat 2222222"),
        ("ref: refs/heads/feat 1", "1", "feat 1111111 → 1111111"),
        ("1", "1 locked", "1111111 → 1111111, locked"),
        ("ref: refs/heads/feat 1 locked", None, "deleted (was feat 1111111, locked)"),
        ("1", "broken", "1111111 → broken"),
    ],
)
def test_of_a_linked_worktree_commit_and_lock_are_told(
    before: str | None, after: str | None, said: str
) -> None:
    old, new = (
        one and one.replace("1", "1" * 40).replace("2", "2" * 40) for one in (before, after)
    )
    fact = GitChanged("1 2", (GitName("worktree /w", old, new),), (), "command")
    assert [*git_words(fact)] == [f"worktree /w {said}"]
