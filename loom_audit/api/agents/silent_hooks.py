"""Whether a client that is run with our hooks works without them, as its own transcript tells."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from loom_audit.api.agents.finding import find_transcripts
from loom_audit.api.agents.importing import transcript_lines
from loom_audit.clients.known import CLIENTS
from loom_audit.clients.reports import CallBegan
from loom_audit.errors import AuditError

INTERVAL = 0.5
"""Seconds between two looks. A hook comes before its call, so that a call seen twice had none."""


@contextmanager
def telling_unheard(
    client: str, root: str, has_heard: Callable[[], bool], tell: Callable[[], object]
) -> Iterator[None]:
    """Call `tell` once, while the client runs, when it has made a call and no hook came."""
    ended, began = threading.Event(), time.time()

    def look() -> None:
        seen = False
        while not ended.wait(INTERVAL) and not has_heard():
            if has_called(client, root, began):
                if seen:
                    tell()
                    return
                seen = True

    looking = threading.Thread(target=look, daemon=True, name="telling_unheard")
    looking.start()
    try:
        yield
    finally:
        ended.set()
        looking.join()


def has_called(client: str, root: str, since: float) -> bool:
    """Whether a transcript of the client in this folder tells a call that was asked for since."""
    for found in find_transcripts(Path(root), since=since).found:
        if found.client != client:
            continue
        reader = CLIENTS[client].transcript()
        with suppress(AuditError, OSError):
            for line in transcript_lines(Path(found.file)):
                for report in reader.read(line):
                    is_call = isinstance(report, CallBegan)
                    if is_call and (report.at is None or report.at.timestamp() >= since):
                        return True
    return False
