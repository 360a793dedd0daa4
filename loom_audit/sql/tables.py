"""The tables of a store, and the shapes of their rows.

Never changed once written: `log`, `event`, `tree_node`, `dictionary`. Erasable: `payload`, `blob`,
`blob_content`. `marks`, `viewed` and `read_to` are what people noted; nothing makes them anew. All
other tables are projections and can be rebuilt from the log.

Logs, paths, blobs and sessions are numbered, so that rows hold small integers where they mean
long texts. Times are microseconds since 1970 UTC. Hashes are 32 raw bytes, paths raw bytes
(surrogates of PEP 383 encoded back). Event and call ids are as `packing.pack_id` writes them.
"""

from sqlalchemy import BigInteger, CheckConstraint, Index, Integer, LargeBinary, Table, text
from sqlmodel import Field, SQLModel

BIG = BigInteger().with_variant(Integer(), "sqlite")
"""64 bits; on SQLite an INTEGER, which alone may name the rowid."""

BYTES = LargeBinary()

_CLUSTERED = {"sqlite_with_rowid": False}

_GIVEN = text("id <> x''")
_SCOPE = text("kind IN ('scope.accepted', 'workspace.attached')")
"""The events that say where a workspace is and what is recorded of it."""
_GIT = text("kind = 'git.changed'")


class LogRow(SQLModel, table=True):
    """The name of a log by its number; ids are never used twice."""

    __tablename__ = "log"
    __table_args__ = {"sqlite_autoincrement": True}
    number: int = Field(primary_key=True, sa_type=BIG)
    id: str = Field(unique=True)


class EventRow(SQLModel, table=True):
    """An event; `leaf` is packed (see `packing`), `leaf_hash` is over its unpacked bytes.

    `id` is empty where none was given.
    """

    __tablename__ = "event"
    __table_args__ = (
        Index("event_id", "log", "id", unique=True, sqlite_where=_GIVEN, postgresql_where=_GIVEN),
        Index("event_scope", "log", "seq", sqlite_where=_SCOPE, postgresql_where=_SCOPE),
        Index("event_git", "log", "seq", sqlite_where=_GIT, postgresql_where=_GIT),
        _CLUSTERED,
    )
    log: int = Field(primary_key=True, sa_type=BIG, foreign_key="log.number")
    seq: int = Field(primary_key=True, sa_type=BIG)
    id: bytes = Field(sa_type=BYTES)
    kind: str
    leaf: bytes = Field(sa_type=BYTES)
    leaf_hash: bytes = Field(sa_type=BYTES)


class TreeNodeRow(SQLModel, table=True):
    """A complete Merkle node; only levels 8, 16, … are stored (`merkle_tree` says why)."""

    __tablename__ = "tree_node"
    __table_args__ = (_CLUSTERED,)
    log: int = Field(primary_key=True, sa_type=BIG, foreign_key="log.number")
    level: int = Field(primary_key=True)
    position: int = Field(primary_key=True, sa_type=BIG)
    hash: bytes = Field(sa_type=BYTES)


class DictionaryRow(SQLModel, table=True):
    """What the packed rows of a way n are compressed with (see `packing`)."""

    __tablename__ = "dictionary"
    number: int = Field(primary_key=True, sa_type=BIG)
    words: bytes = Field(sa_type=BYTES)


class PayloadRow(SQLModel, table=True):
    """One payload: packed in the row when it is small, a blob otherwise.

    Its commitment stands in the leaf. `salt` is empty for role `keys`; erased rows are gone.
    """

    __tablename__ = "payload"
    __table_args__ = (_CLUSTERED,)
    log: int = Field(primary_key=True, sa_type=BIG)
    seq: int = Field(primary_key=True, sa_type=BIG)
    role: str = Field(primary_key=True)
    n: int = Field(primary_key=True)
    salt: bytes = Field(sa_type=BYTES)
    content: bytes | None = Field(default=None, sa_type=BYTES)
    blob: int | None = Field(default=None, sa_type=BIG, foreign_key="blob.number")


class BlobRow(SQLModel, table=True):
    """What is known of a content; its stored bytes are in `blob_content` or in a file.

    `encoding` is raw, zstd, zstd-delta, or absent when only the hash is on record. `base` is
    the blob that a delta leans on, `version` its place in the line of deltas, `large` whether
    the bytes are a file of the large-object store. `stored` counts the stored bytes.
    """

    __tablename__ = "blob"
    __table_args__ = (
        CheckConstraint("(encoding = 'zstd-delta') = (base IS NOT NULL)", name="delta_has_base"),
    )
    number: int | None = Field(default=None, primary_key=True, sa_type=BIG)
    sha256: bytes = Field(sa_type=BYTES, unique=True)
    size: int = Field(sa_type=BIG)
    stored: int = Field(default=0, sa_type=BIG)
    encoding: str
    base: int | None = Field(default=None, sa_type=BIG, foreign_key="blob.number")
    version: int = 0
    large: int = 0


class BlobContentRow(SQLModel, table=True):
    """The stored bytes of a content that is not a file."""

    __tablename__ = "blob_content"
    blob: int = Field(primary_key=True, sa_type=BIG, foreign_key="blob.number")
    content: bytes = Field(sa_type=BYTES)


# --- projections --------------------------------------------------------------------------


class WorkspaceRow(SQLModel, table=True):
    """`baseline` is the seq at which the first listing was complete."""

    __tablename__ = "workspace"
    log: int = Field(primary_key=True, sa_type=BIG)
    root: bytes = Field(sa_type=BYTES)
    ignore: str
    max_file_bytes: int = Field(sa_type=BIG)
    attached: int = Field(sa_type=BIG)
    attached_at: int = Field(sa_type=BIG)
    baseline: int | None = Field(default=None, sa_type=BIG)


class SessionRow(SQLModel, table=True):
    """A session's span: `started` and `last` are the seqs of its first and last event."""

    __tablename__ = "session"
    __table_args__ = (
        Index("session_id", "log", "id", unique=True),
        Index("session_started", "log", "started"),
    )
    number: int | None = Field(default=None, primary_key=True, sa_type=BIG)
    log: int = Field(sa_type=BIG)
    id: str
    agent: str = ""
    actor: str = ""
    title: str = ""
    parent: str | None = None
    started: int = Field(sa_type=BIG)
    started_at: int = Field(sa_type=BIG)
    last: int = Field(sa_type=BIG)
    ended: int | None = Field(default=None, sa_type=BIG)
    ended_at: int | None = Field(default=None, sa_type=BIG)
    status: str = "open"
    calls: int = 0
    errors: int = 0
    files: int = 0


_UNFINISHED = text("finished IS NULL")
_NOT_OK = text("status <> 'ok'")


class CallRow(SQLModel, table=True):
    """A call by the seq of its request; `finished` is its number.

    `actor` is null when it is the session's; `reasons` and `reverts` are JSON lists or null.
    `coverage` is as the finish says: `lowered` holds what was found later. `within` is the request
    of the call that contains it.
    """

    __tablename__ = "call"
    __table_args__ = (
        Index("call_id", "log", "call_id"),
        Index("call_number", "log", "finished"),
        Index(
            "call_open",
            "log",
            "requested",
            sqlite_where=_UNFINISHED,
            postgresql_where=_UNFINISHED,
        ),
        Index(
            "call_not_ok",
            "log",
            "requested",
            "status",
            sqlite_where=_NOT_OK,
            postgresql_where=_NOT_OK,
        ),
        _CLUSTERED,
    )
    log: int = Field(primary_key=True, sa_type=BIG)
    requested: int = Field(primary_key=True, sa_type=BIG)
    finished: int | None = Field(default=None, sa_type=BIG)
    session: int | None = Field(default=None, sa_type=BIG)
    call_id: bytes = Field(sa_type=BYTES)
    at: int = Field(sa_type=BIG)
    actor: str | None = None
    tool: str
    effect: str
    status: str
    coverage: str | None = None
    reasons: str | None = None
    summary: str
    error: str = ""
    changed: int = 0
    reverts: str | None = None
    duration: int = Field(default=0, sa_type=BIG)
    sandbox: str = ""
    within: int | None = Field(default=None, sa_type=BIG)


class SpokenRow(SQLModel, table=True):
    """The event `seq` tells a prompt or a message of a session; its text is in the event."""

    __tablename__ = "spoken"
    __table_args__ = (Index("spoken_session", "log", "session", "seq", "role"), _CLUSTERED)
    log: int = Field(primary_key=True, sa_type=BIG)
    seq: int = Field(primary_key=True, sa_type=BIG)
    session: int | None = Field(default=None, sa_type=BIG)
    role: str


class LoweredRow(SQLModel, table=True):
    """The event `seq` lowered the coverage of the call numbered `number`; `reasons` is JSON."""

    __tablename__ = "lowered"
    __table_args__ = (_CLUSTERED,)
    log: int = Field(primary_key=True, sa_type=BIG)
    number: int = Field(primary_key=True, sa_type=BIG)
    seq: int = Field(primary_key=True, sa_type=BIG)
    level: str
    reasons: str


class OutcomeRow(SQLModel, table=True):
    """The event `seq` told how the call numbered `number` ended, whose status was inferred."""

    __tablename__ = "outcome"
    __table_args__ = (_CLUSTERED,)
    log: int = Field(primary_key=True, sa_type=BIG)
    number: int = Field(primary_key=True, sa_type=BIG)
    seq: int = Field(sa_type=BIG)
    status: str
    error: str


class RevertRow(SQLModel, table=True):
    """The call numbered `number` took back the call or event `target`."""

    __tablename__ = "revert"
    __table_args__ = (_CLUSTERED,)
    log: int = Field(primary_key=True, sa_type=BIG)
    number: int = Field(primary_key=True, sa_type=BIG)
    target: int = Field(primary_key=True, sa_type=BIG)


class RevertPathRow(SQLModel, table=True):
    """The call numbered `number` took back a path of the call or event `target`: not all of it, or
    what was left of it.
    """

    __tablename__ = "revert_path"
    __table_args__ = (_CLUSTERED,)
    log: int = Field(primary_key=True, sa_type=BIG)
    number: int = Field(primary_key=True, sa_type=BIG)
    target: int = Field(primary_key=True, sa_type=BIG)
    path: bytes = Field(primary_key=True, sa_type=BYTES)


class PathRow(SQLModel, table=True):
    """The number of a path in a log."""

    __tablename__ = "path"
    __table_args__ = (Index("path_name", "log", "path", unique=True),)
    number: int | None = Field(default=None, primary_key=True, sa_type=BIG)
    log: int = Field(sa_type=BIG)
    path: bytes = Field(sa_type=BYTES)


_OF_A_CALL = text("requested IS NOT NULL")


class ChangeSetRow(SQLModel, table=True):
    """What all file changes of one event have in common.

    `actor` is null when it is the session's. `requested` is the call that made them; `call` is its
    id where that call is not on record. `causes` is a JSON list, as in the fact, or null.
    """

    __tablename__ = "change_set"
    __table_args__ = (
        Index(
            "change_set_call",
            "log",
            "requested",
            sqlite_where=_OF_A_CALL,
            postgresql_where=_OF_A_CALL,
        ),
        _CLUSTERED,
    )
    log: int = Field(primary_key=True, sa_type=BIG)
    seq: int = Field(primary_key=True, sa_type=BIG)
    at: int = Field(sa_type=BIG)
    session: int | None = Field(default=None, sa_type=BIG)
    actor: str | None = None
    origin: str
    requested: int | None = Field(default=None, sa_type=BIG)
    call: bytes | None = Field(default=None, sa_type=BYTES)
    causes: str | None = None


class CandidateRow(SQLModel, table=True):
    """The call may have made the changes of the event `seq`; they are another's, or nobody's."""

    __tablename__ = "candidate"
    __table_args__ = (_CLUSTERED,)
    log: int = Field(primary_key=True, sa_type=BIG)
    requested: int = Field(primary_key=True, sa_type=BIG)
    seq: int = Field(primary_key=True, sa_type=BIG)


class FileChangeRow(SQLModel, table=True):
    """One path before and after; a mode is as in `projections.paths.states`, null when absent."""

    __tablename__ = "file_change"
    __table_args__ = (Index("file_change_path", "log", "path", "seq"), _CLUSTERED)
    log: int = Field(primary_key=True, sa_type=BIG)
    seq: int = Field(primary_key=True, sa_type=BIG)
    n: int = Field(primary_key=True)
    path: int = Field(sa_type=BIG)
    old_mode: int | None = None
    old_size: int | None = Field(default=None, sa_type=BIG)
    old_blob: int | None = Field(default=None, sa_type=BIG)
    new_mode: int | None = None
    new_size: int | None = Field(default=None, sa_type=BIG)
    new_blob: int | None = Field(default=None, sa_type=BIG)


class TreeEntryRow(SQLModel, table=True):
    """One path of the tree at the head; one that is untracked has the mode 0."""

    __tablename__ = "tree_entry"
    __table_args__ = (_CLUSTERED,)
    log: int = Field(primary_key=True, sa_type=BIG)
    path: int = Field(primary_key=True, sa_type=BIG)
    mode: int
    size: int = Field(sa_type=BIG)
    blob: int | None = Field(default=None, sa_type=BIG)


class TreeStepRow(SQLModel, table=True):
    """How the event `seq` changes the tree after its changes: see `projections.paths.steps`."""

    __tablename__ = "tree_step"
    __table_args__ = (Index("tree_step_path", "log", "path", "seq"), _CLUSTERED)
    log: int = Field(primary_key=True, sa_type=BIG)
    seq: int = Field(primary_key=True, sa_type=BIG)
    n: int = Field(primary_key=True)
    what: str
    path: bytes = Field(sa_type=BYTES)


class RelistedRow(SQLModel, table=True):
    """One path of a part of a whole listing, the event `seq`."""

    __tablename__ = "relisted"
    __table_args__ = (_CLUSTERED,)
    log: int = Field(primary_key=True, sa_type=BIG)
    seq: int = Field(primary_key=True, sa_type=BIG)
    path: bytes = Field(primary_key=True, sa_type=BYTES)
    mode: int
    size: int = Field(sa_type=BIG)
    blob: bytes | None = Field(default=None, sa_type=BYTES)


class KeyframeRow(SQLModel, table=True):
    """The whole tree after event `seq`, packed; `latest` is the latest time up to it."""

    __tablename__ = "keyframe"
    log: int = Field(primary_key=True, sa_type=BIG)
    seq: int = Field(primary_key=True, sa_type=BIG)
    latest: int = Field(sa_type=BIG)
    listing: bytes = Field(sa_type=BYTES)


class CheckpointRow(SQLModel, table=True):
    """A mark of a name; `point` is the seq that it names."""

    __tablename__ = "checkpoint"
    log: int = Field(primary_key=True, sa_type=BIG)
    seq: int = Field(primary_key=True, sa_type=BIG)
    name: str
    point: int = Field(sa_type=BIG)
    at: int = Field(sa_type=BIG)
    note: str


class ReachRow(SQLModel, table=True):
    """The latest time of any event so far; clocks can go back."""

    __tablename__ = "reach"
    log: int = Field(primary_key=True, sa_type=BIG)
    latest: int = Field(sa_type=BIG)


class SearchedRow(SQLModel, table=True):
    """How far the full-text index has come."""

    __tablename__ = "searched"
    log: int = Field(primary_key=True, sa_type=BIG)
    seq: int = Field(sa_type=BIG)


# --- what people note while they read: of no event, and in no rebuild ----------------------


class MarksRow(SQLModel, table=True):
    """What marks of a log rest on: the `key` by which parts are named, and the seq up to which
    nothing counts as unread, as there were no marks before.
    """

    __tablename__ = "marks"
    __table_args__ = (_CLUSTERED,)
    log: int = Field(primary_key=True, sa_type=BIG)
    key: bytes = Field(sa_type=BYTES)
    since: int = Field(sa_type=BIG)


class ViewedRow(SQLModel, table=True):
    """A person has viewed the part of this name."""

    __tablename__ = "viewed"
    __table_args__ = (_CLUSTERED,)
    log: int = Field(primary_key=True, sa_type=BIG)
    person: str = Field(primary_key=True)
    part: bytes = Field(primary_key=True, sa_type=BYTES)
    at: int = Field(sa_type=BIG)


class ReadToRow(SQLModel, table=True):
    """A person has read what a session did up to the event `seq`."""

    __tablename__ = "read_to"
    __table_args__ = (_CLUSTERED,)
    log: int = Field(primary_key=True, sa_type=BIG)
    person: str = Field(primary_key=True)
    session: str = Field(primary_key=True)
    seq: int = Field(sa_type=BIG)
    at: int = Field(sa_type=BIG)


metadata = SQLModel.metadata

TABLES: tuple[Table, ...] = tuple(metadata.tables.values())
"""In the order in which they stand here."""
