"""For how long a request may arrive: uvicorn waits for the rest of one for ever."""

import asyncio
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

SECONDS = 30.0
"""From the opening of a connection, or the first byte of a later request, to the request's last."""

_ARRIVING = (h11.IDLE, h11.SEND_BODY)


class TimedConnection(H11Protocol):
    """The protocol of one connection, which is closed when a request does not arrive in time.

    Between requests uvicorn closes it itself.
    """

    def __init__(self, seconds: float = SECONDS, **made: Any) -> None:
        super().__init__(**made)
        self._seconds = seconds
        self._end: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first request."""
        super().connection_made(transport)
        self._watch_arrival()

    def data_received(self, data: bytes) -> None:
        """Take what arrived, and wait for the rest of a request that is not whole."""
        super().data_received(data)
        self._watch_arrival()

    def connection_lost(self, error: Exception | None) -> None:
        """Wait no more."""
        self._stop()
        super().connection_lost(error)

    def _watch_arrival(self) -> None:
        if self.conn.their_state not in _ARRIVING:
            self._stop()
        elif self._end is None:
            self._end = self.loop.call_later(self._seconds, self.transport.abort)

    def _stop(self) -> None:
        if self._end is not None:
            self._end.cancel()
            self._end = None
