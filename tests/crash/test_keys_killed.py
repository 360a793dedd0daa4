"""A rotation of keys, killed at each step that it makes durable: it is gone on with."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from loom_audit.disk.machine.key_file import DiskKeys
from loom_audit.disk.machine.signed_heads import DiskSignedHeads
from tests.cli.shells import Shell, new_shell
from tests.crash.programs.faults import needs_strace


def folders(shell: Shell) -> tuple[Path, Path]:
    [keys] = (shell.home / "config" / "keys").iterdir()
    return shell.home / "heads" / keys.name, keys


def killed_at(shell: Shell, step: int, command: str) -> bool:
    """Whether a command was killed at this call that puts a file in place or makes it durable."""
    calls = "rename,renameat,renameat2,fsync,fdatasync"
    traced = ["strace", "-f", "-qq", "-o", os.devnull, "-e", f"trace={calls}"]
    inject = ["-e", f"inject={calls}:signal=KILL:when={step}"]
    program = [sys.executable, "-m", "loom_audit", "keys", command]
    done = subprocess.run(
        [*traced, *inject, *program],
        cwd=shell.workspace,
        env=shell.environment,
        capture_output=True,
        timeout=120,
    )
    assert done.returncode in (0, -signal.SIGKILL, 128 + signal.SIGKILL), done.stderr
    return done.returncode != 0


@pytest.mark.few(1)
@pytest.mark.parametrize("step", range(1, 16))
def test_a_killed_rotation_is_gone_on_with(tmp_path: Path, step: int) -> None:
    needs_strace()
    shell = new_shell(tmp_path)
    shell("init")
    shell("keys", "init")
    heads, keys = folders(shell)
    [log] = [one.stem for one in heads.glob("*.signed")]
    first = DiskKeys(keys).read()
    assert first is not None
    was_killed = killed_at(shell, step, "rotate")
    between = DiskKeys(keys).read()
    assert between is not None and first.current.public in between.public_keys
    shell("keys", "rotate")
    ring = DiskKeys(keys).read()
    assert ring is not None and ring.next is None
    if was_killed and between.next is not None:
        assert ring.current == between.next, "the key that was begun with takes the place"
    assert [one.name for one in keys.glob("ring*")] == ["ring.json"], "no key lies about"
    signed = DiskSignedHeads(heads, keys, log)
    assert signed.damaged() == []
    sizes = [one.head.size for one in signed.kept()]
    assert sizes == sorted(sizes)
    assert all(one.signed_by(ring.public_keys) for one in signed.kept())
    both = {ring.current.public, ring.earlier[-1].public}
    assert any(set(one.signed_by(ring.public_keys)) == both for one in signed.kept())
    made = [
        one["fact"]["key"]
        for one in shell.records("log", "--events", "-n", "0")
        if one["kind"] == "head.noted"
    ]
    assert len(made) == len({*made}), "each key is on record once"
    assert {*made} >= {one.hex() for one in both}
