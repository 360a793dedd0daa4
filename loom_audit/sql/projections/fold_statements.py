"""The statements by which projections follow the log, in words that SQLite and PostgreSQL share."""

from loom_audit.sql.statements import prepare

_SESSION = "(SELECT number FROM session WHERE log = :log AND id = :session)"
_PATH = "(SELECT number FROM path WHERE log = :log AND path = :path)"
_BLOB = "(SELECT number FROM blob WHERE sha256 = :{})"

SESSION_SEEN = prepare(
    "INSERT INTO session (log, id, agent, actor, title, started, started_at, last, status, "
    "calls, errors, files) VALUES (:log, :id, '', :actor, '', :started, :started_at, :last, "
    "'open', :calls, :errors, 0) ON CONFLICT (log, id) DO UPDATE SET last = excluded.last, "
    "calls = session.calls + excluded.calls, errors = session.errors + excluded.errors"
)
SESSION_STARTED = prepare(
    "UPDATE session SET agent = :agent, actor = :actor, title = :title, parent = :parent, "
    "ended = NULL, ended_at = NULL, status = 'open' WHERE log = :log AND id = :id"
)
SESSION_ENDED = prepare(
    "UPDATE session SET ended = :ended, ended_at = :ended_at, status = :status "
    "WHERE log = :log AND id = :id"
)
SESSION_CHANGED = prepare(
    "UPDATE session SET files = files + (SELECT count(DISTINCT f.path) FROM file_change f "
    "WHERE f.log = :log AND f.seq = :seq AND NOT EXISTS (SELECT 1 FROM file_change g "
    "JOIN change_set s ON s.log = g.log AND s.seq = g.seq WHERE g.log = f.log "
    "AND g.path = f.path AND g.seq < :seq AND g.seq >= session.started "
    "AND s.session = session.number AND s.call IS NOT NULL)) WHERE log = :log AND id = :id"
)

CALL_REQUESTED = prepare(
    "INSERT INTO call (log, requested, session, call_id, at, actor, tool, effect, status, "
    f"summary, error, changed, duration, sandbox) VALUES (:log, :requested, {_SESSION}, "
    ":call_id, :at, nullif(:actor, (SELECT actor FROM session WHERE log = :log "
    "AND id = :session)), :tool, :effect, 'open', :summary, '', 0, 0, '')"
)
CALL_FINISHED = prepare(
    "UPDATE call SET finished = :finished, status = :status, coverage = :coverage, "
    "reasons = :reasons, error = :error, reverts = :reverts, duration = :duration, "
    "sandbox = :sandbox WHERE log = :log AND call_id = :call_id "
    f"AND session IS NOT DISTINCT FROM {_SESSION} AND finished IS NULL"
)
CALL_STATE = prepare(
    "SELECT finished FROM call WHERE log = :log AND call_id = :call_id "
    f"AND session IS NOT DISTINCT FROM {_SESSION}"
)
CALL_OF = prepare(
    "SELECT requested FROM call WHERE log = :log AND call_id = :call_id ORDER BY "
    f"CASE WHEN session IS NOT DISTINCT FROM {_SESSION} THEN 0 ELSE 1 END, "
    "requested DESC LIMIT 1"
)
CALL_CHANGE = prepare(
    "INSERT INTO call_change (log, requested, seq, own) VALUES (:log, :requested, :seq, :own) "
    "ON CONFLICT DO NOTHING"
)
CALL_CHANGED = prepare(
    "UPDATE call SET changed = changed + (SELECT count(DISTINCT f.path) FROM file_change f "
    "WHERE f.log = :log AND f.seq = :seq AND NOT EXISTS (SELECT 1 FROM call_change c "
    "JOIN file_change g ON g.log = c.log AND g.seq = c.seq AND g.path = f.path "
    "WHERE c.log = :log AND c.requested = :requested AND c.seq < :seq AND c.own = 1)) "
    "WHERE log = :log AND requested = :requested"
)
REVERTED = prepare("INSERT INTO revert (log, number, target) VALUES (:log, :number, :target)")
CALL_ROLLED_UP = prepare(
    "INSERT INTO rollup (log, hour, tool, status, n) VALUES (:log, :hour, :tool, :status, 1) "
    "ON CONFLICT (log, hour, tool, status) DO UPDATE SET n = rollup.n + 1"
)

CHANGE_SET = prepare(
    "INSERT INTO change_set (log, seq, at, session, actor, origin, call, causes) "
    f"VALUES (:log, :seq, :at, {_SESSION}, :actor, :origin, :call, :causes)"
)
PATH = prepare(
    "INSERT INTO path (log, path) VALUES (:log, :path) ON CONFLICT (log, path) DO NOTHING"
)
FILE_CHANGE = prepare(
    "INSERT INTO file_change (log, seq, n, path, old_mode, old_size, old_blob, new_mode, "
    f"new_size, new_blob) VALUES (:log, :seq, :n, {_PATH}, :old_mode, :old_size, "
    f"{_BLOB.format('old_blob')}, :new_mode, :new_size, {_BLOB.format('new_blob')})"
)
TREE_SET = prepare(
    f"INSERT INTO tree_entry (log, path, mode, size, blob) VALUES (:log, {_PATH}, :new_mode, "
    f":new_size, {_BLOB.format('new_blob')}) ON CONFLICT (log, path) DO UPDATE SET "
    "mode = excluded.mode, size = excluded.size, blob = excluded.blob"
)
TREE_DELETED = prepare(f"DELETE FROM tree_entry WHERE log = :log AND path = {_PATH}")

WORKSPACE_ATTACHED = prepare(
    "INSERT INTO workspace (log, root, ignore, max_file_bytes, attached, attached_at) "
    "VALUES (:log, :root, :ignore, :max_file_bytes, :attached, :attached_at) "
    "ON CONFLICT (log) DO UPDATE SET root = excluded.root, ignore = excluded.ignore, "
    "max_file_bytes = excluded.max_file_bytes"
)
BASELINE_FINISHED = prepare("UPDATE workspace SET baseline = :seq WHERE log = :log")
SCOPE_ACCEPTED = prepare("UPDATE workspace SET ignore = :ignore WHERE log = :log")
CHECKPOINT_MARKED = prepare(
    "INSERT INTO checkpoint (log, seq, name, point, at, note) "
    "VALUES (:log, :seq, :name, :point, :at, :note)"
)
REACHED = prepare(
    "INSERT INTO reach (log, latest) VALUES (:log, :latest) ON CONFLICT (log) DO UPDATE "
    "SET latest = excluded.latest WHERE excluded.latest > reach.latest"
)
