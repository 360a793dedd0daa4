"""Tapes: the history of a real project as recorded calls, with a person who edits between them."""
