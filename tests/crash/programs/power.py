"""Power cuts without pulling a plug: what a disk may hold at any instant of a recorded run.

A run's system calls on the store's files are recorded by strace. A state at an instant is: all
that was synced, and of what was written since, any part: each write kept, dropped or torn into
sectors of 512 bytes; names that came, went or moved are certain when their folder was synced.
"""

import os
import random
import re
import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from tests.crash.programs.faults import PATIENCE, Stem, lines, wait_for

SECTOR = 512
TRACED = "openat,close,pwrite64,write,fsync,fdatasync,ftruncate,rename,unlink,mkdir"
LINE = re.compile(r"^(\w+)\((.*)\)\s+= (-?\d+)")
STRING = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')
IGNORED = ("-shm", ".ballast", ".lock")


@dataclass(frozen=True, slots=True)
class Op:
    """One thing that was done to a file or a name; `file` numbers the files."""

    kind: Literal["create", "write", "cut", "sync", "folder", "rename", "unlink", "ack"]
    path: str = ""
    other: str = ""
    file: int = -1
    at: int = 0
    data: bytes = b""


def record(stem: Stem, home: Path, folder: Path, **order: Any) -> tuple[list[Op], Path]:
    """The operations of one run on the files below `home`, and the file that strace wrote."""
    report, go, trace = (folder / name for name in ("report", "go", "trace"))
    stem.begin(home=str(home), report=str(report), go=str(go), hold="open", **order)
    held = wait_for("the start", lambda: [line for line in lines(report) if "hold" in line])[0]
    command = ["strace", "-xx", "-s", "8000000", "-o", str(trace), "-e", f"trace={TRACED}"]
    command += ["-p", str(held["thread"])]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert "attached" in said, said
        go.touch()
        assert stem.end() == 0, lines(report)[-1]
        process.wait(PATIENCE)
    with trace.open() as text:
        return [*_parse(text, home, held["descriptor"])], report


def _parse(text: Iterator[str], home: Path, report: int) -> Iterator[Op]:
    reader = _Reader(str(home), report)
    for line in text:
        found = LINE.match(line)
        if found and int(found[3]) >= 0:
            yield from reader.read(found[1], found[2], int(found[3]))


@dataclass(slots=True)
class _Reader:
    """Follows descriptors and names through a trace."""

    home: str
    report: int
    open: dict[int, tuple[str, int]] = field(default_factory=dict)
    offsets: dict[int, int] = field(default_factory=dict)
    files: dict[str, int] = field(default_factory=dict)
    count: int = 0

    def _ours(self, name: str) -> bool:
        return name.startswith(self.home + "/") and not name.endswith(IGNORED)

    def _name(self, path: str) -> str:
        return os.path.relpath(path, self.home)

    def read(self, call: str, words: str, result: int) -> Iterator[Op]:
        strings = [bytes.fromhex(s.replace("\\x", "")) for s in STRING.findall(words)]
        if call == "openat":
            yield from self._opened(os.fsdecode(strings[0]), words, result)
        elif call in ("rename", "unlink"):
            names = [os.fsdecode(one) for one in strings]
            if self._ours(names[0]):
                old = self._name(names[0])
                new = self._name(names[-1]) if call == "rename" else ""
                number = self.files.pop(old, -1)
                if new:
                    self.files[new] = number
                yield Op("rename" if new else "unlink", old, new, number)
        elif call == "close":
            self.open.pop(int(words), None)
        elif call != "mkdir":
            descriptor = int(words.split(",")[0])
            if descriptor == self.report and call == "write":
                yield Op("ack", data=strings[0])
            elif descriptor in self.open:
                yield self._done(call, descriptor, words, strings, result)

    def _opened(self, path: str, words: str, result: int) -> Iterator[Op]:
        self.open.pop(result, None)
        # SQLite opens folders without O_DIRECTORY
        if os.path.isdir(path) and (path + "/").startswith(self.home + "/"):
            self.open[result] = (self._name(path), -1)
        elif self._ours(path):
            name = self._name(path)
            if name not in self.files:
                self.files[name] = self.count
                self.count += 1
                yield Op("create", name, file=self.files[name])
            self.open[result] = (name, self.files[name])
            self.offsets[result] = -1 if "O_APPEND" in words else 0
            if "O_TRUNC" in words:
                yield Op("cut", file=self.files[name])

    def _done(
        self, call: str, descriptor: int, words: str, strings: Sequence[bytes], result: int
    ) -> Op:
        path, number = self.open[descriptor]
        if number < 0:
            return Op("folder", path)
        if call in ("fsync", "fdatasync"):
            return Op("sync", file=number)
        if call == "ftruncate":
            return Op("cut", file=number, at=int(words.split(",")[1]))
        data = strings[0][:result]
        if call == "pwrite64":
            return Op("write", file=number, at=int(words.rsplit(",", 1)[1]), data=data)
        at = self.offsets[descriptor]
        if at >= 0:
            self.offsets[descriptor] += result
        return Op("write", file=number, at=at, data=data)


@dataclass(slots=True)
class File:
    """What is certain of a file, what it holds while the power stays on, what is pending."""

    durable: bytes = b""
    pending: list[Op] = field(default_factory=list)

    def after(self, ops: Sequence[Op]) -> bytes:
        content = bytearray(self.durable)
        for op in ops:
            if op.kind == "cut":
                del content[op.at :]
                content.extend(bytes(op.at - len(content)))
            else:
                at = len(content) if op.at < 0 else op.at
                content.extend(bytes(max(0, at - len(content))))
                content[at : at + len(op.data)] = op.data
        return bytes(content)


class Disk:
    """The files of a store as a sequence of operations leaves them."""

    def __init__(self, start: Path) -> None:
        self.start = start
        self.files: dict[int, File] = {}
        self.names: dict[str, int] = {}
        self.moved: list[Op] = []
        self.acks: list[bytes] = []
        self._untouched = {
            str(path.relative_to(start)): path.read_bytes()
            for path in start.rglob("*")
            if path.is_file() and not path.name.endswith(IGNORED)
        }

    def do(self, op: Op) -> None:
        """Follow one operation."""
        if op.kind == "ack":
            self.acks.append(op.data)
        elif op.kind == "create":
            known = self._untouched.pop(op.path, None)
            self.files[op.file] = File(known or b"")
            if known is None:
                self.moved.append(op)
            else:
                self.names[op.path] = op.file
        elif op.kind in ("rename", "unlink"):
            self.moved.append(op)
        elif op.kind == "folder":
            here = [
                m
                for m in self.moved
                if os.path.dirname(m.path) == ("" if op.path == "." else op.path)
                or (m.other and os.path.dirname(m.other) == op.path)
            ]
            self._settle(self.names, here)
            self.moved = [m for m in self.moved if m not in here]
        elif op.kind == "sync":
            file = self.files[op.file]
            file.durable, file.pending = file.after(file.pending), []
        else:
            self.files[op.file].pending.append(op)

    @staticmethod
    def _settle(names: dict[str, int], ops: Sequence[Op]) -> None:
        for op in ops:
            if op.kind == "create":
                names[op.path] = op.file
            else:
                number = names.pop(op.path, op.file)
                if op.kind == "rename":
                    names[op.other] = number

    def cut(self, chosen: random.Random) -> dict[str, bytes]:
        """One of the states that this instant may leave behind, as content by name."""
        names = dict(self.names)
        way = chosen.choice(("all", "none", "some", "torn", "torn"))
        moves = chosen.choice(("all", "none", "first"))
        some = self.moved[: chosen.randint(0, len(self.moved))]
        self._settle(names, {"all": self.moved, "none": [], "first": some}[moves])
        state = dict(self._untouched)
        for name, number in names.items():
            file = self.files.get(number)
            if file is not None:
                state[name] = file.after([*self._kept(file.pending, way, chosen)])
        return state

    @staticmethod
    def _kept(pending: Sequence[Op], way: str, chosen: random.Random) -> Iterator[Op]:
        share = chosen.random()
        for op in pending:
            if way == "all" or (way != "none" and chosen.random() < share):
                if way == "torn" and op.kind == "write" and chosen.random() < 0.5 and op.at >= 0:
                    for at in range(0, len(op.data), SECTOR):
                        if chosen.random() < 0.5:
                            yield Op("write", at=op.at + at, data=op.data[at : at + SECTOR])
                else:
                    yield op


def lay(state: dict[str, bytes], home: Path) -> None:
    """Put a state on disk."""
    for name, content in state.items():
        path = home / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    with (home / "audit.db.ballast").open("wb") as ballast:
        ballast.truncate(16 << 20)
