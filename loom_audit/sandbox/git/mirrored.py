"""Asks git in a mirror of objects, whose own git folder has no refs and no settings of others'."""

import os
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from loom_audit.errors import ExecutionFailed
from loom_audit.model.git.record import HEAD_COMMIT, OBJECT_ID
from loom_audit.ports import GitAnswer, GitPoint
from loom_audit.ports.git_objects import LONG_ID, bare_settings
from loom_audit.sandbox.git.answers import PRESENT, REACHED, kinds_told
from loom_audit.sandbox.git.files import FOLDER
from loom_audit.sandbox.git.loose import are_whole
from loom_audit.sandbox.git.program import MAX_OUTPUT, ask_git, check_answer, find_git
from loom_audit.sandbox.git.writing import refused_pack
from loom_audit.sandbox.scratch import scratch_folder

SECONDS = 30.0
"""Seconds for all that a call waits for."""
HASHING_SECONDS = 600.0
"""Seconds for `doctor`, which hashes all of a mirror."""
MOST_INDEX = 1 << 30
MOST_PACKED = 1 << 30
FEW = 50
"""The number of ids up to which git is not asked first which of them are there."""

MOST_WHOLE = 2_000
"""The number of ids that are given to git as those at which it can stop."""

_HASHED = ("fsck", "--full", "--no-dangling", "--no-progress")
_DAMAGED = re.compile(
    r"mismatch|corrupt|garbage|does not match|inflate|unable to (?:unpack|parse|read contents)"
)
"""In a line of git: that an object is damaged. Others are of objects that are not there."""

_REF = re.compile(r"refs/[^\x00-\x20\x7f~^:?*\[\\]+")
_SETTINGS = (
    *(
        part
        for name in ("gpg", "gpg.ssh", "gpg.x509")
        for part in ("-c", f"{name}.program=/nonexistent")
    ),
)
_LEAN = (*("-c", "core.bigFileThreshold=16m"), *("-c", "core.deltaBaseCacheLimit=64m"))
"""What keeps the memory of `index-pack` small; objects over the first are read in pieces."""


class ProgramMirroredGit:
    """A `ports.MirroredGit` that asks the program `git`, which is not taken from the workspace."""

    def __init__(self, root: str) -> None:
        self._root = root

    def missing(
        self, mirror: str, wanted: Sequence[str], whole: Sequence[str], shallow: bytes
    ) -> Sequence[str]:
        """The wanted ids, and those that they lead to, that are not in the mirror."""
        if len(wanted) <= FEW:
            if not shallow and _are_whole(mirror, wanted, whole):
                return ()
            with suppress(ExecutionFailed):  # one of them is not there
                return self._missing_below(mirror, wanted, whole, shallow)
        kinds = self.kinds(mirror, wanted)
        missing = [id for id, kind in kinds.items() if kind == "missing"]
        if there := [id for id, kind in kinds.items() if kind not in ("missing", "blob")]:
            missing += self._missing_below(mirror, there, whole, shallow)
        return missing

    def _missing_below(
        self, mirror: str, ids: Sequence[str], whole: Sequence[str], shallow: bytes
    ) -> Sequence[str]:
        """The ids that are not in the mirror of those that these, which are there, lead to."""
        ends = [f"^{one}" for one in whole[-MOST_WHOLE:]]
        given = "".join(f"{one}\n" for one in (*ids, *ends))
        try:
            reached = self._said(mirror, REACHED, given.encode("ascii"), shallow)
        except ExecutionFailed:
            if not ends:
                raise
            # one of them may be what git refuses, which is not to keep it from telling of others
            return self._missing_below(mirror, ids, (), shallow)
        return [one[1:] for one in reached.split() if one.startswith("?")]

    def kinds(self, mirror: str, ids: Sequence[str]) -> Mapping[str, str]:
        """The kind of each object, `missing` of one that is not there."""
        given = "".join(f"{one}\n" for one in dict.fromkeys(ids)).encode("ascii")
        return dict(kinds_told(self._said(mirror, PRESENT, given, b"")))

    def index(self, mirror: str, pack: str, made: str, seconds: float) -> bool:
        """Write the index of a pack out of its objects alone; whether it is a whole pack."""
        # beside no other objects: those of the same ids would be compared, byte by byte
        words = (*_LEAN, "index-pack", "--no-rev-index", "-o", made, pack)
        apart = os.path.dirname(pack)
        done = self._run(mirror, words, seconds=seconds, limit=MOST_INDEX, objects=apart)
        return done.code == 0

    def pack(self, mirror: str, wanted: Sequence[str], shallow: bytes) -> bytes:
        """A pack of the wanted objects and all that they lead to."""
        return self._pack(mirror, wanted, shallow, HASHING_SECONDS)

    def _pack(self, mirror: str, wanted: Sequence[str], shallow: bytes, seconds: float) -> bytes:
        given = "".join(f"{one}\n" for one in wanted).encode("ascii")
        with _shallow_words(shallow) as words:
            pack = (*words, *_LEAN, "pack-objects", "--stdout", "--revs", "-q")
            done = self._run(mirror, pack, given=given, seconds=seconds, limit=MOST_PACKED)
        check_answer(done)
        return done.output

    def refused(
        self, mirror: str, wanted: Sequence[str], shallow: bytes, seconds: float
    ) -> str | None:
        """What git says where it would not take such a pack; None where that takes too long."""
        end = time.monotonic() + seconds

        def ask(words: Sequence[str], given: bytes, _: float, limit: int) -> GitAnswer:
            left = max(0.0, end - time.monotonic())
            return self._run(scratch, (*_LEAN, *words), given=given, seconds=left, limit=limit)

        with scratch_folder() as scratch:
            _lay(scratch, GitPoint(shallow=shallow, long_ids=len(wanted[0]) == LONG_ID))
            Path(scratch, "objects").mkdir()
            try:
                return refused_pack(ask, self._pack(mirror, wanted, shallow, seconds))
            except ExecutionFailed:
                if time.monotonic() < end:
                    raise
        return None

    def damaged(self, mirror: str) -> Sequence[str]:
        """What git says of each object or pack that is not what its name says."""
        done = self._run(mirror, _HASHED, seconds=HASHING_SECONDS)
        said = done.output.decode("utf-8", "replace") + done.errors
        return [line for line in said.splitlines() if _DAMAGED.search(line)]

    def _said(self, mirror: str, words: Sequence[str], given: bytes, shallow: bytes) -> str:
        with _shallow_words(shallow) as before:
            done = self._run(mirror, (*before, *words), given=given)
        check_answer(done)
        return done.output.decode("ascii", "replace")

    def _run(
        self,
        folder: str,
        words: Sequence[str],
        *,
        given: bytes = b"",
        seconds: float = SECONDS,
        limit: int = MAX_OUTPUT,
        objects: str = "",
    ) -> GitAnswer:
        """Run git in a git folder, with its `objects` or those of another. ExecutionFailed where it
        was ended by a signal.
        """
        folders = {"GIT_DIR": folder, "GIT_COMMON_DIR": folder}
        if objects:
            folders["GIT_OBJECT_DIRECTORY"] = objects
        program = find_git(self._root)
        asked = ask_git(program, folder, folders, words, seconds=seconds, limit=limit, given=given)
        if asked[0].code < 0:
            check_answer(asked[0])
        return asked[0]

    def ask(
        self, mirror: str, point: GitPoint, words: Sequence[str], given: bytes = b""
    ) -> GitAnswer:
        """Run a git command in a mirror that has the refs of a point."""
        with scratch_folder() as scratch:
            _lay(scratch, point)
            kept = os.path.join(mirror, "objects")
            return self._run(scratch, (*_SETTINGS, *words), given=given, objects=kept)


def _are_whole(mirror: str, wanted: Sequence[str], whole: Sequence[str]) -> bool:
    with suppress(FileNotFoundError):
        objects = os.open(os.path.join(mirror, "objects"), FOLDER)
        try:
            return are_whole(objects, wanted, whole)
        finally:
            os.close(objects)
    return False


@contextmanager
def _shallow_words(shallow: bytes) -> Iterator[tuple[str, ...]]:
    """The words before a command that let git end histories where a content of `shallow` says."""
    if not shallow:
        yield ()
        return
    with scratch_folder() as folder:
        file = Path(folder, "shallow")
        file.write_bytes(shallow)
        yield ("--shallow-file", str(file))


def _lay(folder: str, point: GitPoint) -> None:
    """Make a git folder without objects of an empty one. OSError."""
    for name in ("refs", "logs/refs"):
        Path(folder, name).mkdir(parents=True)
    for name, content in _git_folder(point).items():
        Path(folder, name).write_text(content, "utf-8", "surrogateescape")
    if point.shallow:
        Path(folder, "shallow").write_bytes(point.shallow)


def _git_folder(point: GitPoint) -> dict[str, str]:
    """The files of a git folder that has the HEAD, refs and stashes of a point."""
    refs = {}
    for name, value in point.names.items():
        id = value.rpartition(" ")[2]
        if _REF.fullmatch(name) and OBJECT_ID.fullmatch(id):
            refs[name] = id
    head = point.names.get(HEAD_COMMIT) or point.names.get("HEAD", "")
    target = head.removeprefix("ref: ")
    if not (OBJECT_ID.fullmatch(head) or (head != target and _REF.fullmatch(target))):
        head = "ref: refs/heads/none"
    return {
        "HEAD": f"{head}\n",
        "config": bare_settings(long_ids=point.long_ids),
        "packed-refs": "".join(f"{id} {name}\n" for name, id in sorted(refs.items())),
        "logs/refs/stash": "".join(_stash_log(point)),
    }


def _stash_log(point: GitPoint) -> Iterator[str]:
    """The lines of the log of stashes, the oldest first."""
    before = "0" * (64 if point.long_ids else 40)
    for line in reversed(point.names.get("stashes", "").split("\n")):
        id, _, rest = line.partition(" ")
        seconds, _, message = rest.partition(" ")
        if OBJECT_ID.fullmatch(id) and seconds.isdecimal():
            yield f"{before} {id} loom-audit <loom-audit> {seconds} +0000\t{message}\n"
            before = id
