"""Points at which a path could not be read: every reader says that it is not known."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from loom_audit import Session
from loom_audit.errors import NotFound
from loom_audit.mcp_server.resources import read_resource
from tests.cli.shells import Shell
from tests.processes.ordinary_user import ordinary_session

HOSTILE = "f\x1b[2J"


class Lost:
    """A workspace in which a file and a folder could not be read for a while."""

    def __init__(self, session: Session) -> None:
        self.workspace, self.root = session.workspace, Path(session.workspace.root)
        self.shell = Shell(self.root, self.root.parent / "home")
        self.before = self.workspace.log.head()
        with session.recording("close"):
            (self.root / HOSTILE).write_text("two")
            (self.root / HOSTILE).chmod(0)
            (self.root / "d").chmod(0)
        self.during = self.workspace.log.head()
        (self.root / HOSTILE).chmod(0o644)
        (self.root / "d").chmod(0o755)
        with session.recording("open"):
            pass
        self.after = self.workspace.log.head()
        self.pairs = [(self.before, self.during), (self.during, self.after)]
        self.pairs += [(self.after, self.during), (self.during, self.before)]


@pytest.fixture
def lost(monkeypatch: pytest.MonkeyPatch) -> Iterator[Lost]:
    with ordinary_session(dict.fromkeys((HOSTILE, "d/g", "z"), "one"), monkeypatch) as session:
        yield Lost(session)


def said_unknown(text: str) -> bool:
    """Whether both are named, and nothing is written that a terminal obeys."""
    shown = all(f"not known what was there: {one} (" in text for one in ("d/g", r"f\x1b[2J"))
    return shown and "\x1b" not in text


def test_lists_name_what_could_not_be_read(lost: Lost) -> None:
    shown = lost.shell("ls", "--at", str(lost.during))
    assert said_unknown(shown.errors) and "f" not in shown.text.split()
    inside = lost.shell("ls", "d", "--at", str(lost.during)).errors
    assert "not known what was there: d/g" in inside and "nothing was there" not in inside
    listed = lost.shell.records("ls", "--at", str(lost.during))
    assert {one["path"]: one["unknown"] for one in listed if "unknown" in one} == {
        "d/g": "unreadable",
        HOSTILE: "unreadable",
    }
    assert "not known" not in lost.shell("ls", "--at", str(lost.after)).errors
    refused = lost.shell("cat", HOSTILE, "--at", str(lost.during), code=4).errors
    assert "it is not known what was at" in refused and "\x1b" not in refused


def test_a_difference_from_or_to_what_could_not_be_read_is_not_known(lost: Lost) -> None:
    for old, new in lost.pairs:
        points = str(old), str(new)
        assert {one.path for one in lost.workspace.timeline.diff(old, new)} == {"d"}
        for more in ((), ("--name-only",), ("--stat",)):
            shown = lost.shell("diff", *points, *more)
            assert said_unknown(shown.errors) and "d/g" not in shown.text, more
            named = {one["path"] for one in lost.shell.records("diff", *points, *more)}
            assert named == {"d", "d/g", HOSTILE}
        assert "d/g" not in lost.shell("diff", *points, "z").errors
    both = lost.shell("diff", str(lost.before), str(lost.after), "--name-only")
    assert "not known" not in both.errors and r"M f\x1b[2J" in both.text


def test_the_log_is_not_compared_with_what_cannot_be_read_now(lost: Lost) -> None:
    (lost.root / "z").write_text("another")
    (lost.root / "z").chmod(0)
    with lost.workspace.session("agent") as session, session.recording("nothing"):
        pass
    assert "not known what was there: z" in lost.shell("diff").errors


def test_a_rebuilt_point_says_what_it_is_without(lost: Lost) -> None:
    folder = lost.root.parent / "then"
    shown = lost.shell("replay", str(lost.during), "--to", str(folder))
    assert said_unknown(shown.errors) and "without 2 paths not known" in shown.text
    assert not (folder / HOSTILE).exists()
    (folder / "d").chmod(0o755)
    [told] = lost.shell.records("replay", str(lost.during), "--to", f"{folder}2")
    assert [one["path"] for one in told["unknown"]] == ["d/g", HOSTILE]
    (lost.root.parent / "then2" / "d").chmod(0o755)


def test_what_left_the_scope_is_not_known_either(lost: Lost) -> None:
    (lost.root / ".loomignore").write_text("z\n")
    lost.shell("scope", "accept")
    shown = lost.shell("diff", str(lost.after), "head")
    assert "not known what was there: z (it left the scope)" in shown.errors


def test_the_server_says_so_too(lost: Lost) -> None:
    def read(uri: str) -> str:
        return str(read_resource(lost.workspace, f"loom-audit:///{uri}").model_dump()["text"])

    for old, new in lost.pairs:
        assert said_unknown(read(f"diff/{old}/{new}"))
    with pytest.raises(NotFound, match="it is not known what was at d/g"):
        read(f"file/{lost.during}/d/g")
