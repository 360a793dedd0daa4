"""`--dry-run --patch`: what a plan would change, as a patch that git applies."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.cli.shells import Shell

BINARY = bytes(range(256))


def files(root: Path) -> dict[str, tuple[bytes, bool]]:
    """The files that git knows, with their contents and whether they may be executed."""
    found = {}
    for path in sorted(root.rglob("*")):
        if path.is_symlink():
            found[str(path.relative_to(root))] = (str(path.readlink()).encode(), False)
        elif path.is_file():
            executable = bool(path.stat().st_mode & 0o100)
            found[str(path.relative_to(root))] = (path.read_bytes(), executable)
    return found


def changed_in_every_way(audited: Shell) -> int:
    """A call changes, makes, deletes and makes executable; a later one changes a file of it."""
    long = "".join(f"{n}\n" for n in range(30))
    audited.call("write_file", path="long.txt", content=long)
    (audited.workspace / "odd \xe9 name").write_bytes(BINARY)
    (audited.workspace / "run.sh").write_text("true\n")
    audited.sh("ln -s a.txt link")
    audited.sh(
        "sed -i s/^3$/three/ long.txt; rm odd*; chmod +x run.sh; ln -sf run.sh link;"
        "mkdir -p new && echo 1 > new/file && printf 'no end' > a.txt"
    )
    number = audited.numbers()[-1]
    audited.call("write_file", path="long.txt", content=long.replace("3\n", "three\n", 1) + "end\n")
    return number


@pytest.mark.few(1)
@pytest.mark.parametrize("verb", ["revert", "undo", "rollback"])
def test_git_makes_of_the_patch_what_carrying_out_makes(
    audited: Shell, tmp_path: Path, verb: str
) -> None:
    number = changed_in_every_way(audited)
    (audited.workspace / "a.txt").write_text("by hand, and on disk only\n")
    command = {
        "revert": ("revert", str(number), "--choose", "a.txt=old"),
        "undo": ("undo",),
        "rollback": ("rollback", str(number - 1), "--outside"),
    }[verb]
    before = audited.tree()
    shown = audited(*command, "--dry-run", "--patch")
    assert audited.tree() == before
    copy = tmp_path / "copy"
    shutil.copytree(audited.workspace, copy, symlinks=True)
    (record,) = audited.records(*command, "--dry-run", "--patch")
    patch = record["patch"].encode("utf-8", "surrogateescape")
    assert patch == shown.stdout
    subprocess.run(["git", "apply", "-"], cwd=copy, input=patch, check=True)
    audited(*command, "--yes")
    assert files(copy) == files(audited.workspace)


def test_what_is_in_conflict_is_named_beside_the_patch(audited: Shell) -> None:
    audited.sh("echo 1 > a.txt; echo 1 > b.txt; mkdir empty")
    number = audited.numbers()[-1]
    audited.sh("echo 2 > a.txt")
    shown = audited("revert", str(number), "--dry-run", "--patch", code=5)
    assert shown.text.startswith("diff --git a/b.txt b/b.txt\ndeleted file")
    assert "a.txt" not in shown.text
    assert "needs a decision: a.txt: same lines changed later by call" in shown.errors
    assert "left out: empty: git does not know such a change" in shown.errors


def test_a_patch_is_of_a_dry_run_alone(audited: Shell) -> None:
    audited.call("write_file", path="a.txt", content="1\n")
    before, head = audited.tree(), audited.numbers()
    for command in (("undo",), ("redo",), ("revert", str(head[-1])), ("rollback", "1", "--hold")):
        assert "--dry-run" in audited(*command, "--patch", code=2).errors
    assert audited.tree() == before and audited.numbers() == head
