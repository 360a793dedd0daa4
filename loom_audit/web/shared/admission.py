"""Who is let in: a name for this server, one-time tokens, and the cookies they are traded for.

Nothing of it is stored: all of it ends with the server.
"""

import re
import secrets
from collections.abc import Callable, Mapping
from time import monotonic

from msgspec import Struct
from msgspec.structs import replace

COOKIE = "loom-audit"
LABEL_CHARACTERS = 80
IDLE = 30 * 60.0
"""Seconds without a request of a browser after which its next one begins another visit."""

Hook = Callable[["Visitor"], object]


class Visitor(Struct, frozen=True):
    """Who asks: the account that runs the server, and the name that was given at the sign-in.

    Whoever held the token is taken for that account; the `label` is only what they called
    themselves. `visit` is the id of the session in which they take back.
    """

    actor: str
    label: str = ""
    visit: str = ""

    @property
    def shown(self) -> str:
        """The account, with the name that the visitor gave."""
        return f"{self.actor} ({self.label})" if self.label else self.actor


class Admission:
    """The host name, the tokens and the cookies of one running server.

    Cookies know no ports: a browser sends them to every server of a host. So the host is a name
    that no other server is asked by, and that cannot be guessed.
    """

    def __init__(self, actor: str) -> None:
        self.host = f"{secrets.token_hex(10)}.localhost"
        self._actor = actor
        self._host_header = re.compile(re.escape(self.host) + r"(:[0-9]{1,5})?", re.IGNORECASE)
        self._tokens: dict[str, Hook] = {}
        self._visitors: dict[str, Visitor] = {}
        self._seen: dict[str, float] = {}

    def is_host(self, header: str) -> bool:
        """Whether a Host header names this server; on any port, since ports are forwarded."""
        return self._host_header.fullmatch(header) is not None

    def new_token(self, used: Hook = lambda visitor: None) -> str:
        """A token that lets one browser in, once; `used` is called when it has."""
        token = secrets.token_urlsafe(24)
        self._tokens[token] = used
        return token

    def redeem(self, token: str, label: str) -> str | None:
        """The value of the cookie for this token, which is then used up; None for any other."""
        known = _equal_to(token, self._tokens)
        if known is None:
            return None
        used = self._tokens.pop(known)
        cookie = secrets.token_urlsafe(32)
        visitor = Visitor(self._actor, " ".join(label.split())[:LABEL_CHARACTERS], new_visit())
        self._visitors[cookie] = visitor
        self._seen[cookie] = monotonic()
        used(visitor)
        return cookie

    def dismiss(self, cookies: Mapping[str, str]) -> None:
        """Let whoever has these cookies in no more."""
        known = _equal_to(cookies.get(COOKIE, ""), self._visitors)
        if known is not None:
            del self._visitors[known], self._seen[known]

    def visitor(self, cookies: Mapping[str, str]) -> Visitor | None:
        """Who sends these cookies; None for whoever has not signed in to this server."""
        known = _equal_to(cookies.get(COOKIE, ""), self._visitors)
        if known is None:
            return None
        now = monotonic()
        if now - self._seen[known] > IDLE:
            self._visitors[known] = replace(self._visitors[known], visit=new_visit())
        self._seen[known] = now
        return self._visitors[known]


def new_visit() -> str:
    """A random id for the session of a visit: 16 hexadecimal digits."""
    return secrets.token_hex(8)


def _equal_to(given: str, secret: Mapping[str, object]) -> str | None:
    """The secret that was given; how long it takes tells nothing about the others."""
    sent = given.encode("utf-8", "surrogatepass")
    found = [one for one in secret if secrets.compare_digest(one.encode(), sent)]
    return found[0] if found else None
