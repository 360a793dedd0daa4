"""What every test shares: no settings of this machine, no timing, and honest skips."""

import os
import random
import shutil
import signal
from collections.abc import Generator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["pytester"]

ON_CI = bool(os.environ.get("CI"))

# ignored where the tests were started in the background or by nohup, and then by what they start
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)

settings.register_profile(
    "loom",
    deadline=None,  # a slow machine is not a failure
    derandomize=ON_CI,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("loom")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("loom-audit")
    group.addoption("--sample", type=int, default=0, help="run only that many of the tests")
    group.addoption("--sample-seed", default="0", help="which ones")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`-m deep --sample 16 --sample-seed COMMIT`: few of many slow tests, the same ones again.

    Runs after pytest's own `-m` and `-k`, so the sample is taken from the deep tests they leave.
    """
    size = config.getoption("--sample")
    deep = [item for item in items if item.get_closest_marker("deep")]
    if not size or len(deep) <= size:
        return
    chosen = random.Random(config.getoption("--sample-seed")).sample(
        sorted(deep, key=lambda item: item.nodeid), size
    )
    left_out = [item for item in items if item not in chosen]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item in chosen]


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


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of an installed Chromium."""
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if path := shutil.which(name):
            return path
    pytest.skip("needs Chromium: apt-get install chromium")


@pytest.fixture(scope="session")
def browser_type_launch_args(chromium: str) -> dict[str, Any]:
    """The machine's Chromium instead of Playwright's own; as root it cannot make its sandbox."""
    flags = ["--no-sandbox"] if os.getuid() == 0 else []
    return {"executable_path": chromium, "args": [*flags, "--disable-dev-shm-usage"]}
