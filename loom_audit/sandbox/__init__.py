"""Every subprocess starts here: a backend by name, probed, never silently another one."""

from loom_audit.errors import ExecutionFailed, InvalidArguments
from loom_audit.ports import Command, Runner
from loom_audit.sandbox.plain import PlainRunner

BACKENDS = {"plain": PlainRunner}


def open_runner(name: str = "plain") -> Runner:
    """The backend of that name. InvalidArguments for a name that is not known here."""
    if name not in BACKENDS:
        raise InvalidArguments(
            f"No sandbox is called {name}",
            hint=f"Known here: {', '.join(sorted(BACKENDS))}.",
            details={"sandbox": name, "known": sorted(BACKENDS)},
        )
    return BACKENDS[name]()


def probe(runner: Runner) -> None:
    """Run `true` in it; ExecutionFailed when this machine does not let the backend work."""
    done = runner.run("/", Command(("sh", "-c", "true"), timeout=10.0))
    if done.exit_code != 0:
        raise ExecutionFailed(
            f"The sandbox {runner.name} does not work on this machine",
            hint="Run `loom-audit doctor`.",
            details={"exit_code": done.exit_code, "stderr": done.stderr.decode(errors="replace")},
        )
