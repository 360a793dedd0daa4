"""Numbers for paths and contents, which rows hold instead of long texts; they stay for ever."""

from collections.abc import Sequence

from loom_audit.model.continuity import TREE_FACTS
from loom_audit.model.events import FilesChanged, PathsUntracked, ScopeAccepted, TreeRelisted
from loom_audit.model.files import FileChange
from loom_audit.sql.contents.blob_rows import INSERT_ABSENT
from loom_audit.sql.ground.packing import pack_path
from loom_audit.sql.ground.statements import insert_into
from loom_audit.sql.projections.paths import states
from loom_audit.sql.projections.rows import FollowedEvent, Rows

TABLES = ()
FACTS = TREE_FACTS

PATH = "(SELECT number FROM path WHERE log = :log AND path = :path)"
BLOB = "(SELECT number FROM blob WHERE sha256 = :{})"

_PATH = insert_into("path", ("path",), "ON CONFLICT (log, path) DO NOTHING")
STATEMENTS = (INSERT_ABSENT, _PATH)


def apply(event: FollowedEvent, rows: Rows) -> None:
    """Number what the event names for the first time."""
    changes: Sequence[FileChange] = ()
    more: Sequence[str] = ()
    match event.fact:
        case FilesChanged(changes=changes):
            pass
        case TreeRelisted(changes=changes, untracked=untracked):
            more = [one.path for one in untracked]
        case PathsUntracked(paths=untracked):
            more = [one.path for one in untracked]
        case ScopeAccepted(untracked=more):
            pass
    for path in (*(change.path for change in changes), *more):
        raw = pack_path(path)
        rows.keep(_PATH, raw, path=raw)
    for change in changes:
        for state in (change.before, change.after):
            _, size, digest = states.columns(state)
            if digest is not None and rows.kept(INSERT_ABSENT, digest) is None:
                rows.keep(INSERT_ABSENT, digest, sha256=digest, size=size)
