"""Recordings of real clients, and what a reader makes of them."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from loom_audit.clients.known import CLIENTS
from loom_audit.clients.reports import CallBegan, CallEnded, Hook, Report

RECORDINGS = Path(__file__).parent.parent / "data" / "clients"
KNOWN = TypeVar("KNOWN", bound=Report)


def lines(name: str) -> list[bytes]:
    return (RECORDINGS / name).read_bytes().splitlines()


def read(client: str, recorded: Iterable[bytes]) -> tuple[list[Report], Counter[str]]:
    """What a transcript reports, and what in it was not understood."""
    reader = CLIENTS[client].transcript()
    reports = [report for line in recorded for report in reader.read(line)]
    return reports, reader.unread


def hooks(client: str, name: str) -> list[Hook]:
    return [CLIENTS[client].read_hook(line) for line in lines(name)]


def hook(client: str, **given: Any) -> Hook:
    return CLIENTS[client].read_hook(json.dumps(given).encode())


def of_kind(reports: Iterable[Report], kind: type[KNOWN]) -> list[KNOWN]:
    return [report for report in reports if isinstance(report, kind)]


def told(hook: Hook, kind: type[KNOWN]) -> KNOWN:
    """The one report of a kind that a hook gives."""
    [report] = of_kind(hook.reports, kind)
    return report


Outcome = tuple[str | None, int | None]
"""How a call ended, and its exit code."""


def outcomes(reports: Iterable[Report]) -> dict[str, list[Outcome]]:
    """How each call ended, as often as that is told."""
    found: dict[str, list[Outcome]] = {}
    for end in of_kind(reports, CallEnded):
        data: Mapping[str, Any] = end.result["data"]
        found.setdefault(end.call_id, []).append((end.status, data.get("exit_code")))
    return found


def began(reports: Iterable[Report]) -> dict[str, CallBegan]:
    return {report.call_id: report for report in of_kind(reports, CallBegan)}
