"""`python -m benchmarks`: measure, and print a table as it comes, and JSON.

Each benchmark runs in a process of its own, in a temporary folder that is deleted afterwards.
"""

import argparse
import importlib
import json
import platform
import subprocess
import sys
import tempfile
import time
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.figures import Sizes

BENCHMARKS = (
    "startup",
    "write",
    "beginning",
    "baseline",
    "noop",
    "commands",
    "storage",
    "rollback",
    "reading",
    "reads",
    "pages",
    "readers",
    "blame",
    "verify",
    "imports",
    "memory",
    "confinement",
    "hooks",
    "watching",
    "git",
    "tools",
)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, below three minutes")
    parser.add_argument("--huge", action="store_true", help="also a million events")
    parser.add_argument("--only", action="append", choices=BENCHMARKS, help="just this one")
    parser.add_argument("--json", type=Path, metavar="FILE", help="also write the figures there")
    parser.add_argument(
        "--dir",
        type=Path,
        action="append",
        help="where temporary folders are made; several times: each benchmark in each of them",
    )
    parser.add_argument("--inner", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.inner:
        return _measure(chosen)
    figures: list[dict[str, Any]] = []
    failed = 0
    print(f"{'':44}{'ours':>12}{'theirs':>12}{'ratio':>8}{'at most':>9}")
    for name, place in product(chosen.only or BENCHMARKS, chosen.dir or [None]):
        started = time.monotonic()
        print(name, flush=True)
        with _in_child(name, place) as child:
            for line in child.stdout or ():
                figures.append(json.loads(line))
                print(_row(figures[-1]), flush=True)
        failed += child.returncode != 0
        print(f"  in {time.monotonic() - started:.0f} s" + ", failed" * bool(child.returncode))
    report = {
        "python": platform.python_version(),
        "system": platform.platform(),
        "quick": chosen.quick,
        "figures": figures,
    }
    if chosen.json:
        chosen.json.write_text(json.dumps(report, indent=1) + "\n")
    else:
        print(json.dumps(report))
    return 1 if failed else 0


def _in_child(name: str, place: Path | None) -> subprocess.Popen[str]:
    flags = [flag for flag in sys.argv[1:] if flag in ("--quick", "--huge")]
    if place is not None:
        flags += ["--dir", str(place)]
    return subprocess.Popen(
        [sys.executable, "-m", "benchmarks", "--inner", "--only", name, *flags],
        stdout=subprocess.PIPE,
        text=True,
    )


def _measure(chosen: argparse.Namespace) -> int:
    sizes = Sizes(quick=chosen.quick, huge=chosen.huge)
    module = importlib.import_module(f"benchmarks.{chosen.only[0]}")
    place = chosen.dir[0] if chosen.dir else None
    with tempfile.TemporaryDirectory(prefix="loom-audit-bench-", dir=place) as folder:
        for figure in module.measure(Path(folder), sizes):
            print(json.dumps(figure.to_dict()), flush=True)
    return 0


def _row(figure: dict[str, Any]) -> str:
    ours, theirs = (_shown(figure[key], figure["unit"]) for key in ("ours", "theirs"))
    ratio = "" if figure["ratio"] is None else f"{figure['ratio']:.2f}"
    most = figure["most"]
    bound = "" if most is None else f"{most:g}"
    verdict = {True: "", False: "  MISSED", None: ""}[figure["meets"]]
    against = f"  {figure['against']}" if figure["against"] else ""
    note = f"  ({figure['note']})" if figure["note"] else ""
    return (
        f"  {figure['name']:42}{ours:>12}{theirs:>12}{ratio:>8}{bound:>9}{verdict}{against}{note}"
    )


def _shown(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    if unit == "B":
        return f"{value:,.0f} B"
    return f"{value:,.2f} {unit}" if value < 100 else f"{value:,.0f} {unit}"


if __name__ == "__main__":
    sys.exit(main())
