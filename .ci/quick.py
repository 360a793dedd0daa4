"""Runs the tests of what changed since the last commit, and a core set: `make quick`.

A test file belongs to a changed module when it is in the folder that mirrors the module's, or
when it imports the module, itself or through what it imports: the nearest come first, and at
most `MOST` of them, so that the whole takes less than a minute.
"""

import ast
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MOST = 10
CORE = (
    "tests/test_shape.py",
    "tests/api/test_actors.py",
    "tests/cli/test_cli_help.py",
    "tests/contracts/test_lock.py",
    "tests/disk/test_replace.py",
    "tests/history/read/test_timeline.py",
    "tests/model/test_planning.py",
    "tests/sandbox/test_choice.py",
    "tests/sql/test_database.py",
    "tests/tools/calls/test_registry.py",
    "tests/web/test_web_urls.py",
)
"""One file for each room, quick ones."""

FOLDERS = {"templates": "tests/web", "static": "tests/web", "docs": "tests/test_docs.py"}
FILES = {
    "README.md": "tests/test_docs.py",
    "CONTRIBUTING.md": "tests/test_recipes.py",
    "Makefile": "tests/test_frame.py",
    "pyproject.toml": "tests/test_packaging.py",
    "loom_audit/sql/schema.sql": "tests/sql/test_upgrade.py",
}


def main() -> int:
    tests = chosen(changed(), ROOT)
    print(f"quick: {len(tests)} test files", flush=True)
    without = "not deep and not browser and not clients"
    options = ["-q", "-n", "auto", "--dist", "worksteal", "-m", without]
    return subprocess.run([sys.executable, "-m", "pytest", *options, *tests], cwd=ROOT).returncode


def changed() -> list[str]:
    """Paths that differ from the last commit, those git does not know among them."""
    known = _git("diff", "-z", "--name-only", "HEAD")
    return [
        path for path in (known + _git("ls-files", "-zo", "--exclude-standard")).split("\0") if path
    ]


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], cwd=ROOT, check=True, capture_output=True, text=True)
    return done.stdout


def chosen(paths: Collection[str], root: Path) -> list[str]:
    """The test files to run for changed paths, as paths below the root; the core ones last."""
    files = _python(root) if paths else ()
    imports = {str(file.relative_to(root)): set(imported(file)) for file in files}
    nearest: dict[str, int] = {}
    for path in paths:
        for test, distance in _tests_of(path, imports, root):
            nearest[test] = min(distance, nearest.get(test, distance))
    first = sorted(nearest, key=lambda test: (nearest[test], test))[:MOST]
    return [*first, *(test for test in CORE if test not in first)]


def _tests_of(path: str, imports: Mapping[str, set[str]], root: Path) -> Iterator[tuple[str, int]]:
    """Test files that belong to a path, each with how far from it."""
    top, _, rest = path.partition("/")
    named = FILES.get(path) or FOLDERS.get(top)
    if named is not None:
        yield from ((test, 1) for test in _test_files(root / named, root))
    elif _is_test(path):
        if (root / path).is_file():
            yield path, 0
    elif path.endswith(".py") and top in ("loom_audit", "tests"):
        if top == "loom_audit":
            mirrored = (root / "tests" / rest).parent
            yield from ((test, 1) for test in _test_files(mirrored, root, deep=False))
        yield from _importers(path, imports)


def _importers(path: str, imports: Mapping[str, set[str]]) -> Iterator[tuple[str, int]]:
    """Test files that import a module, nearest first."""
    reached, found, distance = {path}, {path}, 0
    while found and distance < 4:
        distance += 1
        names = {_module(one) for one in found}
        found = {file for file, modules in imports.items() if names & modules} - reached
        reached |= found
        yield from ((file, distance) for file in found if _is_test(file))


def imported(file: Path) -> Iterator[str]:
    """The modules that a file imports, by their dotted names."""
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            yield from (name.name for name in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{name.name}" for name in node.names)


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _is_test(path: str) -> bool:
    return path.startswith("tests/") and path.rpartition("/")[2].startswith("test_")


def _python(root: Path) -> Iterator[Path]:
    for folder in ("loom_audit", "tests"):
        yield from (root / folder).rglob("*.py")


def _test_files(place: Path, root: Path, *, deep: bool = True) -> Iterator[str]:
    found = [place] if place.is_file() else sorted(place.rglob("test_*.py"))
    yield from (str(f.relative_to(root)) for f in found if deep or f.parent == place)


if __name__ == "__main__":
    sys.exit(main())
