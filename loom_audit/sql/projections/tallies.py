"""What is counted of a stretch of a log, for people who look at it now and then."""

from loom_audit.model.actors import OUTSIDE
from loom_audit.model.coverage import NOT_FAILED
from loom_audit.model.records import TALLIED, Tally
from loom_audit.sql.ground.connection import Connection
from loom_audit.sql.ground.statements import prepare
from loom_audit.sql.projections import coverage, outcomes

_LISTED = ", ".join(map(repr, NOT_FAILED))
# word for word the condition of the partial index of calls that are not ok, or it is not used
_NOT_OK = (
    f"SELECT {outcomes.STATUS} AS status FROM call c {outcomes.JOINED} WHERE c.log = :log "
    "AND c.requested > :after AND c.status <> 'ok' AND c.at >= :since AND c.finished IS NOT NULL "
    f"AND {outcomes.STATUS} NOT IN ({_LISTED}) LIMIT {TALLIED + 1}"
)
_FAILED = prepare(f"SELECT count(*), count(CASE status WHEN 'denied' THEN 1 END) FROM ({_NOT_OK})")
_PARTIAL = prepare(
    "SELECT count(*) FROM (SELECT 1 FROM call c WHERE c.log = :log AND c.requested > :after "
    f"AND c.at >= :since AND {coverage.PARTIAL} LIMIT {TALLIED + 1})"
)
_OUTSIDE = prepare(
    "SELECT count(*) FROM (SELECT 1 FROM change_set x WHERE x.log = :log AND x.seq > :after "
    f"AND x.session IS NULL AND x.origin = 'outside' AND x.actor = '{OUTSIDE}' AND x.at >= :since "
    f"LIMIT {TALLIED + 1})"
)


def tally(connection: Connection, log: int, after: int, since: int) -> Tally:
    """What is counted behind an event, from a time in microseconds on."""
    span = {"log": log, "after": after, "since": since}
    [(failed, denied)] = _FAILED.rows(connection, **span)
    return Tally(
        failed=failed,
        denied=denied,
        partial=_PARTIAL.value(connection, **span),
        outside=_OUTSIDE.value(connection, **span),
    )
