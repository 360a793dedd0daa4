"""Commands at a terminal: passed through, signals forwarded, the keyboard's reach it alone."""

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import termios
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

HERE = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])

# a shell acts on a signal between two commands, so there must be such a place
WAIT = "while :; do sleep 0.05; done"

RUN = """
    import os, sys
    from loom_audit.ports import Command
    from loom_audit.sandbox import open_runner
    argv = tuple(sys.argv[1:])
    done = open_runner().run(os.getcwd(), Command(argv, timeout=None, stdio="inherit"))
    try:
        tty = os.open("/dev/tty", os.O_RDWR)
        print("MINE", os.tcgetpgrp(tty) == os.getpgrp(), file=sys.stderr)
    except OSError:
        print("MINE none", file=sys.stderr)
    sys.exit(done.exit_code)
"""


@pytest.fixture
def run_py(tmp_path: Path) -> str:
    path = tmp_path / "run.py"
    path.write_text(textwrap.dedent(RUN))
    return str(path)


class Terminal:
    """A pseudo-terminal with a program on it, its own session."""

    def __init__(self, argv: list[str], cwd: Path) -> None:
        self.pid, self.master = pty.fork()
        if self.pid == 0:
            try:
                os.chdir(cwd)
                environment = {**os.environ, "PYTHONPATH": HERE, "PS1": "", "TERM": "dumb"}
                os.execvpe(argv[0], argv, environment)
            finally:
                os._exit(127)
        self.seen = ""

    def until(self, text: str, seconds: float = 20) -> str:
        """What came on the screen up to and with the text; later calls see what follows."""
        end = time.monotonic() + seconds
        while text not in self.seen:
            ready, _, _ = select.select([self.master], [], [], 0.2)
            assert time.monotonic() < end, f"no {text!r} in {self.seen!r}"
            if ready:
                try:
                    data = os.read(self.master, 4096)
                except OSError:
                    data = b""
                assert data, f"ended without {text!r}: {self.seen!r}"
                self.seen += data.decode()
        before, _, self.seen = self.seen.partition(text)
        return before + text

    def type(self, text: str) -> None:
        os.write(self.master, text.encode())

    def exit_code(self) -> int:
        while True:
            try:
                if not os.read(self.master, 4096):
                    break
            except OSError:
                break
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        self.pid = 0
        return code

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.master)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Callable[..., Terminal]]:
    opened = []

    def start(*argv: str) -> Terminal:
        opened.append(Terminal(list(argv), tmp_path))
        return opened[-1]

    yield start
    for each in opened:
        each.close()


def python(run_py: str, text: str) -> list[str]:
    return [sys.executable, run_py, "sh", "-c", text]


def test_the_command_has_the_terminal_and_we_have_it_back(
    terminal: Callable[..., Terminal], run_py: str
) -> None:
    text = "test -t 0 && test -t 1 && test -t 2 && read line && echo got:$line; exit 6"
    screen = terminal(*python(run_py, text))
    screen.type("hello\n")
    screen.until("got:hello")
    screen.until("MINE True")
    assert screen.exit_code() == 6


def test_control_c_interrupts_the_command_and_not_us(
    terminal: Callable[..., Terminal], run_py: str
) -> None:
    screen = terminal(*python(run_py, "trap 'echo caught; exit 3' INT; echo ready; " + WAIT))
    screen.until("ready")
    screen.type("\x03")
    screen.until("caught")
    screen.until("MINE True")
    assert screen.exit_code() == 3


def test_control_c_kills_what_does_not_catch_it(
    terminal: Callable[..., Terminal], run_py: str
) -> None:
    screen = terminal(*python(run_py, "echo ready; exec sleep 600"))
    screen.until("ready")
    screen.type("\x03")
    screen.until("MINE True")
    assert screen.exit_code() == 128 + signal.SIGINT


@pytest.mark.few(2)
@pytest.mark.parametrize("name", ["TERM", "INT", "HUP", "USR1", "WINCH"])
def test_a_signal_to_us_reaches_the_command(
    terminal: Callable[..., Terminal], run_py: str, name: str
) -> None:
    text = f"trap 'echo got; exit 4' {name}; echo ready; {WAIT}"
    screen = terminal(*python(run_py, text))
    screen.until("ready")
    os.kill(screen.pid, signal.Signals[f"SIG{name}"])
    screen.until("got")
    assert screen.exit_code() == 4


def test_a_new_window_size_reaches_the_command(
    terminal: Callable[..., Terminal], run_py: str
) -> None:
    text = "trap 'stty size; exit 0' WINCH; echo ready; " + WAIT
    screen = terminal(*python(run_py, text))
    screen.until("ready")
    termios.tcsetwinsize(screen.master, (41, 87))
    screen.until("41 87")
    assert screen.exit_code() == 0


@pytest.mark.parametrize("name", ["TERM", "INT"])
def test_without_a_terminal_signals_are_forwarded_too(run_py: str, name: str) -> None:
    text = f"trap 'exit 9' {name}; echo ready; {WAIT}"
    ours = subprocess.Popen(
        python(run_py, text),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": HERE},
    )
    assert ours.stdout is not None
    assert ours.stdout.readline() == b"ready\n"
    ours.send_signal(signal.Signals[f"SIG{name}"])
    assert ours.wait(20) == 9
    ours.stdout.close()


def test_output_and_input_pass_through_without_a_terminal(run_py: str, tmp_path: Path) -> None:
    done = subprocess.run(
        python(run_py, "cat; echo err >&2; sleep 600 & exit 2"),
        input=b"in",
        capture_output=True,
        env={**os.environ, "PYTHONPATH": HERE},
        start_new_session=True,
    )
    assert (done.stdout, done.returncode) == (b"in", 2)
    assert done.stderr.startswith(b"err\n")


needs_bash = pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash for job control")


@needs_bash
def test_control_z_stops_the_job_and_fg_goes_on_with_it(
    terminal: Callable[..., Terminal], run_py: str, tmp_path: Path
) -> None:
    screen = terminal("bash", "--norc", "--noprofile", "-i")
    (tmp_path / "job").write_text("echo ready; read x; echo read:$x; exit 5")
    screen.type(f"{sys.executable} {run_py} sh job; echo code:$?:\n")
    screen.until("ready")
    screen.type("\x1a")
    screen.until("Stopped")
    screen.type("echo she''ll; jobs -s\n")
    screen.until("shell")
    screen.until("Stopped")
    screen.type("fg\n")
    screen.until("sh job")
    screen.until("sh job")
    screen.type("word\n")
    screen.until("read:word")
    screen.until("MINE True")
    screen.type("exit 0\n")
    screen.exit_code()


@needs_bash
def test_in_a_pipeline_every_member_keeps_the_terminal(
    terminal: Callable[..., Terminal], run_py: str, tmp_path: Path
) -> None:
    """Handing the terminal over would stop a pager at the other end of the pipe."""
    screen = terminal("bash", "--norc", "--noprofile", "-i")
    (tmp_path / "first").write_text("echo out; read x; echo in:$x >&2")
    (tmp_path / "last").write_text("read y < /dev/tty; echo pager:$y; cat")
    screen.type(f"{sys.executable} {run_py} sh first | sh last; echo do''ne\n")
    screen.until("sh last")
    screen.type("one\n")
    screen.type("two\n")
    seen = screen.until("done")
    assert re.search("in:(one|two)", seen)
    assert re.search("pager:(one|two)", seen)
    assert "MINE True" in seen
    screen.type("exit 0\n")
    screen.exit_code()
