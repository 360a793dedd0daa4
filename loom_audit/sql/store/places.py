"""Every place in a store's tables where something of a log lies, and what becomes of it when the
log is forgotten; a test holds this list against the schema.
"""

from loom_audit.sql.projections.subjects import PROJECTIONS

KEPT = frozenset({"log", "event", "tree_node", "dictionary", "alembic_version"})
"""What proofs rest on, and what is of no log: these tables stay as they are."""

MARKS = ("marks", "viewed", "read_to")
"""What people noted of a log while they read it: no event tells it, so no rebuild touches it."""

OF_LOG = (*PROJECTIONS, "path", "searched", *MARKS)
"""Tables that are derived from logs, and the marks: the rows of the log go."""

PAYLOADS = "payload"
"""The rows of all events but the one that says that the log is forgotten go."""

CONTENTS = ("blob", "blob_content")
"""The rows of contents that no other log names go."""

FULL_TEXT = "search"
"""Emptied for all logs, which fill it anew when somebody searches: its rows are of all logs in one
index, in which the words of a deleted row stay."""
