"""Every subprocess starts here: a backend by name, probed, never silently another one."""

from collections.abc import Callable, Mapping, Sequence

from loom_audit.errors import InvalidArguments
from loom_audit.ports import Runner
from loom_audit.sandbox.choice import ConfiningRunner, ProbeResult, probe

__all__ = ["BACKENDS", "ConfiningRunner", "ProbeResult", "confining_runner", "open_runner", "probe"]


def _bubblewrap(hidden: Sequence[str]) -> Runner:
    from loom_audit.sandbox.bubblewrap import BubblewrapRunner

    return BubblewrapRunner(hidden)


def _landlock(hidden: Sequence[str]) -> Runner:
    from loom_audit.sandbox.landlock import LandlockRunner

    return LandlockRunner(hidden)


def _plain() -> Runner:
    from loom_audit.sandbox.plain import PlainRunner

    return PlainRunner()


CONFINING: Mapping[str, Callable[[Sequence[str]], Runner]] = {
    "bubblewrap": _bubblewrap,
    "landlock": _landlock,
}
"""The backends that confine, the one that closes most first."""

BACKENDS = (*CONFINING, "plain")


def open_runner(name: str = "plain") -> Runner:
    """The backend of a name. InvalidArguments for a name that is not known here."""
    if name not in BACKENDS:
        raise InvalidArguments(
            f"No sandbox is called {name}",
            hint=f"Known here: {', '.join(sorted(BACKENDS))}.",
            details={"sandbox": name, "known": sorted(BACKENDS)},
        )
    return CONFINING[name](()) if name in CONFINING else _plain()


def confining_runner(hidden: Sequence[str] = ()) -> ConfiningRunner:
    """The runner that confines commands as they ask; no confined one sees the `hidden` folders."""
    return ConfiningRunner(_plain, lambda: [make(hidden) for make in CONFINING.values()])
