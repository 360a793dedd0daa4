"""Which backend a command gets: as confined as it asks, and never silently less."""

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from msgspec import Struct
from msgspec.structs import replace

from loom_audit.errors import AuditError, ExecutionFailed
from loom_audit.ports import (
    Background,
    BackgroundRunner,
    Command,
    CommandResult,
    Moments,
    Runner,
)


class ProbeResult(Struct, frozen=True):
    """A backend, and the reason why it does not work on this machine; empty when it works."""

    runner: Runner
    flaw: str
    hint: str = ""


class ConfiningRunner:
    """Runs a command in the first of the backends that works, the best one first.

    Each backend is probed once, when first needed. When one that works cannot start a command, that
    is an error and no weaker one is tried: what an agent does must not choose the backend.
    Backends are made when the first command comes: most processes run none.
    """

    def __init__(
        self, plain: Callable[[], Runner], confining: Callable[[], Sequence[Runner]]
    ) -> None:
        self._make_plain = plain
        self._make_confining = confining
        self._results: dict[str, ProbeResult] = {}
        self._mutex = threading.Lock()

    @cached_property
    def _plain(self) -> Runner:
        return self._make_plain()

    @cached_property
    def _confining(self) -> Sequence[Runner]:
        return self._make_confining()

    @property
    def name(self) -> str:
        """The name of the backend that a preferably confined command gets."""
        return next((one.runner.name for one in self.backends() if not one.flaw), self._plain.name)

    def backends(self) -> Iterator[ProbeResult]:
        """The confining backends with their probes, each probed when it is its turn."""
        for runner in self._confining:
            with self._mutex:
                if runner.name not in self._results:
                    self._results[runner.name] = _probe_result(runner)
            yield self._results[runner.name]

    def run(self, root: str, command: Command, moments: Moments = Moments()) -> CommandResult:
        """Run a command as `loom_audit.ports.Runner.run` says.

        ExecutionFailed, and nothing ran, when confinement is required and not to be had.
        """
        if command.confinement == "off":
            return self._plain.run(root, command, moments)
        flaws: dict[str, str] = {}
        for one in self.backends():
            if not (flaw := one.flaw or _weakness(one.runner, command)):
                return one.runner.run(root, command, moments)
            flaws[one.runner.name] = flaw
        if command.confinement == "required":
            raise _unavailable_error(flaws)
        done = self._plain.run(root, command, moments)
        return replace(done, unconfined=_reasons_text(flaws))

    def start(self, root: str, command: Command, inodes: Mapping[str, int]) -> Background:
        """Start a command as `loom_audit.ports.BackgroundRunner.start` says.

        ExecutionFailed where no backend can hold it to what it may write, whatever it asks for.
        """
        if command.confinement == "off":
            raise _no_background_error(
                'confinement = "off" in tools.toml', "a person can take that out"
            )
        flaws: dict[str, str] = {}
        for one in self.backends():
            if not one.flaw and isinstance(one.runner, BackgroundRunner):
                return one.runner.start(root, command, inodes)
            flaws[one.runner.name] = one.flaw or "it has no loopback network of its own"
        raise _no_background_error(
            _reasons_text(flaws), "a person can install bubblewrap (`loom-audit doctor`)"
        )


def probe(runner: Runner) -> None:
    """Run `true` in a backend; ExecutionFailed when this machine does not let the backend work."""
    with tempfile.TemporaryDirectory(prefix="loom-audit-") as folder:
        done = runner.run(folder, Command(("sh", "-c", "true"), timeout=20.0))
    if done.exit_code != 0:
        raise ExecutionFailed(
            f"The sandbox {runner.name} does not work on this machine",
            hint="Run `loom-audit doctor`.",
            details={"exit_code": done.exit_code, "stderr": done.stderr.decode(errors="replace")},
        )


def _probe_result(runner: Runner) -> ProbeResult:
    try:
        probe(runner)
    except AuditError as error:
        return ProbeResult(runner, str(error), error.hint)
    except OSError as error:
        return ProbeResult(runner, str(error))
    return ProbeResult(runner, "")


def _weakness(runner: Runner, command: Command) -> str:
    if command.confinement == "required" and runner.name == "landlock" and os.geteuid() == 0:
        return "it does not keep user 0 from changing modes and owners of files elsewhere"
    return ""


def _unavailable_error(flaws: Mapping[str, str]) -> ExecutionFailed:
    return ExecutionFailed(
        f"This command must be confined, and cannot be here: {_reasons_text(flaws)}",
        hint="Install bubblewrap, and see `loom-audit doctor`; or set `confinement` in tools.toml.",
        details={"sandboxes": dict(flaws)},
    )


def _reasons_text(flaws: Mapping[str, str]) -> str:
    return "; ".join(f"{name}: {flaw}" for name, flaw in flaws.items()) or "no backend is known"


def _no_background_error(why: str, way: str) -> ExecutionFailed:
    return ExecutionFailed(
        f"A background command must run in bubblewrap, and cannot here: {why}",
        hint=f"Run it with a `timeout` and without `background`; {way}.",
    )
