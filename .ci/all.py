"""Runs every test but the deep ones: `make test`.

Those in a browser wait for the browser most of the time, so they run beside the others. What they
print comes last. Many others wait for a time limit or a process: there is one worker more than
processors. Fails if either part fails.
"""

import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence

PYTEST = (sys.executable, "-m", "pytest")
# Chromium's driver keeps an event loop in its process, which other tests cannot share
BROWSER = (*PYTEST, "tests/web", "-m", "browser and not deep")
OTHERS = (
    *PYTEST,
    "-n",
    str(len(os.sched_getaffinity(0)) + 1),
    "--dist",
    "loadfile",
    "-m",
    "not deep and not browser and not clients",
)


def side_by_side(shown: Sequence[str], logged: Sequence[str]) -> int:
    """Run two commands at once, show what the second printed after the first; the worse status."""
    with tempfile.TemporaryFile() as log:
        beside = subprocess.Popen(logged, stdout=log, stderr=subprocess.STDOUT)
        try:
            status = subprocess.run(shown).returncode
        finally:
            beside.wait()
            log.seek(0)
            sys.stdout.buffer.write(log.read())
            sys.stdout.flush()
    return status or beside.returncode


if __name__ == "__main__":
    sys.exit(side_by_side(OTHERS, BROWSER))
