"""The clock by which the kernel dates files."""

import time

from loom_audit.history.look.capture import CLOCK_OF_FILES


def wait_a_tick() -> None:
    """Until what is made or happens next is dated later than what was before."""
    began = time.clock_gettime_ns(CLOCK_OF_FILES)
    while time.clock_gettime_ns(CLOCK_OF_FILES) == began:
        time.sleep(0.001)
