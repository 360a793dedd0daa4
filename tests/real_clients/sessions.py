"""The session that every client runs, in the words of its own tools."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from tests.real_clients.script import Call, Step

EDITED = "src/part01/file001.py"
CREATED = "src/new/made.py"
TWICE = "twice.txt"
LATE = "late.txt"
MEANWHILE = "meanwhile.txt"
SOON = "soon.txt"
GO = ".git/go"
"""What the background waits for, where nothing is recorded."""
WAITING = f"until test -e {GO}; do sleep 0.1; done"
FORBIDDEN = "forbidden-tool"
"""A command that the person's own rules of each client deny."""


class Hands(Protocol):
    """How one client's model asks for things. Paths are relative to the workspace."""

    def read(self, id: str, path: str) -> Call: ...
    def edit(self, id: str, path: str, old: str, new: str) -> Call: ...
    def create(self, id: str, path: str, content: str) -> Call: ...
    def overwrite(self, id: str, path: str, old: str, content: str) -> Call: ...
    def shell(self, id: str, command: str) -> Call: ...
    def background(self, id: str, command: str) -> Call: ...


@dataclass(frozen=True)
class Expected:
    """What a step is to do: the status of its calls, and the paths that they change."""

    status: str
    paths: Sequence[str] = ()


OLD = tuple(f"old/page{n}.txt" for n in range(12))

EXPECTED: Mapping[str, Expected] = {
    "read": Expected("ok"),
    "edit": Expected("ok", [EDITED]),
    "failing edit": Expected("error"),
    "create": Expected("ok", ["src/new", CREATED]),
    "exit 3": Expected("error"),
    "rm ignored": Expected("ok", ["secret.env"]),
    "rm -r": Expected("ok", ["old", *OLD, "old/to.notes"]),
    "write": Expected("ok", [TWICE]),
    "write again": Expected("ok", [TWICE]),
    "background": Expected("running"),
    "meanwhile": Expected("ok", [LATE, MEANWHILE]),
    "parallel": Expected("ok", ["left.txt", "right.txt"]),
    "denied": Expected("denied"),
    "soon": Expected("running", [SOON]),
    "after soon": Expected("ok"),
}
MAY_CONFLICT = ("background", "meanwhile", "parallel", "soon")
"""Steps whose changes nobody can tell apart for certain."""


def whole(hands: Hands) -> list[Step]:
    """All that happens without a person at the keyboard."""
    return [
        Step("read", [hands.read("call_01", EDITED)]),
        Step("edit", [hands.edit("call_02", EDITED, "return 1", "return 100;")]),
        Step("failing edit", [hands.edit("call_03", EDITED, "no such text", "x")]),
        Step("create", [hands.create("call_04", CREATED, "made = 1\n")]),
        Step("exit 3", [hands.shell("call_05", "echo told; exit 3")]),
        Step("rm ignored", [hands.shell("call_06", "rm secret.env")]),
        Step("rm -r", [hands.shell("call_07", "rm -r old")]),
        Step("write", [hands.create("call_08", TWICE, "first\n")]),
        Step("write again", [hands.overwrite("call_09", TWICE, "first\n", "second\n")]),
        Step("background", [hands.background("call_10", f"{WAITING}; echo late > {LATE}")]),
        Step("meanwhile", [hands.shell("call_11", f"touch {GO}; sleep 2; echo > {MEANWHILE}")]),
        Step(
            "parallel",
            [
                hands.create("call_12", "left.txt", "left\n"),
                hands.create("call_13", "right.txt", "right\n"),
            ],
        ),
        Step("denied", [hands.shell("call_14", f"{FORBIDDEN} now")]),
        Step("soon", [hands.background("call_15", f"sleep 1; echo soon > {SOON}")]),
        Step("after soon", [hands.shell("call_16", "true")], waits_for=SOON),
        Step("end", text="All of it is done."),
    ]
