"""The clock by which the kernel dates files."""

import time
from pathlib import Path

from loom_audit.history.look.timing import CLOCK_OF_FILES


def wait_a_tick() -> None:
    """Until what is made or happens next is dated later than what was before."""
    began = time.clock_gettime_ns(CLOCK_OF_FILES)
    while time.clock_gettime_ns(CLOCK_OF_FILES) == began:
        time.sleep(0.001)


def tick(beside: Path) -> None:
    """Until a file that is written there now has a later time than all that was done before."""
    began = time.time_ns()
    probe = beside.parent / "probe"
    while probe.write_text("") is None or probe.stat().st_ctime_ns <= began + 12_000_000:
        time.sleep(0.001)
