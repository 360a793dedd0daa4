"""A link out trades places with a folder while every file tool runs: nothing leaks, as any user."""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import pytest

from tests.tools.bundled.files import racing

SOMEBODY = 61234
ROOT = racing.HERE.parents[4]
TOOLS = {tool for tool, _ in [*racing.SHORT, *racing.LONG]}
CLEAR = {
    "ok",
    "unconfined",
    "INVALID_PATH",
    "IS_A_DIRECTORY",
    "NOT_A_DIRECTORY",
    "FILE_NOT_FOUND",
    "CONFLICT",
    "INVALID_ARGUMENTS",
}


def raced(folder: Path, uid: int, seconds: float) -> dict[str, Any]:
    """What came of it; skips with the reason where that user cannot run these tests."""
    python, packages = sys.executable, str(Path(anyio.__file__).parents[1])
    if uid != os.geteuid():
        os.chown(folder, uid, uid)
        python = "/usr/bin/python3"  # ours may lie where nobody else can enter
        asked = subprocess.run(
            [
                python,
                "-c",
                f"import sys; sys.path[:0] = {[str(ROOT), packages]};"
                f" assert sys.version_info[:2] == {sys.version_info[:2]};"
                " import loom_audit.wiring.adapters",
            ],
            user=uid,
            group=uid,
            extra_groups=[],
            capture_output=True,
            text=True,
            cwd="/",
        )
        if asked.returncode:
            pytest.skip(f"an ordinary user cannot run what these tests run: {asked.stderr[-300:]}")
    order = {"folder": str(folder), "uid": uid, "seconds": seconds, "packages": packages}
    done = subprocess.run(
        [python, str(racing.HERE)],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        cwd="/",
    )
    assert done.returncode == 0, done.stderr
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that an ordinary user can reach (pytest's own is for its owner only), in memory."""
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    made = Path(tempfile.mkdtemp(prefix="loom-race-", dir=memory))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def check(answer: dict[str, Any]) -> None:
    assert answer["leaks"] == []
    calls, requested, finished = answer["finishes"]
    assert calls == requested == finished
    assert set(answer["calls"]) == TOOLS, answer["calls"]
    codes: Counter[str] = Counter()
    for outcome, count in answer["outcomes"].items():
        codes[outcome.split()[1]] += count
    failed = codes.pop("EXECUTION_ERROR", 0)  # `cat` did not find what was there
    assert failed == answer["outcomes"].get("shell_execute EXECUTION_ERROR", 0)
    failed = codes.pop("IO", 0)  # a folder to delete that could not be read in that moment
    assert failed == answer["outcomes"].get("delete_file IO", 0)
    assert set(codes) <= CLEAR, answer["outcomes"]
    assert codes["ok"] > 20 and codes["INVALID_PATH"] > 20, f"the race was never met: {codes}"
    print(f"{calls} calls: {dict(codes)}")  # noqa: T201


def users() -> list[pytest.ParameterSet]:
    if os.geteuid() == 0:
        return [pytest.param(0, id="root"), pytest.param(SOMEBODY, id="user")]
    return [pytest.param(os.geteuid(), id="user")]


@pytest.mark.few(0)
@pytest.mark.parametrize("uid", users()[-1:])
def test_nothing_leaks_while_a_folder_and_a_link_out_trade_places(folder: Path, uid: int) -> None:
    check(raced(folder, uid, 1.0))


@pytest.mark.deep
@pytest.mark.parametrize("uid", users())
def test_nothing_leaks_in_a_long_race(folder: Path, uid: int) -> None:
    check(raced(folder, uid, 60.0))
