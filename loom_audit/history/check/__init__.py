"""Checks whether a whole log is what was recorded."""
