"""A project's commands find the project's programs; outside of the sandbox nobody does."""

import os
import shlex
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from loom_audit.tools.calls.places.area import search_path
from loom_audit.tools.calls.settings import ToolSettings
from tests.tools.bundled.git.test_git import person, repo
from tests.tools.conftest import Bench

__all__ = ["person", "repo"]

OFF = ToolSettings(confinement="off")
WHICH = "import sys; print(sys.prefix, sys.executable)"


@pytest.fixture
def confined(bench: Bench) -> Bench:
    """Only where a sandbox works here."""
    if bench.session.writer.attachment.on_disk.runner.name == "plain":
        pytest.skip("no sandbox works on this machine")
    return bench


def said(bench: Bench, command: str, **options: Any) -> str:
    return str(bench.call("bash", {"command": command}, **options).data["stdout"]).strip()


def run_code(bench: Bench, code: str, **options: Any) -> str:
    result = bench.call("run_code", {"language": "python", "code": code}, **options)
    assert result.success, result.output
    return str(result.data["stdout"]).strip()


def planted(folder: Path, name: str, text: str) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(f"#!/bin/sh\n{text}\n")
    (folder / name).chmod(0o755)


def test_a_command_finds_the_programs_of_the_project_s_environment_first(confined: Bench) -> None:
    root = confined.root
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", root / ".venv"], check=True)
    planted(root / ".venv/bin", "tool", "echo of the environment")
    planted(root / "node_modules/.bin", "lint", "echo of node")
    assert said(confined, "tool; lint; echo $VIRTUAL_ENV").split("\n") == [
        "of the environment",
        "of node",
        str(root / ".venv"),
    ]
    prefix = f"{root}/.venv {root}/.venv/bin/python"
    assert said(confined, f"python -c '{WHICH}'") == prefix
    assert run_code(confined, WHICH) == prefix
    assert confined.call("shell_execute", {"command": "tool"}).output == "of the environment"
    assert run_code(confined, "import main", environment={"PYTHONPATH": str(root / "src")})


def test_git_opens_no_editor_and_says_what_to_do(bench: Bench, repo: Path) -> None:
    command = {"command": "date >> notes.txt; git commit --all"}
    result = bench.call("bash", command)
    assert not result.success and "no editor opens here: -m gives the text" in result.output
    chosen = bench.call("bash", command, environment={"GIT_EDITOR": "echo by editor >"})
    assert chosen.success and "[HEAD: " in chosen.output


@pytest.mark.parametrize("name", ["venv", "env"])
def test_an_environment_has_other_usual_names(confined: Bench, name: str) -> None:
    planted(confined.root / name / "bin", "python", "echo mine")
    assert said(confined, "python x.py") == "mine"


def test_one_of_conda_is_told_as_conda_tells_it(confined: Bench) -> None:
    (confined.root / "env/conda-meta").mkdir(parents=True)
    planted(confined.root / "env/bin", "python", "echo of conda")
    assert said(confined, 'python x; echo "$CONDA_PREFIX"').split("\n") == [
        "of conda",
        str(confined.root / "env"),
    ]


def test_an_environment_that_leads_elsewhere_is_not_used(bench: Bench, tmp_path: Path) -> None:
    planted(tmp_path / "elsewhere/bin", "python", "echo elsewhere")
    (bench.root / ".venv").symlink_to(tmp_path / "elsewhere")
    assert ".venv" not in said(bench, "echo $PATH")
    assert run_code(bench, "print(1)") == "1"


@pytest.mark.few(1)
@pytest.mark.parametrize("link", ["uv", "pyenv"])
def test_an_environment_that_links_to_a_version_by_its_short_name(
    confined: Bench, tmp_path: Path, link: str
) -> None:
    """As uv lays its environments (`cpython-3.12-linux`), and pyenv with a prefix (`3.12`)."""
    versions = tmp_path / {"uv": "uv/python", "pyenv": "pyenv/versions"}[link]
    versions.mkdir(parents=True)
    short = versions / {"uv": "cpython-3-linux", "pyenv": "3"}[link]
    short.symlink_to(sys.base_prefix)
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    folder = confined.root / ".venv"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (folder / "bin/python").unlink()
    (folder / "bin/python").symlink_to(short / "bin" / name)
    (folder / "pyvenv.cfg").write_text(f"home = {short}/bin\n")
    assert said(confined, "python -c 'import sys; print(sys.prefix)'") == str(folder)
    assert run_code(confined, "import json, sys; print(sys.prefix)") == str(folder)


def test_a_link_through_a_folder_of_another_kind_shows_nothing(
    confined: Bench, tmp_path: Path
) -> None:
    """The folder beside must be the interpreter's own: an agent may have made the link."""
    planted_folder = tmp_path / "planted"
    (planted_folder / "lib").mkdir(parents=True)
    (planted_folder / "lib/secret").write_text("kept apart")
    (planted_folder / "bin").symlink_to(Path(sys.base_prefix) / "bin")
    name = f"python{sys.version_info.major}.{sys.version_info.minor}"
    (confined.root / ".venv/bin").mkdir(parents=True)
    (confined.root / ".venv/bin/python").symlink_to(planted_folder / "bin" / name)
    assert "kept apart" not in said(confined, f"cat {planted_folder}/lib/secret")


def test_the_python_of_pyenv_s_shims_is_found(
    confined: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = tmp_path / "pyenv/versions/3.x/bin"
    planted(version, "python3", f'exec {shutil.which("python3", path="/usr/bin")} "$@"')
    planted(tmp_path / "pyenv/shims", "python3", f'echo shim; exec {version}/python3 "$@"')
    monkeypatch.setenv("PATH", f"{tmp_path}/pyenv/shims:/usr/bin:/bin")
    assert said(confined, "python3 -c 'print(1)'").split() == ["shim", "1"]
    assert run_code(confined, "print(2)").split() == ["shim", "2"]
    (confined.root / ".python-version").write_text("3.x\n")  # then no shim has to find it
    assert run_code(confined, "print(3)").split() == ["3"]
    for other in ("system", "../versions/3.x", "4"):
        (confined.root / ".python-version").write_text(other)
        assert run_code(confined, "print(4)").split() == ["shim", "4"]


@pytest.fixture
def activated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Our own environment is active, as where `loom-audit` was installed in one."""
    monkeypatch.setenv("VIRTUAL_ENV", sys.prefix)
    monkeypatch.setenv("PATH", f"{sys.prefix}/bin:/usr/bin:/bin")


@pytest.mark.usefixtures("activated")
@pytest.mark.skipif(sys.prefix == sys.base_prefix, reason="not in an environment of its own")
@pytest.mark.parametrize("settings", [None, OFF])
def test_our_own_environment_is_not_the_project_s(
    bench: Bench, settings: ToolSettings | None
) -> None:
    code = "import sys; print(sys.prefix)"
    assert run_code(bench, code, settings=settings) != sys.prefix
    assert said(bench, f"python3 -c '{code}'", settings=settings) != sys.prefix
    assert said(bench, 'echo "$VIRTUAL_ENV"', settings=settings) == ""
    assert f"{sys.prefix}/bin" not in said(bench, "echo $PATH", settings=settings).split(":")


def test_where_path_has_no_python_the_one_that_ours_rests_on_is_taken_alone(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "few").mkdir()
    for name in ("env", "sh", "rm"):
        (tmp_path / "few" / name).symlink_to(shutil.which(name) or "")
    monkeypatch.setenv("PATH", f"{tmp_path}/few")
    code = "import sys; print(sys.prefix, sys.flags.isolated)"
    assert run_code(bench, code) == f"{sys.base_prefix} 1"
    assert said(bench, "python3 -c 'import sys; print(sys.prefix)'") == sys.base_prefix


def test_where_nothing_confines_it_a_command_has_not_the_project_s_and_is_told(
    bench: Bench,
) -> None:
    planted(bench.root / ".venv/bin", "python", "echo planted")
    planted(bench.root / ".venv/bin", "python3", "echo planted")
    planted(bench.root / "node_modules/.bin", "lint", "echo planted")
    result = bench.call("bash", {"command": "python3 -c 'print(1)'"}, settings=OFF)
    assert result.data["stdout"] == "1\n"
    told = "[not on PATH, as nothing confines the command: .venv/bin, node_modules/.bin]"
    assert told in result.output
    assert run_code(bench, "print(1)", settings=OFF) == "1"


PLANTED = ("git", "env", "sh", "bash", "python", "python3", "node", "npm", "bwrap", "ruff", "rm")


@pytest.fixture
def mark(confined: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where a program that was planted into the project leaves its mark when it runs outside.

    The project's environment is active, so that its folder is on our own PATH too.
    """
    mark = tmp_path / "mark"
    for name in PLANTED:
        for folder in (".venv/bin", "node_modules/.bin"):
            planted(confined.root / folder, name, f"echo planted; touch {shlex.quote(str(mark))}")
    folders = f"{confined.root}/.venv/bin:{confined.root}/node_modules/.bin"
    monkeypatch.setenv("PATH", f"{folders}:{os.environ['PATH']}")
    monkeypatch.setenv("VIRTUAL_ENV", f"{confined.root}/.venv")
    return mark


@pytest.mark.few(0)
def test_a_planted_program_runs_in_the_sandbox_alone_and_is_none_of_ours(
    confined: Bench, repo: Path, mark: Path
) -> None:
    assert said(confined, "git status") == "planted"
    (repo / "notes.txt").write_text("changed")
    assert confined.call("git_status", {}).data["entries"][0]["path"] == "notes.txt"
    assert "notes.txt" in confined.call("git_diff", {}).output
    assert confined.call("git_commit", {"message": "a", "all": True}).success
    hook = repo / ".git/hooks/pre-commit"
    hook.write_text("#!/bin/sh\npython3\n")
    hook.chmod(0o755)
    (repo / "notes.txt").write_text("changed again")
    assert confined.call("git_commit", {"message": "b", "all": True, "hooks": True}).success
    subjects = [commit["subject"] for commit in confined.call("git_log", {}).data["commits"]]
    assert subjects == ["b", "a", "first"]
    assert confined.call("search_files", {"pattern": "one"}).data["count"]
    confined.call("run_code", {"language": "bash", "code": "python3; node; rm"})
    confined.call("run_tests", {"framework": "pytest"})
    confined.call("format_code", {"paths": ["src/main.py"]})
    confined.call("install_package", {"manager": "pip", "packages": ["nothing-of-this-name"]})
    assert not mark.exists()
    confined.workspace.verify()
    assert not mark.exists()


def test_a_planted_shell_is_not_what_a_command_runs_in(confined: Bench, mark: Path) -> None:
    assert said(confined, "echo mine") == "mine"
    code = {"language": "bash", "code": "echo mine"}
    assert confined.call("run_code", code).data["stdout"] == "mine\n"


def test_a_planted_program_does_not_run_for_a_person(
    confined: Bench, repo: Path, mark: Path
) -> None:
    confined.call("bash", {"command": "echo x > made; /usr/bin/git add made"})
    plan = confined.workspace.plan_undo()
    confined.workspace.carry_out(plan)
    assert not (repo / "made").exists() and not mark.exists()


def test_the_path_of_our_programs_has_no_folder_that_leads_through_the_workspace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    work, outside = tmp_path / "work", tmp_path / "outside"
    for folder in (work / "bin", outside / "bin"):
        folder.mkdir(parents=True)
    (work / "out").symlink_to(outside)
    (outside / "in").symlink_to(work)
    kept = [f"{outside}/bin", "//usr/bin", "/usr/bin", "/"]
    left_out = [f"{work}/bin", f"{work}/out/bin", f"{outside}/in/bin", "bin", ".", ""]
    monkeypatch.setenv("PATH", ":".join([*left_out, *kept]))
    assert search_path(work, None)["PATH"] == ":".join(kept)
    monkeypatch.setenv("PATH", f"{work}/bin")
    assert search_path(work)["PATH"] == os.defpath
