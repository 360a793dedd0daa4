"""Packages go into the workspace's own environment, by name, after somebody was asked."""

import base64
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from loom_audit.tools.bundled.project.package_sources import npm_settings, pip_settings
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.gate import Decision
from loom_audit.tools.calls.tool import Tool
from tests.tools.conftest import Bench


def wheel(
    folder: Path, name: str, version: str = "1.0", requires: Sequence[str] = (), text: str = ""
) -> None:
    """A wheel of one module, as the binary distribution format says."""
    info = f"{name}-{version}.dist-info"
    needs = "".join(f"Requires-Dist: {one}\n" for one in requires)
    files = {
        f"{name}.py": text or f"version = {version!r}\n",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{needs}",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in files) + f"{info}/RECORD,,\n"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        for path, text in files.items():
            archive.writestr(path, text)


@pytest.fixture
def index(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of wheels that pip takes packages from, and nothing else."""
    for name in [name for name in os.environ if name.startswith(("PIP_", "npm_config_"))]:
        monkeypatch.delenv(name)
    folder = bench.root / "wheels"
    folder.mkdir()
    wheel(folder, "tiny", requires=["other_thing"])
    wheel(folder, "tiny", "2.0")
    wheel(folder, "other_thing")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


@pytest.mark.few(0)
def test_pip_installs_into_an_environment_of_the_workspace_whose_configuration_is_not_heard(
    bench: Bench, index: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PIP_TARGET", str(tmp_path / "elsewhere"))
    result = bench.call("install_package", {"manager": "pip", "packages": ["tiny<2"]})
    assert result.success, result.output
    found = {one["name"].replace("-", "_"): one["version"] for one in result.data["installed"]}
    assert found == {"other_thing": "1.0", "tiny": "1.0"}
    python = bench.root / ".venv/bin/python"
    code = "import tiny, sys; print(tiny.version, sys.prefix)"
    done = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["1.0", str(bench.root / ".venv")]
    assert not (tmp_path / "elsewhere").exists()
    assert subprocess.run([sys.executable, "-c", "import tiny"], capture_output=True).returncode
    (bench.root / ".venv/pip.conf").write_text(f"[install]\ntarget = {bench.root}/evil\n")
    again = bench.call("install_package", {"manager": "pip", "packages": ["tiny >= 2"]})
    assert again.data["installed"] == [{"name": "tiny", "version": "2.0"}]
    assert not (bench.root / "evil").exists()
    unknown = bench.call("install_package", {"manager": "pip", "packages": ["unknown"]})
    assert unknown.error.code == "EXECUTION_ERROR" and unknown.data["exit_code"] == 1
    assert "unknown" in unknown.output
    bench.assert_every_call_has_one_finish()
    bench.assert_log_agrees_with_disk()


@pytest.mark.parametrize(
    "package",
    [
        "-r x",
        "--editable",
        "./x",
        "../x",
        "/x",
        "x.whl",
        "x.tar.gz",
        "x-1.0.zip",
        "file:x",
        "git+https://example.org/x",
        "https://example.org/x.whl",
        "x @ file:///x",
        "x;marker",
        "x; python_version>'3'",
        "",
        " x",
        "x\n--pre",
        "x y",
        "x==1 --pre",
        "a" * 400,
        "~x",
        "x/y",
    ],
)
@pytest.mark.parametrize("manager", ["pip", "npm"])
def test_what_is_not_a_name_is_refused(shared: Bench, manager: str, package: str) -> None:
    result = shared.call("install_package", {"manager": manager, "packages": [package]})
    assert result.error.code == "INVALID_ARGUMENTS"
    assert not (shared.root / ".venv").exists() and not (shared.root / "node_modules").exists()


@pytest.mark.parametrize(
    "package",
    [
        "a@file:x",
        "a@npm:b",
        "a@git+ssh://x",
        "a@./x",
        "@a",
        "@/a",
        "@a/b/c",
        "a.tgz",
        ".a",
        "a@b c",
    ],
)
def test_npm_takes_names_and_versions_only(shared: Bench, package: str) -> None:
    result = shared.call("install_package", {"manager": "npm", "packages": [package]})
    assert result.error.code == "INVALID_ARGUMENTS"


@pytest.fixture(scope="module")
def shared(
    tmp_path_factory: pytest.TempPathFactory,
    new_bench: Callable[[Path], AbstractContextManager[Bench]],
) -> Iterator[Bench]:
    with new_bench(tmp_path_factory.mktemp("refused")) as made:
        yield made


@pytest.mark.parametrize(
    "bad",
    [
        {"manager": "pip", "packages": []},
        {"manager": "brew", "packages": ["x"]},
        {"manager": "pip", "packages": ["x"], "dev": True},
        {"packages": ["x"]},
    ],
)
def test_arguments_that_are_none(shared: Bench, bad: dict[str, object]) -> None:
    assert shared.call("install_package", bad).error.code == "INVALID_ARGUMENTS"


def test_it_always_asks_and_says_what_for(bench: Bench) -> None:
    asks = []

    class Asked:
        async def decide(
            self, tool: Tool, args: Any, ctx: ToolContext, *, asked: str = ""
        ) -> Decision:
            asks.append((asked, tool.preview(args, ctx).text))
            return Decision("denied", "gate:test", "no")

    (bench.root / ".npmrc").write_text("registry=http://x\n")
    arguments = {"manager": "npm", "packages": ["left@1"]}
    result = bench.call("install_package", arguments, gate=Asked())
    assert result.error.code == "APPROVAL_DENIED"
    [(reason, text)] = asks
    assert "installs left@1" in reason and "left@1" in text and ".npmrc" in text
    assert not (bench.root / "node_modules").exists()


@pytest.mark.parametrize("name", [".venv", ".venv/lib"])
def test_an_environment_that_lies_elsewhere_is_not_installed_into(
    bench: Bench, index: Path, tmp_path: Path, name: str
) -> None:
    outside = tmp_path / "outside"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", outside], check=True)
    link = bench.root / name
    if name == ".venv/lib":
        shutil.copytree(outside, bench.root / ".venv", symlinks=True)
        shutil.rmtree(link)
    link.symlink_to(outside / name.removeprefix(".venv").lstrip("/"))
    before = sorted(path for path in outside.rglob("*"))
    result = bench.call("install_package", {"manager": "pip", "packages": ["tiny"]})
    assert result.error.code == "PERMISSION_DENIED"
    assert sorted(path for path in outside.rglob("*")) == before


def test_a_folder_that_is_not_an_environment_is_left_alone(bench: Bench, index: Path) -> None:
    (bench.root / ".venv").mkdir()
    result = bench.call("install_package", {"manager": "pip", "packages": ["tiny"]})
    assert result.error.code == "PERMISSION_DENIED" and not [*(bench.root / ".venv").iterdir()]


def test_where_packages_come_from_is_taken_of_the_person_s_configuration(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in [name for name in os.environ if name.lower().startswith(("pip_", "npm_config_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    (tmp_path / ".config/pip").mkdir(parents=True)
    (tmp_path / ".config/pip/pip.conf").write_text(
        "[global]\nindex-url = http://a.invalid/\ntarget = /x\n"
        "[install]\ntrusted-host =\n    a.invalid\n    b.invalid\n"
    )
    monkeypatch.setenv("PIP_INDEX_URL", "http://c.invalid/")
    assert pip_settings()["index-url"] == "http://c.invalid/"
    assert pip_settings()["trusted-host"] == "a.invalid b.invalid"
    assert "target" not in pip_settings()
    (tmp_path / ".npmrc").write_text(
        "registry = http://r.invalid/\n//r.invalid/:_authToken=secret\nprefix=/x\n"
    )
    monkeypatch.setenv("npm_config_strict_ssl", "false")
    assert npm_settings() == {"registry": "http://r.invalid/", "strict_ssl": "false"}
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    assert pip_settings() == {"index-url": "http://c.invalid/"}


def test_a_company_s_certificate_is_passed_on_and_can_be_read(
    bench: Bench, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What the installers are given, told by programs in their place."""
    certificate = tmp_path / "company.pem"
    certificate.write_text("of the company\n")
    both = (
        "CURL_CA_BUNDLE",
        "NODE_EXTRA_CA_CERTS",
        "REQUESTS_CA_BUNDLE",
        "SSL_CERT_DIR",
        "SSL_CERT_FILE",
    )
    for name in (*both, "PIP_CERT", "npm_config_cafile"):
        monkeypatch.setenv(name, str(certificate))
    program = "#!/bin/sh\nenv | grep -e CERT -e CA_BUNDLE -e cafile | sort; cat $SSL_CERT_FILE\n"
    program += "exit 3\n"  # the first step is the one that is looked at
    programs = tmp_path / "programs"
    programs.mkdir()
    for place in (bench.root / ".venv/bin/python", programs / "npm", programs / "python3"):
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(program)
        place.chmod(0o755)
    (bench.root / ".venv/pyvenv.cfg").write_text("")
    monkeypatch.setenv("PATH", f"{programs}:{os.environ['PATH']}")
    monkeypatch.setattr(sys, "_base_executable", str(programs / "python3"))  # which fetches
    for manager, own in (("pip", "PIP_CERT"), ("npm", "npm_config_cafile")):
        said = bench.call("install_package", {"manager": manager, "packages": ["tiny"]})
        printed = said.data["stdout"].splitlines()
        assert sorted(printed[:-1]) == sorted(f"{name}={certificate}" for name in (*both, own))
        assert printed[-1] == "of the company"


def test_pip_s_own_setting_of_a_certificate_is_taken(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "pip.conf").write_text("[global]\ncert = /company.pem\n")
    monkeypatch.delenv("PIP_CERT", raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", str(tmp_path / "pip.conf"))
    assert pip_settings()["cert"] == "/company.pem"


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[ThreadingHTTPServer]:
    """A registry of npm that knows one package."""
    if shutil.which("npm") is None:
        pytest.skip("npm is not installed")
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, text in (
            ("package.json", json.dumps({"name": "@s/tiny", "version": "1.2.3"})),
            ("index.js", "module.exports = 7\n"),
        ):
            entry = tarfile.TarInfo(f"package/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    content = raw.getvalue()

    class Registry(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path.endswith(".tgz"):
                body = content
            elif self.path.lower() == "/@s%2ftiny":
                hashed = base64.b64encode(hashlib.sha512(content).digest()).decode()
                address = f"http://127.0.0.1:{server.server_port}/tiny.tgz"
                version = {
                    "name": "@s/tiny",
                    "version": "1.2.3",
                    "dist": {"tarball": address, "integrity": f"sha512-{hashed}"},
                }
                body = json.dumps(
                    {
                        "name": "@s/tiny",
                        "dist-tags": {"latest": "1.2.3"},
                        "versions": {"1.2.3": version},
                    }
                ).encode()
            else:
                self.send_error(404)
                return
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: int | str) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Registry)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    for name in [n for n in os.environ if n.lower().startswith("npm_config_")]:
        monkeypatch.delenv(name)
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "http_proxy", "https_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("npm_config_registry", f"http://127.0.0.1:{server.server_port}/")
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.few(0)
@pytest.mark.parametrize("dev", [False, True])
def test_npm_installs_into_the_workspace_s_package_json(
    bench: Bench, registry: ThreadingHTTPServer, dev: bool
) -> None:
    (bench.root.parent / "package.json").write_text("{}")  # npm would look further up
    arguments = {"manager": "npm", "packages": ["@s/tiny@^1"], "dev": dev}
    result = bench.call("install_package", arguments)
    assert result.success, result.output
    assert result.data["installed"] == [{"name": "@s/tiny", "version": "1.2.3"}]
    assert result.files_changed == ["node_modules", "package-lock.json", "package.json"]
    package = json.loads((bench.root / "package.json").read_text())
    assert [*package["devDependencies" if dev else "dependencies"]] == ["@s/tiny"]
    assert (bench.root.parent / "package.json").read_text() == "{}"
    unknown = bench.call("install_package", {"manager": "npm", "packages": ["unknown"]})
    assert unknown.error.code == "EXECUTION_ERROR"
    bench.assert_log_agrees_with_disk()
