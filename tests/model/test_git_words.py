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
