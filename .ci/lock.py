"""Writes run.lock and test.lock beside itself: `name==version`, as pip resolves them today.

run.lock holds what pyproject.toml asks for to run and to install in place, test.lock what the
group `dev` needs beside it; the versions are chosen together. A package that only some machines
need keeps the marker its dependents give it. No hashes: pip knows those of this machine's wheels
only, and the locks are for other machines too.
"""

import json
import subprocess
import sys
import tempfile
import tomllib
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name


def wanted() -> tuple[list[str], list[str]]:
    """What running asks for, and what testing asks for beside it."""
    project = tomllib.loads(Path("pyproject.toml").read_text())
    groups = project["dependency-groups"]
    running = [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *groups["editable"],
    ]
    return running, groups["dev"]


def resolve(requirements: list[str], *options: str) -> list[dict[str, object]]:
    """pip's installation report, without installing anything."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
    done = subprocess.run(
        [*command, "--quiet", "--report", "-", *options, *requirements],
        check=True,
        stdout=subprocess.PIPE,
    )
    return [entry["metadata"] for entry in json.loads(done.stdout)["install"]]


def edges(found: list[dict[str, object]], direct: list[str]) -> dict[str, set[str]]:
    """Package → the markers under which something asks for it; "" is always."""
    asked = [Requirement(text) for text in direct]
    for metadata in found:
        requires = metadata.get("requires_dist", [])
        assert isinstance(requires, list)
        asked += [Requirement(text) for text in requires]
    markers: dict[str, set[str]] = {}
    for requirement in asked:
        marker = str(requirement.marker or "")
        if "extra" not in marker:
            markers.setdefault(canonicalize_name(requirement.name), set()).add(marker)
    return markers


def pins(found: list[dict[str, object]], direct: list[str]) -> list[str]:
    """One line for each package that was found, by name."""
    markers = edges(found, direct)
    lines = []
    for metadata in sorted(found, key=lambda entry: str(entry["name"]).lower()):
        asked = markers.get(canonicalize_name(str(metadata["name"])), {""})
        line = f"{metadata['name']}=={metadata['version']}"
        if "" not in asked:
            line += " ; " + " or ".join(sorted(asked))
        lines.append(line)
    return lines


def main() -> None:
    running, testing = wanted()
    everything = resolve(running + testing)
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as chosen:
        chosen.writelines(f"{entry['name']}=={entry['version']}\n" for entry in everything)
        chosen.flush()
        run = pins(resolve(running, "--constraint", chosen.name), running)
    # a package that only testing needs everywhere is in both, once with its marker
    test = [line for line in pins(everything, running + testing) if line not in run]
    for name, lines in (("run", run), ("test", test)):
        text = "\n".join(["# Made by `make lock`.", *lines, ""])
        Path(__file__).with_name(f"{name}.lock").write_text(text)


if __name__ == "__main__":
    main()
