"""All that a repository is to hold, from what is on record, and the objects from the mirror."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from loom_audit.errors import ExecutionFailed, NotFound
from loom_audit.history.ground.attachment import Attachment, StoredLog
from loom_audit.history.look.git.kept_objects import STAGED, wanted_objects
from loom_audit.model.files import FileChange, FileState
from loom_audit.model.git.index import without_caches
from loom_audit.model.git.record import (
    INDEX_ENTRIES,
    INDEX_MTIME,
    OBJECT_ID,
    GitName,
    is_setting,
)
from loom_audit.model.plans.git_settings import is_of_long_ids, run_lines
from loom_audit.model.plans.git_things import GitThing, is_led_out
from loom_audit.model.text.display import count_text
from loom_audit.ports import (
    GitFile,
    GitSeen,
    GitWhole,
    IndexBytes,
)
from loom_audit.ports.git_objects import LONG_ID
from loom_audit.ports.git_restorer import Settings

MOST_ASKED = 500
"""How often git is asked which of the objects that only logs name are whole."""


def whole_of(stored: StoredLog, thing: GitThing) -> GitWhole:
    """All that a repository is to hold but objects. ExecutionFailed where a content is erased."""
    files = {
        one.path: file_of(stored, one.after)
        for one in thing.files
        if one.after is not None and one.path not in (INDEX_ENTRIES, "index")
        if not is_led_out(one)
    }
    files = {path: one for path, one in files.items() if not run_lines(path, one.content)}
    names = {one.name: one.after for one in thing.names if one.after is not None}
    index = index_of(stored, thing.names, thing.files, apart=True)
    return GitWhole(names, files, index, has_long_ids(stored, thing))


def has_long_ids(stored: StoredLog, thing: GitThing) -> bool:
    """Whether the ids of a repository are by SHA-256; one that names none says it in its settings.

    ExecutionFailed where these were erased.
    """
    values = [one.after for one in thing.names if one.after and one.name != "index"]
    found = {len(id) for one in values if OBJECT_ID.fullmatch(id := one.rpartition(" ")[2])}
    if found:
        return LONG_ID in found
    config = next((one.after for one in thing.files if one.path == "config"), None)
    return config is not None and is_of_long_ids(content_of(stored, config))


def entries_of(stored: StoredLog, files: Mapping[str, FileState]) -> bytes:
    """The entries of an index, as they are on record. ExecutionFailed where they are erased."""
    return content_of(stored, files[INDEX_ENTRIES]) if INDEX_ENTRIES in files else b""


def packed_objects(attachment: Attachment, whole: GitWhole, entries: bytes) -> tuple[bytes, str]:
    """A pack of `packed_ids` and of what they lead to, from the mirror, and what is not kept.

    ExecutionFailed.
    """
    mirror, git = attachment.on_disk.mirror, attachment.on_disk.mirrored_git
    ids, not_kept = packed_ids(attachment, whole, entries)
    if not ids or mirror is None or git is None:
        return b"", not_kept
    return git.pack(mirror.folder(long_ids=whole.long_ids), ids, shallow_of(whole)), not_kept


def packed_ids(
    attachment: Attachment, whole: GitWhole, entries: bytes
) -> tuple[Sequence[str], str]:
    """All that a repository names; what only a log or the file of something in progress names comes
    along where it is kept, else it is said. ExecutionFailed where other objects are not kept.
    """
    mirror, git = attachment.on_disk.mirror, attachment.on_disk.mirrored_git
    needed = [*dict.fromkeys(wanted_objects(GitSeen(whole.names, {}, entries)))]
    if not needed:
        return (), ""
    if mirror is None or git is None:
        raise ExecutionFailed("of an imported log no objects are kept")
    place = mirror.folder(long_ids=whole.long_ids)
    shallow = shallow_of(whole)
    if missing := git.missing(place, needed, (), shallow):
        raise ExecutionFailed(
            f"git: {len(missing)} objects that would come back are not kept: {missing[0]}",
            hint="`loom-audit doctor` says what of the mirror is missing; --no-git leaves git.",
        )
    more = {*wanted_objects(GitSeen({}, whole.files)), *_logged(whole)} - {*needed}
    taken = whole_ids(lambda ids: git.missing(place, ids, needed, shallow), sorted(more))
    left = len(more) - len(taken)
    said = (
        f"git: {count_text(left, 'object')} that only logs name, with what they lead to, not kept"
    )
    return [*needed, *taken], said if left else ""


def shallow_of(whole: GitWhole) -> bytes:
    """The content of the file that says where its histories end; b"" where it is not there."""
    return whole.files["shallow"].content if "shallow" in whole.files else b""


def whole_ids(missing: Callable[[Sequence[str]], Sequence[str]], ids: Sequence[str]) -> list[str]:
    """Those ids of which all is kept that they lead to, found by halves; some of them where too
    many are not.
    """
    found: list[str] = []
    left = [ids] if ids else []
    for _ in range(MOST_ASKED):
        if not left:
            break
        some = left.pop()
        try:
            lacking = {*missing(some)}
        except ExecutionFailed:  # one of them leads to a commit that is not there
            lacking = {*some}
        rest = [id for id in some if id not in lacking]
        if not lacking:
            found += some
        elif rest and len(rest) < len(some):
            left.append(rest)
        elif len(some) > 1:
            middle = len(some) // 2
            left += [some[middle:], some[:middle]]
    return found


def _logged(whole: GitWhole) -> Iterable[str]:
    """The ids to which the logs of refs say that these moved."""
    for path, file in whole.files.items():
        if path.startswith("logs/"):
            for line in file.content.decode("ascii", "replace").split("\n"):
                words = line.split(" ", 2)
                if len(words) == 3 and OBJECT_ID.fullmatch(words[1]) and words[1].strip("0"):
                    yield words[1]


def index_of(
    stored: StoredLog,
    names: Iterable[GitName],
    files: Iterable[FileChange],
    *,
    apart: bool = False,
) -> IndexBytes | None:
    """What the index becomes; None where it stays. ExecutionFailed where its content is erased."""
    values = {one.name: one.after for one in names}
    if "index" not in values:
        return None
    state = next((one.after for one in files if one.path == "index"), None)
    if state is None:
        return IndexBytes(None)
    content = content_of(stored, state)
    for long_ids in (False, True):  # its checksum tells
        try:
            made = without_caches(content, long_ids=long_ids, apart=apart)
        except (ValueError, IndexError):
            continue
        return IndexBytes(made, int(values.get(INDEX_MTIME) or 0))
    raise ExecutionFailed("the index on record cannot be read")


def settings_of(stored: StoredLog, files: Iterable[FileChange]) -> Settings:
    """The hooks and settings among files, each as it is and as it is to be. ExecutionFailed."""

    def file(state: FileState | None) -> GitFile | None:
        return None if state is None else file_of(stored, state)

    run = (one for one in files if is_setting(one.path))
    return {one.path: (file(one.before), file(one.after)) for one in run}


def file_of(stored: StoredLog, state: FileState) -> GitFile:
    """A file of git that is on record. ExecutionFailed."""
    return GitFile(state.kind, state.mode or 0o644, content_of(stored, state))


def content_of(stored: StoredLog, state: FileState) -> bytes:
    """The bytes of a file of git that is on record; ExecutionFailed."""
    if state.blob is None:
        raise ExecutionFailed("the content of a file of git is not on record")
    return stored.blobs.get(state.blob)


def content_kept(stored: StoredLog, state: FileState | None) -> bytes | None:
    """The content of a file of git that is on record; None for none, and where it was erased."""
    if state is None or state.blob is None:
        return None
    try:
        return stored.blobs.get(state.blob)
    except NotFound:
        return None


def wanted_ids(
    stored: StoredLog, names: Iterable[GitName], files: Iterable[FileChange]
) -> Iterable[str]:
    """The objects that names and an index need. ExecutionFailed where its entries are erased."""
    for one in names:
        if one.name == "stashes":
            yield from (line.partition(" ")[0] for line in (one.after or "").split("\n") if line)
        elif one.after and OBJECT_ID.fullmatch(one.after) and one.name != "index":
            yield one.after
    for file in files:
        if file.path == INDEX_ENTRIES and file.after is not None:
            content = content_of(stored, file.after)
            yield from (found[1].decode() for found in STAGED.finditer(content))
