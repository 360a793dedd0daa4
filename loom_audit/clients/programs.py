"""The list of all clients, which is read without loading what is known of them."""

from collections.abc import Mapping

PROGRAMS: Mapping[str, str] = {
    "claude-code": "claude",
    "codex": "codex",
    "opencode": "opencode",
    "gemini": "gemini",
}
"""By the name of each client: what is typed to start it. Its reader is the module of that name."""

*_FIRST, _LAST = PROGRAMS
NAMED = f"{', '.join(_FIRST)} or {_LAST}"
"""The names of all clients, as one of them is asked for."""


def client_named(name: str) -> str:
    """The client that a person means, by its name or by what starts it; "" for none."""
    return name if name in PROGRAMS else client_run_by(name)


def client_run_by(program: str) -> str:
    """The client that a command runs, by its name without a folder; "" for any other."""
    name = program.rpartition("/")[2]
    return next((client for client, typed in PROGRAMS.items() if typed == name), "")
