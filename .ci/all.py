"""Runs every test but the deep ones: `make test`.

Those in a browser wait for the browser most of the time, so they run beside the others. What they
print comes last. `--no-browser` leaves them out, `--fifth SEED` all but a fifth of the files, which
SEED draws, and of which slow tests run with all their cases. Many tests wait for a time limit or a
process: there is one worker more than processors. Fails if either part fails.
"""

import os
import subprocess
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path

PROCESSORS = len(os.sched_getaffinity(0))
PYTEST = (sys.executable, "-m", "pytest")
# Chromium's driver keeps an event loop in its process, which other tests cannot share
BROWSER = (*PYTEST, "tests/web", "-m", "browser and not deep")
OTHERS = (
    *PYTEST,
    "-n",
    str(PROCESSORS + 1),
    "--dist",
    "loadfile",
    "--no-loadscope-reorder",  # or what has few tests, and long ones, would come last
    "-m",
    "not deep and not browser and not clients",
)


def compile_tests() -> None:
    """Compile the modules of a fresh clone once.

    Pytest rewrites their assertions for it, which takes most of the time of a collection, and which
    otherwise each worker would do, all at the same time.
    """
    folders = sorted(str(one) for one in Path("tests").glob("*") if one.is_dir())
    collect = (*PYTEST, "--collect-only", "-q", "-m", "not clients")
    running = [
        subprocess.Popen([*collect, *folders[n::PROCESSORS]], stdout=subprocess.DEVNULL)
        for n in range(PROCESSORS)
    ]
    for one in running:
        one.wait()  # what cannot be collected is said by those that run it


def a_fifth(seed: str) -> list[str]:
    """The paths of a fifth of the files of tests: other ones for another seed."""
    files = sorted(str(one) for one in Path("tests").rglob("test_*.py"))
    return [one for one in files if sha256(f"{seed} {one}".encode()).digest()[0] % 5 == 0]


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
    asked = ArgumentParser()
    asked.add_argument("--no-browser", action="store_true")
    asked.add_argument("--fifth", metavar="SEED")
    chosen = asked.parse_args()
    files = a_fifth(chosen.fifth) if chosen.fifth else []
    if not files and not Path("tests/__pycache__").exists():
        compile_tests()
    others = (*OTHERS, "--whole", *files) if files else OTHERS
    if chosen.no_browser:
        sys.exit(subprocess.run(others).returncode)
    sys.exit(side_by_side(others, BROWSER))
