"""Brings repositories of the workspace back to what was on record, as a step of a call."""
