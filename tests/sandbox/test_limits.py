"""What each process of a confined command may use, and that ordinary programs still start."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from loom_audit.ports import Command, Limits
from loom_audit.sandbox.plain import PlainRunner
from loom_audit.tools.calls.settings import ToolSettings
from tests.sandbox.conftest import SOMEBODY, Confined

MIB = 1024 * 1024


def usual() -> dict[str, int | None]:
    limits = ToolSettings().limits
    return {n: getattr(limits, n) for n in ("cpu", "memory", "processes", "file")}


@pytest.mark.few(2)
def test_a_file_stops_growing(confined: Confined) -> None:
    done = confined.shell("head -c 3000000 /dev/zero > big", limits={"file": MIB})
    assert done.code != 0
    assert (confined.root / "big").stat().st_size == MIB


@pytest.mark.few(2)
def test_time_on_the_processor_ends(confined: Confined) -> None:
    done = confined.shell("while :; do :; done", limits={"cpu": 1})
    assert done.code == 128 + 24  # SIGXCPU


@pytest.mark.few(2)
def test_memory_ends(confined: Confined) -> None:
    text = "x = bytearray(400 << 20); print('had it')"
    done = confined.python(text, limits={"memory": 200 * MIB})
    assert done.code == 1 and "MemoryError" in done.stderr
    assert confined.python(text, limits={"memory": 800 * MIB}).stdout == "had it\n"


def test_no_image_of_a_crash_is_written(confined: Confined) -> None:
    done = confined.shell("ulimit -c; kill -SEGV $$")
    assert (done.stdout, done.code) == ("0\n", 128 + 11)
    assert not list(confined.root.iterdir())


FORKS = """
import os, time
count = 0
try:
    while count < 200:
        if os.fork() == 0:
            time.sleep(60)
            os._exit(0)
        count += 1
except BlockingIOError:
    pass
print(count)
"""


def test_processes_end_where_they_can_be_counted(confined: Confined) -> None:
    """Traps: the kernel does not count user 0, and elsewhere counts all processes of a user."""
    count = int(confined.python(FORKS, limits={"processes": 40}).stdout)
    if confined.backend == "bubblewrap" and confined.uid:
        assert 20 < count < 40
    else:
        assert count == 200  # docs/confinement.md


@pytest.mark.few(1)
def test_processes_of_the_user_elsewhere_do_not_count(confined: Confined) -> None:
    """Trap: with 60 of them and a limit of 50 bubblewrap itself could not start."""
    user = SOMEBODY if confined.uid == SOMEBODY else None
    others = [subprocess.Popen(["sleep", "60"], user=user) for _ in range(60)]
    try:
        done = confined.shell("sleep 0.01 & wait; echo fine", limits={"processes": 50})
    finally:
        for other in others:
            other.kill()
            other.wait()
    assert done.stdout == "fine\n", done.stderr


@pytest.mark.parametrize(
    ("program", "argv", "said"),
    [
        ("node", ("-e", "new WebAssembly.Memory({initial: 10}); console.log('fine')"), "fine\n"),
        ("java", ("-version",), ""),
        ("git", ("--version",), "git version"),
    ],
)
def test_programs_that_reserve_much_start_under_the_usual_limits(
    confined: Confined, program: str, argv: tuple[str, ...], said: str
) -> None:
    """Trap: RLIMIT_AS, which counts what is only reserved, breaks node, java and WebAssembly."""
    if (found := shutil.which(program, path="/usr/bin")) is None:
        pytest.skip(f"there is no {program} here")
    done = confined.run(found, *argv, limits=usual())
    assert done.code == 0, done.stderr
    assert done.stdout.startswith(said)


def test_limits_hold_without_confinement_too(tmp_path: Path) -> None:
    command = Command(("sh", "-c", "head -c 3000000 /dev/zero > big"), limits=Limits(file=MIB))
    assert PlainRunner().run(str(tmp_path), command).exit_code != 0
    assert (tmp_path / "big").stat().st_size == MIB


def test_a_limit_above_our_own_is_our_own(tmp_path: Path) -> None:
    """Raising a limit is refused to ordinary users; that must not refuse the command."""
    script = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({MIB}, {MIB}))
from loom_audit.ports import Command, Limits
from loom_audit.sandbox.plain import PlainRunner
command = Command(("sh", "-c", "ulimit -f"), limits=Limits(file=1 << 50))
print(PlainRunner().run({str(tmp_path)!r}, command))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert f"stdout=b'{MIB // 512}\\n'" in done.stdout, done
