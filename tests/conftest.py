"""What every test shares: no settings of this machine, no timing, and honest skips."""

import gc
import os
import shutil
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest

pytest_plugins = [
    "pytester",
    "tests.given.cases",
    "tests.given.examples",
    "tests.places.repository",
    "tests.places.temporary",
]

ON_CI = bool(os.environ.get("CI"))

# what is printed would go out at once, as it does for nobody who did not ask for it
os.environ.pop("PYTHONUNBUFFERED", None)

# ignored where the tests were started in the background or by nohup, and then by what they start
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_configure(config: pytest.Config) -> None:
    """A worker of xdist is in a session of processes of its own.

    What loses its parent may be the doing of any program in the same one, so that else a call
    that another worker's test makes could be taken to leave it running.
    """
    if hasattr(config, "workerinput"):
        os.setsid()


def pytest_collection() -> None:
    """What is collected stays to the end: to look for garbage in it meanwhile finds none."""
    gc.disable()


def pytest_collection_finish() -> None:
    """The tests and the libraries stay to the end: the garbage collector leaves them out.

    They are half a million objects, through which every full collection would go, and which a
    process that is forked would copy at its first one.
    """
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_unconfigure() -> None:
    """Nor does Python look through what the tests made before it ends."""
    gc.freeze()


def _fail_what_ci_must_have(report: Any) -> None:
    """On CI everything that a test needs is installed, so `needs …` is a failure there."""
    if not report.skipped or not isinstance(report.longrepr, tuple):
        return
    reason = str(report.longrepr[2]).removeprefix("Skipped: ")
    if ON_CI and reason.startswith("needs "):
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid}: skipped on CI: {reason}"


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, Any, Any]:
    report = yield
    _fail_what_ci_must_have(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, Any, Any]:
    report = yield
    _fail_what_ci_must_have(report)
    return report


@pytest.fixture(autouse=True)
def home(
    tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Generator[Path, None, None]:
    """A data folder of the test's own; the person's settings do not reach it."""
    for name in [name for name in os.environ if name.startswith("LOOM_AUDIT_")]:
        monkeypatch.delenv(name)
    folder = tmp_path_factory.mktemp("home")
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(folder))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)
