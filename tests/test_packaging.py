"""What an installed wheel holds; built with hatchling itself, so that no network is needed."""

import ast
import os
import re
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, metadata, packages_distributions
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]


def build(source: Path, kind: str, into: Path) -> Path:
    """Through the PEP 517 hooks that an installer calls."""
    script = f"import sys, hatchling.build as b; print(b.build_{kind}(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", script, str(into)],
        cwd=source,
        check=True,
        capture_output=True,
        text=True,
    )
    return into / done.stdout.split()[-1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(ROOT, "wheel", tmp_path_factory.mktemp("wheel"))


def names(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if ".dist-info/" not in name}


def files(*parts: str) -> set[str]:
    folder = ROOT.joinpath(*parts)
    return {
        str(path.relative_to(folder))
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def test_the_wheel_holds_every_module_template_static_file_and_migration(wheel: Path) -> None:
    expected = {f"loom_audit/{name}" for name in files("loom_audit")}
    expected |= {f"loom_audit/_assets/templates/{name}" for name in files("templates")}
    expected |= {f"loom_audit/_assets/static/{name}" for name in files("static")}
    assert names(wheel) == expected
    assert "loom_audit/py.typed" in expected
    assert any(name.startswith("loom_audit/migrations/versions/") for name in expected)


PROGRAMS = {
    "loom_audit/sql/definition.py",  # writes schema.sql
    "loom_audit/tools/bundled/project/tests_program.py",
    "loom_audit/verify_alone.py",
}


def test_the_wheel_holds_no_program_that_writes_documents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        modules = [name for name in names(wheel) if name.endswith(".py")]
        main = 'if __name__ == "__main__":'
        assert {name for name in modules if main in archive.read(name).decode()} == PROGRAMS


def test_the_wheel_names_its_licence_and_its_command(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        inside = {Path(name).name: name for name in archive.namelist() if ".dist-info/" in name}
        assert "LICENSE" in inside
        entry_points = archive.read(inside["entry_points.txt"]).decode()
        metadata = archive.read(inside["METADATA"]).decode()
    assert "loom-audit = loom_audit.cli:main" in entry_points
    assert "License-Expression: MIT" in metadata


@pytest.mark.few(0)
def test_a_wheel_built_from_the_source_distribution_is_the_same(
    wheel: Path, tmp_path: Path
) -> None:
    sdist = build(ROOT, "sdist", tmp_path)
    with tarfile.open(sdist) as archive:
        archive.extraction_filter = staticmethod(lambda member, _: member)  # `filter=`: 3.11.4
        archive.extractall(tmp_path / "unpacked")
    (source,) = (tmp_path / "unpacked").iterdir()
    assert names(build(source, "wheel", tmp_path)) == names(wheel)


@pytest.mark.few(0)
def test_an_installed_wheel_runs_its_command(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "site")
    environment = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    workspace = tmp_path / "workspace"
    workspace.mkdir()
    (workspace / "a.txt").write_text("one\n")

    def loom_audit(*arguments: str) -> str:
        script = "import sys, loom_audit.cli as c; assert 'site' in c.__file__; sys.exit(c.main())"
        done = subprocess.run(
            [sys.executable, "-c", script, *arguments],
            cwd=workspace,
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    loom_audit("init")
    assert "a.txt" in loom_audit("ls", "--at", "head")


def pins(name: str) -> dict[str, str]:
    """Package, as an installer compares names → its line in a lock file."""
    lines = (ROOT / ".ci" / f"{name}.lock").read_text().splitlines()
    kept = [line for line in lines if line and not line.startswith("#")]
    return {canonicalize_name(line.partition("==")[0]): line for line in kept}


@pytest.mark.parametrize("name", ["run", "test"])
def test_every_pin_of_a_lock_is_plain(name: str) -> None:
    lines = pins(name).values()
    assert len(lines) > 20
    assert [line for line in lines if "==" not in line or "://" in line or line[0] == "-"] == []


def test_what_running_needs_is_in_the_lock_for_running_and_what_testing_needs_is_not() -> None:
    asked = tomllib.loads((ROOT / "pyproject.toml").read_text())
    running = asked["build-system"]["requires"] + asked["project"]["dependencies"]
    running += asked["dependency-groups"]["editable"]
    testing = asked["dependency-groups"]["dev"]
    assert {canonicalize_name(Requirement(text).name) for text in running} <= pins("run").keys()
    tools = {canonicalize_name(Requirement(text).name) for text in testing}
    assert tools <= pins("test").keys()
    assert not tools & pins("run").keys()


PERMISSIVE = re.compile(r"\b(MIT|BSD|Apache|ISC|PSF|MPL|Artistic|0BSD|Zlib)\b", re.IGNORECASE)
UNSAID = {"pysqlite3"}
"""Its metadata names no licence; the file in its archive is zlib's."""


def licences(distribution: str) -> list[str]:
    """Those by which a distribution can be had, one of them is enough."""
    said = metadata(distribution).json
    if expression := said.get("license_expression"):
        return str(expression).split(" OR ")
    classified = [str(c) for c in said.get("classifier", ()) if str(c).startswith("License ::")]
    return classified or [str(said.get("license", ""))]


@pytest.mark.parametrize("name", ["run.lock", "test.lock"])
def test_every_package_of_a_lock_has_a_licence_that_asks_nothing_of_ours(name: str) -> None:
    pinned = re.findall(r"^([\w.-]+)==", (ROOT / ".ci" / name).read_text(), re.MULTILINE)
    refused, unknown = {}, []
    for one in pinned:
        try:
            found = licences(one)
        except PackageNotFoundError:  # another machine's
            unknown.append(one)
            continue
        if one not in UNSAID and not any(PERMISSIVE.search(licence) for licence in found):
            refused[one] = found
    assert not refused and len(unknown) < len(pinned) / 4


THEIRS = {"langchain_core", "agents", "pydantic_ai", "pytest", "_pytest"}
"""What whoever calls us, or the project under audit, has brought along."""
BESIDE = {"restrict", "supervisor", "compression"}
"""The files beside the supervisor, and what the standard library has from Python 3.14 on."""


def test_what_the_package_imports_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {str(canonicalize_name(Requirement(one).name)) for one in project["dependencies"]}
    given_by = packages_distributions()
    undeclared = {}
    for path in (ROOT / "loom_audit").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
                tops = {node.module.partition(".")[0]}
            elif isinstance(node, ast.Import):
                tops = {alias.name.partition(".")[0] for alias in node.names}
            else:
                continue
            for top in tops - {"loom_audit", *THEIRS, *BESIDE, *sys.stdlib_module_names}:
                owners = {str(canonicalize_name(one)) for one in given_by.get(top, [top])}
                owners |= {"mcp"} if owners == {"mcp-types"} else set()  # a part of its API
                if declared.isdisjoint(owners):
                    undeclared[str(path.relative_to(ROOT))] = top
    assert undeclared == {}
