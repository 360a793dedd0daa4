"""The tables of a store from which rows go when a log is forgotten, besides those of contents.

A test holds these lists, with the tables that stay as they are, against the schema.
"""

from loom_audit.sql.projections.subjects import PROJECTIONS

MARKS = ("marks", "viewed", "read_to")
"""What people noted of a log while they read it: no event tells it, so no rebuild touches it."""

OF_LOG = (*PROJECTIONS, "path", "searched", *MARKS)
"""Tables that are derived from logs, and the marks: the rows of the log go."""

PAYLOADS = "payload"
"""The rows of all events but the one that says that the log is forgotten go."""

FULL_TEXT = "search"
"""Emptied for all logs, which fill it anew when somebody searches: its rows are of all logs in one
index, in which the words of a deleted row stay."""
