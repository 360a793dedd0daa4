"""Keeps the objects that a repository names, before a record says that it names them."""

import re
from collections.abc import Iterator, Set

from loom_audit.errors import AuditError
from loom_audit.history.ground.attachment import Attachment
from loom_audit.model.git.record import INDEX_ENTRIES, OBJECT_ID, path_elsewhere
from loom_audit.model.text.display import count_text, visible
from loom_audit.ports import GitSeen, MirroredGit, MissingObjects, ObjectMirror
from loom_audit.ports.git_objects import LONG_ID, SHORT_ID

STAGED = re.compile(rb"(?:\A|(?<=\0))\S (?!160000)[0-7]{6} ([0-9a-f]{40,64}) ")
"""An entry of an index that names an object; the path of another may read like one."""

_NAMING = re.compile(
    r"[A-Z_]+_HEAD|AUTO_MERGE|MERGE_AUTOSTASH|BISECT_EXPECTED_REV"
    r"|(?:rebase-merge|rebase-apply|sequencer)/(?:onto|orig-head|head|stopped-sha|squash-onto"
    r"|autostash|amend|abort-safety|original-commit|rewritten|rewritten-list|rewritten-pending)"
)
"""The files of a git folder whose lines begin with an object's id: a message can begin so, too."""

MOST_NAMED = 1_000
"""The number of missing objects that are named to the mirror; the others are counted."""

_LINES = re.compile(r"^[0-9a-f]{64}(?=\s|$)|^[0-9a-f]{40}(?=\s|$)", re.MULTILINE)


def keep_objects(attachment: Attachment, folder: str, seen: GitSeen) -> tuple[str, ...]:
    """Copy the objects of a repository into the mirror, and see that what it names is there.

    The repository is the one in a folder of the workspace, "" for its top.

    Returns in words what is not there, now or since the last time, and why. What fails here fails
    no call: the words say it.
    """
    mirror, git = attachment.on_disk.mirror, attachment.on_disk.mirrored_git
    if mirror is None or git is None:
        return ()
    if not seen.holds_objects:
        where = f" in {visible(folder)}" if folder else ""
        return (f"git: the objects of the linked worktree{where} are elsewhere, and not kept",)
    said, reasons = list[str](), list[str]()
    try:
        for place in (seen.holds_objects, *seen.modules):
            said += mirror.left_out(place)
            reasons += mirror.take(place, git)
    except AuditError as error:
        return (f"git: objects are not kept: {error.message}",)
    said = [*dict.fromkeys((*said, *reasons))]
    try:
        if missing := _missing(mirror, git, seen):
            why = "kept" if reasons else "in it"
            said.append(f"git: {count_text(missing, 'object')} that git names not {why}")
    except AuditError as error:
        said.append(f"git: whether all objects are kept cannot be told: {error.message}")
    return tuple(said)


def _missing(mirror: ObjectMirror, git: MirroredGit, seen: GitSeen) -> int:
    """How many of the objects that repositories name, or that these lead to, are not in the mirror.

    Of this one only what is new is followed. What was missing before is asked for again, under the
    `shallow` of the repository that names it: another's could end the way before what is missing.
    """
    file = seen.files.get("shallow")
    own = file.content if file else b""
    for shallow in dict.fromkeys((own, *mirror.shallows())):
        _follow(mirror, git, seen if shallow == own else GitSeen(), shallow)
    return mirror.missing().count


def _follow(mirror: ObjectMirror, git: MirroredGit, seen: GitSeen, shallow: bytes) -> None:
    """Note which ids that a repository names are whole under a `shallow`, and what is missing."""
    whole, before = mirror.whole(shallow), mirror.missing(shallow)
    known = {*whole}
    new = [*dict.fromkeys(id for id in wanted_objects(seen, known) if id not in known)]
    if not new and not before.some:
        return
    missing: set[str] = set()
    for length in (SHORT_ID, LONG_ID):  # a repository may be replaced by one of the other kind
        wanted, reached = (
            [id for id in ids if len(id) == length] for ids in ((*before.some, *new), whole)
        )
        if wanted:
            place = mirror.folder(long_ids=length == LONG_ID)
            missing.update(git.missing(place, wanted, reached, shallow))
    still = [id for id in before.some if id in missing]
    count = before.count - len(before.some) + len(missing)
    # what is missing leads nowhere, and git cannot stop at it
    found = MissingObjects(count, (*still, *(missing - {*still}))[:MOST_NAMED])
    mirror.note([id for id in new if id not in missing], found, shallow)


def _staged(entries: bytes) -> Iterator[str]:
    """The objects that the entries of an index name."""
    return (found[1].decode() for found in STAGED.finditer(entries))


def wanted_objects(seen: GitSeen, known: Set[str] = frozenset()) -> Iterator[str]:
    """The ids that a repository names: in its index, in files of what is in progress, by refs.

    Refs are many: of what they name only what is not `known` is told.
    """
    yield from _staged(seen.entries)
    for path, file in seen.files.items():
        elsewhere = path_elsewhere(path)
        own = elsewhere[1] if elsewhere else path
        if elsewhere and own == INDEX_ENTRIES:
            yield from _staged(file.content)
        elif _NAMING.fullmatch(own) and file.kind == "file":
            yield from _LINES.findall(file.content[:65_536].decode("ascii", "replace"))
    values = (value for name, value in seen.names.items() if name not in ("stashes", "index"))
    ids = filter(OBJECT_ID.fullmatch, {*" ".join(values).split(" ")} - known)
    yield from sorted(id for id in ids if id.strip("0"))  # of a worktree without commit
    yield from (line.partition(" ")[0] for line in seen.names.get("stashes", "").splitlines())
