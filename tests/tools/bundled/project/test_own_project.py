"""The project itself is installed: built confined and without network, what it needs as wheels."""

import io
import os
import socket
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from loom_audit.errors import InvalidArguments
from loom_audit.ports import Command, CommandResult, Moments
from loom_audit.sandbox import ConfiningRunner, open_runner
from loom_audit.tools.bundled.project.requirements import (
    DEFAULT,
    BuildSystem,
    build_system,
    is_named,
    needed,
    own_project,
)
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.settings import ToolSettings
from tests.tools.bundled.project.test_install_package import index
from tests.tools.conftest import Bench

__all__ = ["index"]

BACKEND_TEXT = """
import os, socket, sys, zipfile
import tomllib

NAME, VERSION = {name!r}, "1.0"
METADATA = {metadata!r}

def call_out():
    for place in ("outcome", "/tmp/outcome"):
        try:
            socket.create_connection(("127.0.0.1", {port}), 2).close()
            said = "reached"
        except OSError as error:
            said = "not reached"
        try:
            open(place, "a").write(said + chr(10))
        except OSError:
            pass

def wheel(folder, files):
    call_out()
    info = NAME + "-" + VERSION + ".dist-info/"
    files[info + "METADATA"] = METADATA
    files[info + "WHEEL"] = "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n"
    files[info + "RECORD"] = "".join(path + ",,\\n" for path in [*files, info + "RECORD"])
    name = NAME + "-" + VERSION + "-py3-none-any.whl"
    with zipfile.ZipFile(os.path.join(folder, name), "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)
    return name

def get_requires_for_build_editable(config_settings=None):
    return ["other_thing"]

def build_wheel(folder, config_settings=None, metadata_directory=None):
    return wheel(folder, {{NAME + ".py": "where = 'copied'\\n"}})

def build_editable(folder, config_settings=None, metadata_directory=None):
    import other_thing
    return wheel(folder, {{NAME + ".pth": os.getcwd() + "/lib\\n"}})
"""
METADATA = """Metadata-Version: 2.1
Name: shop
Version: 1.0
Requires-Dist: tiny<2
Requires-Dist: other-thing (>=1) ; extra == 'dev'
Requires-Dist: nothing-of-this-name; python_version < '3'
Provides-Extra: dev
"""
PYPROJECT = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'


@pytest.fixture
def confined(bench: Bench) -> Bench:
    if bench.session.writer.attachment.on_disk.runner.name != "bubblewrap":
        pytest.skip("confinement that is required needs bubblewrap here")
    return bench


@pytest.fixture
def listening() -> Iterator[socket.socket]:
    """What code that calls out would reach, where it had the network."""
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        server.setblocking(False)
        yield server


@pytest.fixture
def project(confined: Bench, index: Path, listening: socket.socket) -> Path:
    lay_project(confined.root, listening.getsockname()[1])
    lay_environment(confined.root)
    return confined.root


def lay_environment(root: Path) -> None:
    """One without pip, as uv makes them; it takes less time too."""
    words = [sys.executable, "-m", "venv", "--without-pip", str(root / ".venv")]
    subprocess.run(words, check=True)


def lay_project(root: Path, port: int, metadata: str = METADATA, name: str = "shop") -> None:
    (root / "pyproject.toml").write_text(PYPROJECT)
    (root / "backend.py").write_text(BACKEND_TEXT.format(name=name, metadata=metadata, port=port))
    (root / "lib").mkdir(exist_ok=True)
    (root / f"lib/{name}.py").write_text("where = 'lying here'\n")


def install(bench: Bench, *packages: str, **options: object) -> ToolResult:
    return bench.call("install_package", {"manager": "pip", "packages": [*packages]}, **options)


def imported(root: Path, code: str) -> str:
    python = root / ".venv/bin/python"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def nobody_called(listening: socket.socket) -> bool:
    try:
        listening.accept()
    except BlockingIOError:
        return True
    return False


@pytest.mark.few(0)
def test_an_editable_project_with_an_extra_and_what_it_needs(
    confined: Bench, project: Path, listening: socket.socket
) -> None:
    result = install(confined, "-e .[dev]")
    assert result.success, result.output
    assert result.data["environment"] == ".venv"
    assert result.output.startswith("installed into .venv: shop 1.0, ")
    found = {one["name"].replace("-", "_"): one["version"] for one in result.data["installed"]}
    assert found == {"shop": "1.0", "tiny": "1.0", "other_thing": "1.0"}
    assert imported(project, "import shop, tiny, other_thing; print(shop.where)") == "lying here"
    assert (project / "outcome").read_text().split("\n")[:-1] == ["not reached"]
    assert nobody_called(listening)
    again = install(confined, "-e", ".", "tiny>=2")
    assert not again.success and "tiny" in again.output  # the project wants another
    confined.assert_every_call_has_one_finish()
    confined.assert_log_agrees_with_disk()


@pytest.mark.few(0)
def test_a_project_is_copied_without_e_into_an_environment_without_pip(
    confined: Bench, project: Path
) -> None:
    result = install(confined, ".")
    assert result.success, result.output
    assert imported(project, "import shop, tiny; print(shop.where, tiny.version)") == "copied 1.0"


@pytest.mark.few(0)
def test_an_interpreter_that_was_planted_has_no_network(
    confined: Bench, project: Path, listening: socket.socket
) -> None:
    port = listening.getsockname()[1]
    python = project / ".venv/bin/python"
    python.unlink()
    code = f"import socket; socket.create_connection(('127.0.0.1', {port}), 2)"
    python.write_text(f'#!/bin/sh\n{sys.executable} -c "{code}"\necho ran >> {project}/ran\n')
    python.chmod(0o755)
    install(confined, "tiny")
    install(confined, ".")
    assert (project / "ran").exists() and nobody_called(listening)


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "wanted",
    [
        "evil @ file:///ROOT/evil",
        "evil @ git+https://example.org/evil",
        "evil.zip",
        "evil.tar.gz[x]",
        "./evil",
        "--find-links=http://example.org",
        "evil; @",
    ],
)
def test_what_the_project_says_it_needs_is_taken_by_name_only(
    confined: Bench, project: Path, listening: socket.socket, wanted: str
) -> None:
    wanted = wanted.replace("ROOT", str(project))
    with pytest.raises(InvalidArguments, match="not taken by name"):
        needed(f"Requires-Dist: {wanted}\n", ())
    if wanted.startswith("evil @ file"):
        metadata = METADATA.replace("tiny<2", wanted)
        lay_project(project, listening.getsockname()[1], metadata)
        result = install(confined, ".")
        assert result.error.code == "INVALID_ARGUMENTS" and "evil" in str(result.error)


class Missing:
    """A backend that this machine does not let work."""

    name = "bubblewrap"

    def run(self, root: str, command: Command, _: Moments = Moments()) -> CommandResult:
        return open_runner("plain").run(root, Command(("false",)))


def test_where_nothing_confines_it_the_project_is_not_built(confined: Bench, project: Path) -> None:
    off = install(confined, ".", settings=ToolSettings(confinement="off"))
    assert off.error.code == "PERMISSION_DENIED" and "confined or not at all" in str(off.error)
    runner = ConfiningRunner(lambda: open_runner("plain"), lambda: [Missing()])
    nowhere = install(confined, ".", runner=runner)
    assert nowhere.error.code == "EXECUTION_ERROR" and "must be confined" in str(nowhere.error)
    assert not (project / "outcome").exists()


@pytest.mark.few(0)
def test_an_extra_that_is_not_there_and_a_folder_that_is_not_a_project(
    confined: Bench, project: Path
) -> None:
    result = install(confined, ".[test]")
    assert result.error.code == "INVALID_ARGUMENTS" and "dev" in result.error.hint
    for name in ("pyproject.toml", "backend.py"):
        (project / name).unlink()
    assert install(confined, ".").error.code == "NOT_FOUND"


def sdist(folder: Path, name: str, port: int) -> None:
    """A source archive that builds itself."""
    files = {
        "PKG-INFO": f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n",
        "pyproject.toml": PYPROJECT,
        "backend.py": BACKEND_TEXT.format(
            name=name, metadata=f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n", port=port
        ),
    }
    with tarfile.open(folder / f"{name}-1.0.tar.gz", "w:gz") as archive:
        for path, text in files.items():
            entry = tarfile.TarInfo(f"{name}-1.0/{path}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))


@pytest.mark.few(0)
def test_what_has_no_wheel_is_refused_until_a_person_allows_it(
    bench: Bench, index: Path, listening: socket.socket
) -> None:
    lay_environment(bench.root)
    sdist(index, "source_only", listening.getsockname()[1])
    refused = install(bench, "source_only")
    assert refused.error.code == "EXECUTION_ERROR"
    assert "build_packages" in refused.error.hint and nobody_called(listening)
    allowed = install(bench, "source_only", settings=ToolSettings(build_packages=("source_only",)))
    assert allowed.success, allowed.output
    assert imported(bench.root, "import source_only; print(source_only.where)") == "copied"


@pytest.mark.parametrize(
    ("text", "extras", "editable"),
    [
        (".", (), False),
        (".[dev]", ("dev",), False),
        ("-e .", (), True),
        ("-e .[dev, Test_It]", ("dev", "test-it"), True),
        ("--editable=.[a]", ("a",), True),
    ],
)
def test_the_project_itself_is_named(text: str, extras: tuple[str, ...], editable: bool) -> None:
    found = own_project(text)
    assert found is not None and (found.extras, found.editable) == (extras, editable)


@pytest.mark.parametrize("text", ["", "..", "./", ".[", ".[a]b", "-e x", "-e..", ". x", "-e ../x"])
def test_nothing_else_names_it(text: str) -> None:
    assert own_project(text) is None
    assert not is_named(text)


def test_what_builds_a_project_is_what_it_says() -> None:
    assert build_system("") == build_system("[project]\nname = 'x'\n") == BuildSystem(DEFAULT)
    said = "[build-system]\nrequires = ['hatchling >= 1', \"tomli; python_version < '3.11'\"]\n"
    assert build_system(said).requires == ("hatchling >= 1", "tomli; python_version < '3.11'")
    for text in ("[build-system", "[build-system]\nrequires = 'x'", "[build-system]\nrequires=[1]"):
        with pytest.raises(InvalidArguments):
            build_system(text)


def test_what_an_extra_needs_is_asked_for_with_it() -> None:
    metadata = (
        "Requires-Dist: a\nRequires-Dist: b (>=1)\n"
        "Requires-Dist: c; (python_version > '3') and extra == \"Dev\"\n"
        "Provides-Extra: dev\nProvides-Extra: docs\n\nRequires-Dist: in-the-description\n"
    )
    true, false = "python_version >= '0'", "python_version < '0'"
    assert needed(metadata, ()) == ["a", "b >=1", f"c; (python_version > '3') and {false}"]
    assert needed(metadata, ("dev",))[2] == f"c; (python_version > '3') and {true}"
    with pytest.raises(InvalidArguments, match="no extra test") as raised:
        needed(metadata, ("test",))
    assert raised.value.hint == "It has: dev, docs."


@pytest.mark.parametrize("name", ["x.zip", "x.whl", "x.zip[a]", "x.tar.gz", "X.ZIP [a]", "x" * 301])
def test_the_name_of_an_archive_names_no_package(name: str) -> None:
    assert not is_named(name) and is_named("zip") and is_named("a.zipper[x]>=1")
    assert os.sep not in name
