"""Print `name==version` for everything that pyproject.toml asks for, as pip resolves it today.

A package that only some machines need keeps the marker its dependents give it. No hashes: pip
knows those of this machine's wheels only, and the lock is for other machines too.
"""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

from pip._vendor.packaging.requirements import Requirement
from pip._vendor.packaging.utils import canonicalize_name


def wanted() -> list[str]:
    project = tomllib.loads(Path("pyproject.toml").read_text())
    return [
        *project["build-system"]["requires"],
        *project["project"]["dependencies"],
        *project["dependency-groups"]["dev"],
    ]


def resolve(requirements: list[str]) -> list[dict[str, object]]:
    """pip's installation report, without installing anything."""
    command = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed"]
    done = subprocess.run(
        [*command, "--quiet", "--report", "-", *requirements], check=True, stdout=subprocess.PIPE
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


def main() -> None:
    direct = wanted()
    found = resolve(direct)
    markers = edges(found, direct)
    print("# Made by `make lock`.")
    for metadata in sorted(found, key=lambda entry: str(entry["name"]).lower()):
        asked = markers.get(canonicalize_name(str(metadata["name"])), {""})
        line = f"{metadata['name']}=={metadata['version']}"
        if "" not in asked:
            line += " ; " + " or ".join(sorted(asked))
        print(line)


if __name__ == "__main__":
    main()
