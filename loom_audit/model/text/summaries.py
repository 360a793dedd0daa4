"""One line about a call, made when its row is written."""

from collections.abc import Mapping
from typing import Any

MAX_SUMMARY = 240
_TELLING = ("command", "cmd", "path", "file_path", "query", "url", "name", "paths")
"""Arguments that say most about a call, most telling first."""
_FROM_TO = (("source", "target"), ("from", "to"))


def summarize(arguments: Any) -> str:
    """Return what a call is about, in at most 240 characters: its command, its path, …"""
    if isinstance(arguments, str):
        return _line(arguments)
    if not isinstance(arguments, Mapping):
        return "" if arguments is None else _line(str(arguments))
    for old, new in _FROM_TO:
        if isinstance(arguments.get(old), str) and isinstance(arguments.get(new), str):
            return _line(f"{arguments[old]} → {arguments[new]}")
    pattern, where = arguments.get("pattern"), arguments.get("path")
    if isinstance(pattern, str) and pattern:
        return _line(f"{pattern} in {where}" if isinstance(where, str) and where else pattern)
    for name in _TELLING:
        value = arguments.get(name)
        if isinstance(value, str) and value:
            return _line(value)
        if isinstance(value, (list, tuple)) and value:
            return _line(" ".join(str(item) for item in value[:MAX_SUMMARY]))
    for value in arguments.values():
        if isinstance(value, str) and value:
            return _line(value)
    return ""


def failure(status: str, result: Any) -> str:
    """Return in a line why a call did not end well; empty when it did."""
    if status == "ok" or not isinstance(result, Mapping):
        return ""
    error = result.get("error")
    if isinstance(error, Mapping):
        error = error.get("message")
    return _line(error) if isinstance(error, str) else ""


def plain_text(text: str) -> str:
    """Return a text as a database can hold it: lone surrogates and NUL escaped."""
    if text.isascii() and "\x00" not in text:
        return text
    return text.encode("utf-8", "backslashreplace").decode().replace("\x00", "\\x00")


def _line(text: str) -> str:
    # enough text even where most of it is white space; a command may have a megabyte
    first = " ".join(text[: 4 * MAX_SUMMARY].split())
    cut = first if len(first) <= MAX_SUMMARY else first[: MAX_SUMMARY - 1] + "…"
    return plain_text(cut)
