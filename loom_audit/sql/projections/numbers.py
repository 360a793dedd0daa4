"""Numbers for paths and contents, which rows hold instead of long texts; they stay for ever."""

from loom_audit.model.events import FilesChanged
from loom_audit.sql.blob_rows import INSERT_ABSENT
from loom_audit.sql.projections import states
from loom_audit.sql.projections.rows import FollowedEvent, Rows
from loom_audit.sql.statements import prepare

TABLES = ()
FACTS = (FilesChanged,)

PATH = "(SELECT number FROM path WHERE log = :log AND path = :path)"
BLOB = "(SELECT number FROM blob WHERE sha256 = :{})"

_PATH = prepare(
    "INSERT INTO path (log, path) VALUES (:log, :path) ON CONFLICT (log, path) DO NOTHING"
)
STATEMENTS = (INSERT_ABSENT, _PATH)


def apply(event: FollowedEvent, rows: Rows) -> None:
    """Number what the event names for the first time."""
    if not isinstance(event.fact, FilesChanged):
        return
    for change in event.fact.changes:
        path = change.path.encode("utf-8", "surrogateescape")
        rows.keep(_PATH, path, path=path)
        for state in (change.before, change.after):
            _, size, digest = states.columns(state)
            if digest is not None and rows.kept(INSERT_ABSENT, digest) is None:
                rows.keep(INSERT_ABSENT, digest, sha256=digest, size=size)
