"""The first and the last bytes of a stream, in memory that does not grow with it."""


class HeadAndTail:
    """Keeps the first half and the last half of `limit` bytes of what it is fed.

    `total` counts all bytes. When some were left out they are missing between
    `content()[: limit // 2]` and the rest.
    """

    __slots__ = ("_half", "_head", "_tail", "_tail_limit", "total")

    def __init__(self, limit: int) -> None:
        self._half = limit // 2
        self._tail_limit = limit - self._half
        self._head = bytearray()
        self._tail = bytearray()
        self.total = 0

    def feed(self, chunk: bytes) -> None:
        self.total += len(chunk)
        room = self._half - len(self._head)
        if room > 0:
            self._head += chunk[:room]
            chunk = chunk[room:]
        self._tail += chunk
        if len(self._tail) > 2 * self._tail_limit + 65536:
            self._trim()

    def _trim(self) -> None:
        if len(self._tail) > self._tail_limit:
            del self._tail[: len(self._tail) - self._tail_limit]

    def content(self) -> bytes:
        self._trim()
        return bytes(self._head + self._tail)

    @property
    def truncated(self) -> bool:
        return self.total > self._half + self._tail_limit
