"""Which words of git can be asked of the mirror."""

import pytest

from loom_audit.errors import InvalidArguments
from loom_audit.history.read.kept_git import check_words


@pytest.mark.parametrize(
    "words",
    [
        ["log", "--output=made"],
        ["log", "--outp=made"],
        ["log", "--ext-diff"],
        ["log", "--format=%G?"],
        ["show", "--textconv", "HEAD"],
        ["grep", "-Oless", "x"],
        ["grep", "--open-files-in-pager=less", "x"],
        ["archive", "HEAD"],
        ["blame", "-S/etc/passwd", "a"],
        ["blame", "-S", "/etc/passwd", "a"],
        ["blame", "-sS", "/etc/passwd", "a"],
        ["grep", "-f/etc/passwd"],
        ["log", "--format=%+GK"],
        ["blame", "--contents", "/etc/passwd", "a"],
        ["-c", "core.pager=less", "log"],
        ["diff", "/etc/passwd", "/etc/group"],
        ["gc"],
        ["log", "--stdin"],
    ],
)
def test_what_could_write_a_file_or_run_a_program_is_refused(words: list[str]) -> None:
    with pytest.raises(InvalidArguments) as refused:
        check_words(words)
    assert refused.value.hint


@pytest.mark.parametrize(
    "words",
    [
        ["log", "--oneline", "--all", "-n5", "--since=yesterday", "--", "--output=a"],
        ["show", "--stat", "stash@{0}"],
        ["log", "-p", "-U5", "-Sname", "--author=ann", "HEAD~3..HEAD"],
        ["ls-tree", "-r", "--name-only", "HEAD"],
        ["cat-file", "-p", "HEAD^{tree}"],
        ["for-each-ref", "--format=%(refname) %(objectname)"],
    ],
)
def test_what_only_reads_is_asked(words: list[str]) -> None:
    check_words(words)
