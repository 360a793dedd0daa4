"""A plan is made after looking: what is on disk counts as it will be recorded."""

import os
import signal
from pathlib import Path

import pytest

from tests.cli.shells import Shell

LATE = (
    "(until [ -e ../go ]; do sleep 0.01; done; echo x > late; touch ../done; sleep 1000)"
    " >/dev/null 2>&1 & echo $!"
)


@pytest.mark.few(1)
@pytest.mark.parametrize("verb", ["revert", "undo", "rollback"])
@pytest.mark.parametrize("shown", [True, False])
def test_what_a_kept_command_made_since_is_taken_back_with_it_the_first_time(
    real: Shell, verb: str, shown: bool
) -> None:
    real("checkpoint", "start")
    ran = real("run", "--keep", "--", "sh", "-c", f"echo y > now; {LATE}")
    number = str(real.numbers()[-1])
    (real.workspace.parent / "go").touch()
    while not (real.workspace.parent / "done").exists():
        os.sched_yield()
    target = {"revert": (number,), "undo": (), "rollback": ("@start",)}[verb]
    try:
        if shown:
            (plan,) = real.records(verb, *target, "--dry-run", code=7)
            assert plan["provisional"] is True
            assert [change["path"] for change in plan["changes"]] == ["late", "now"]
        (done,) = real.records(verb, *target, "--yes", code=7)
        assert done["carried_out"]
        assert [change["path"] for change in done["changes"]] == ["late", "now"]
        assert not (real.workspace / "late").exists()
    finally:
        for line in ran.text.split():
            if line.isdigit() and Path(f"/proc/{line}").exists():
                os.kill(int(line), signal.SIGKILL)


def test_a_persons_edit_is_on_record_before_the_plan_is_made(audited: Shell) -> None:
    audited.call("write_file", path="b.txt", content="one\n")
    (audited.workspace / "a.txt").write_text("by hand\n")
    (shown,) = audited.records("rollback", "head~1", "--dry-run", code=7)
    assert (
        shown["provisional"]
        and "provisional" in audited("rollback", "head~1", "--dry-run", code=7).text
    )
    (done,) = audited.records("rollback", "head~1", "--yes", code=7)
    assert done["kept"] == shown["kept"]
    assert done["changes"] == shown["changes"]
