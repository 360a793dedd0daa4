"""The plain runner, where the contract of runners says nothing."""

import os
import signal
import sys
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from loom_audit.ports import Command
from loom_audit.sandbox.plain import PlainRunner
from loom_audit.sandbox.run import HeadAndTail


def test_without_a_tree_to_walk_the_process_group_dies(tmp_path: Path) -> None:
    """What is left off Linux: a child in the group dies, and nothing is named."""
    runner = PlainRunner(whole_tree=False)
    text = "sleep 600 & echo $!; exit 4"
    done = runner.run(str(tmp_path), Command(("sh", "-c", text), timeout=120))
    assert (done.exit_code, done.survivors) == (4, ())
    assert not Path(f"/proc/{int(done.stdout)}/cwd").exists()


def test_without_a_tree_to_walk_a_timeout_kills_the_group(tmp_path: Path) -> None:
    runner = PlainRunner(whole_tree=False)
    done = runner.run(str(tmp_path), Command(("sh", "-c", "echo x; sleep 600 | cat"), timeout=0.3))
    assert (done.timed_out, done.exit_code, done.stdout) == (True, 128 + signal.SIGKILL, b"x\n")


def test_the_library_path_of_the_command_does_not_reach_the_supervisor(tmp_path: Path) -> None:
    """Else a command's LD_PRELOAD or LD_LIBRARY_PATH could stop the interpreter from starting."""
    environment = {**os.environ, "PYTHONHOME": "/nowhere", "LD_PRELOAD": "/nowhere/x.so"}
    done = PlainRunner().run(
        str(tmp_path), Command(("sh", "-c", "echo $PYTHONHOME"), environment=environment)
    )
    assert done.stdout == b"/nowhere\n"


def test_a_module_in_the_workspace_does_not_shadow_the_supervisors(tmp_path: Path) -> None:
    for name in ("select.py", "time.py", "supervisor.py", "errno.py"):
        (tmp_path / name).write_text("raise SystemExit('shadowed')")
    before = Path.cwd()
    os.chdir(tmp_path)
    try:
        done = PlainRunner().run(str(tmp_path), Command((sys.executable, "-ISc", "print(1)")))
    finally:
        os.chdir(before)
    assert done.stdout == b"1\n"


@given(st.lists(st.binary(max_size=60), max_size=40), st.integers(0, 50))
def test_a_bounded_stream_is_the_whole_cut_in_its_middle(chunks: list[bytes], limit: int) -> None:
    stream = HeadAndTail(limit)
    for chunk in chunks:
        stream.feed(chunk)
    whole = b"".join(chunks)
    if len(whole) > limit:
        head = limit // 2
        expected = whole[:head] + whole[len(whole) - (limit - head) :]
    else:
        expected = whole
    assert stream.content() == expected
    assert stream.total == len(whole)
    assert stream.truncated == (len(whole) > limit)


@given(st.lists(st.integers(1, 300_000), max_size=12))
def test_large_chunks_do_not_pile_up(sizes: list[int]) -> None:
    stream = HeadAndTail(1000)
    whole = b""
    for n, size in enumerate(sizes):
        chunk = bytes([n]) * size
        whole += chunk
        stream.feed(chunk)
        assert len(stream._tail) <= 2 * 500 + 65536
    assert stream.content() == (whole if len(whole) <= 1000 else whole[:500] + whole[-500:])
