"""What rules say of names that a line of rules cannot hold, and of rules with odd characters."""

from pathlib import Path

import pytest

from loom_audit import AuditStore
from loom_audit.model.scope import Scope, bad_lines


@pytest.mark.parametrize("name", ["x.log\n", "top\n", "build\n", ".env\n"])
def test_a_name_that_ends_in_a_newline_is_not_the_name_without_it(
    store: AuditStore, root: Path, name: str
) -> None:
    (root / ".loomignore").write_text("*.log\n/top\nbuild\n.env\n")
    workspace = store.attach(root)
    with workspace.session("tester") as session, session.recording("hide"):
        (root / name).write_text("hidden")
    assert name in workspace.timeline.tree()


@pytest.mark.parametrize(
    ("rules", "path"),
    [
        ("*.log", "a\nb/z.log"),
        ("*.log", "\nz.log"),
        ("a*z", "a\nz"),
        ("a?z", "a\nz"),
        ("a[!b]z", "a\nz"),
        ("**/gen/**", "a\nb/gen/c\nd/e"),
    ],
)
def test_a_wildcard_stands_for_a_newline_too(rules: str, path: str) -> None:
    assert not Scope(rules).includes(path)
    assert Scope(rules).includes("other\n")


@pytest.mark.parametrize("character", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\u2029", "\r"])
def test_a_comment_ends_where_git_ends_it(character: str) -> None:
    """Else a rule could hide in what is shown to a person as a comment."""
    assert Scope(f"# harmless{character}*\n").includes("a.txt")
    assert bad_lines(f"# harmless{character}!\n") == []
    assert not Scope("*.log\r\n").includes("a.log")
