"""What git's answers say: refs, what HEAD names, linked worktrees, reflogs, the index's entries."""

import re
from collections.abc import Iterator, Mapping

from loom_audit.errors import ExecutionFailed
from loom_audit.model.git.record import BROKEN, OF_WORKTREE
from loom_audit.ports import GitAnswer, GitFile
from loom_audit.sandbox.git.place import GitPlace

PRESENT = ("cat-file", "--batch-check=%(objectname) %(objecttype)")
REACHED = ("rev-list", "--objects", "--quiet", "--missing=print", "--stdin")
NAMED_BY_HEAD = ("symbolic-ref", "-q", "--no-recurse", "HEAD")
LED_TO_BY_HEAD = ("symbolic-ref", "-q", "HEAD")
"""How git is asked which ref HEAD names; before 2.38 it knows only the last one that this leads to,
and calls the first of these an option that it does not know.
"""

UNKNOWN_OPTION = 129

_BROKEN = re.compile(
    r"^warning: ignoring (?:broken ref|ref with broken name|dangling symref) (.+)$"
)
_LISTED = re.compile(
    rb"(?P<entry>[^\0]*)\0  ctime: \d+:\d+\n  mtime: \d+:\d+\n  dev: \d+\tino: \d+\n"
    rb"  uid: \d+\tgid: \d+\n  size: \d+\tflags: (?P<flags>[0-9a-f]+)\n"
)
_INTENT_TO_ADD = 1 << 29
_LOGGED = re.compile(
    rb"(?:[0-9a-f]+ )?([0-9a-f]{64}|[0-9a-f]{40}) [^>]*> (\d+) [+-]\d{4}\t?(.*)", re.DOTALL
)
"""An entry of a reflog: what the name is since then, when, and the message. Of one in a table it is
not told what the name was before.
"""


def marked_branch(done: GitAnswer) -> str:
    """The branch that HEAD leads to, which is marked among the refs; "" where none is."""
    lines = text_of(done.output).split("\n")
    return next((line.split(" ")[1] for line in lines if line.startswith("*")), "")


def told_refs(done: GitAnswer) -> Mapping[str, str]:
    """The refs by name: an id, `ref: NAME` and an id, or `broken`."""
    broken = filter(None, map(_BROKEN.fullmatch, done.errors.split("\n")))
    names = {one[1]: BROKEN for one in broken}
    for line in filter(None, text_of(done.output).split("\n")):
        found, name, target = line[1:].split(" ", 2)
        names[name] = f"ref: {target} {found}" if target else found
    return names


def linked_worktrees(output: bytes) -> Iterator[tuple[str, str]]:
    """The linked worktrees by their folders: what HEAD is there; the first is the repository's."""
    for record in text_of(output).split("\0\0")[1:]:
        said = dict(line.partition(" ")[::2] for line in record.split("\0"))
        if path := said.get("worktree"):
            head = f"ref: {said['branch']} {said['HEAD']}" if "branch" in said else said.get("HEAD")
            yield f"worktree {path}", f"{head or 'broken'}{' locked' if 'locked' in said else ''}"


def told_logs(output: bytes, place: GitPlace) -> Iterator[tuple[str, GitFile]]:
    """The reflogs that are in tables, as files: their entries as git tells them, the oldest first.

    git does not tell what a name was before an entry.
    """
    lines: dict[str, list[str]] = {}
    for record in text_of(output).split("\0"):
        found, _, rest = record.strip("\n").partition("\t")
        at, _, rest = rest.partition("\t")
        who, _, message = rest.partition("\t")
        name, _, moment = at.rpartition("@{")
        own = name == "HEAD" or name.startswith(OF_WORKTREE)
        # those of other worktrees are told there
        if own or (name.startswith("refs/") and not place.is_shared_inside):
            said = f"{found} {who} {moment.rstrip('}')}\t{message}\n"
            lines.setdefault(f"logs/{name}", []).append(said)
    for path, told in lines.items():
        content = "".join(reversed(told)).encode("utf-8", "surrogateescape")
        yield path, GitFile("file", 0o644, content)


def untold_logs(names: Mapping[str, str]) -> Iterator[str]:
    """The reflogs in tables that git does not tell of names, though they may be there."""
    for name, value in names.items():
        target = value.removeprefix("ref: ").partition(" ")[0]
        if value == BROKEN or (target != value and target not in names):
            yield f"logs/{name}"


def stash_lines(log: bytes) -> Iterator[str]:
    """Id, time and message of each stash, the newest first, as the reflog of stashes lists them.

    git itself lists none of them where the commit of one is gone.
    """
    for line in reversed(log.split(b"\n")):
        if found := _LOGGED.fullmatch(line):
            yield text_of(b" ".join(found.groups()))


def index_entries(output: bytes) -> bytes:
    """The entries of the index, each ended by NUL, without their stamps. ExecutionFailed where
    git lists them in another form.
    """
    lines, end = [], 0
    for found in _LISTED.finditer(output):
        if found.start() != end:
            break
        end = found.end()
        intended = int(found["flags"], 16) & _INTENT_TO_ADD
        lines.append((b"intended " if intended else b"") + found["entry"] + b"\0")
    if end != len(output):
        raise ExecutionFailed("git lists the index in a form that is not known here")
    return b"".join(lines)


def text_of(output: bytes) -> str:
    """What git says as a text, from which its bytes can be had again."""
    return output.decode("utf-8", "surrogateescape")


def kinds_told(text: str) -> Iterator[tuple[str, str]]:
    """The objects that were asked for by `PRESENT`, each with its kind, or `missing`."""
    for line in text.splitlines():
        id, _, kind = line.partition(" ")
        yield id, kind
