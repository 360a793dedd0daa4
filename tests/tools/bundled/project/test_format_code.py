"""Files are formatted by what their type wants and what is installed."""

import shutil
import sys
from pathlib import Path

import pytest

from tests.tools.conftest import Bench

BAD = "x = {  'a':1 }\n"
GOOD = 'x = {"a": 1}\n'


@pytest.fixture
def programs(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of programs that is all of PATH beside the system's own."""
    folder = bench.root.parent / "programs"
    folder.mkdir()
    for name in ("sh", "sed", "env", "grep", "cat"):
        (folder / name).symlink_to(shutil.which(name) or f"/bin/{name}")
    monkeypatch.setenv("PATH", str(folder))
    return folder


@pytest.fixture
def ruff(programs: Path) -> None:
    here = shutil.which("ruff", path=str(Path(sys.executable).parent)) or shutil.which("ruff")
    if here is None:
        pytest.skip("ruff is not installed")
    shutil.copy(here, programs / "ruff")


def stand_in(place: Path) -> None:
    """A program that makes two spaces one, with the exit codes of black and prettier."""
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(
        "#!/bin/sh\ncheck=; code=0\n"
        'for word; do case "$word" in --check) check=1;; -*) ;; *)\n'
        '  if grep -q "  " "$word"; then\n'
        '    if [ "$check" ]; then code=1; echo "would change $word"; else\n'
        '    sed -i "s/  / /g" "$word"; fi; fi;; esac; done; exit $code\n'
    )
    place.chmod(0o755)


def test_python_files_are_formatted_and_the_changed_ones_recorded(bench: Bench, ruff: None) -> None:
    (bench.root / "a.py").write_text(BAD)
    (bench.root / "src/b.py").write_text(GOOD)
    (bench.root / "node_modules").mkdir()
    (bench.root / "node_modules/c.py").write_text(BAD)
    checked = bench.call("format_code", {"check": True})
    assert checked.success and checked.data["formatted"] is False and not checked.files_changed
    assert "a.py" in checked.data["stdout"]
    result = bench.call("format_code", {"paths": ["a.py", "src/b.py"]})
    assert result.success and result.files_changed == ["a.py"] == result.data["changed"]
    assert result.output.endswith("\n[changed: a.py]")
    assert (bench.root / "a.py").read_text() == GOOD
    assert (bench.root / "node_modules/c.py").read_text() == BAD
    bench.call("format_code", {})
    assert bench.call("format_code", {"check": True}).data["formatted"] is True
    bench.assert_log_agrees_with_disk()


def test_a_file_that_is_not_python_is_an_error_and_the_others_are_formatted(
    bench: Bench, ruff: None
) -> None:
    (bench.root / "a.py").write_text(BAD)
    (bench.root / "b.py").write_text("def (:\n")
    result = bench.call("format_code", {"paths": ["a.py", "b.py"]})
    assert result.error.code == "EXECUTION_ERROR" and "b.py" in result.output
    assert result.files_changed == ["a.py"] and "[changed: a.py]" in result.output


def test_each_type_goes_to_its_own_formatter_the_workspace_s_first(
    bench: Bench, programs: Path
) -> None:
    stand_in(programs / "black")
    stand_in(bench.root / "node_modules/.bin/prettier")
    (bench.root / "a.py").write_text("a  b\n")
    (bench.root / "-b.ts").write_text("a  b\n")
    (bench.root / "c.txt").write_text("a  b\n")
    assert bench.call("format_code", {"check": True}).data["formatted"] is False
    result = bench.call("format_code", {})
    assert result.data["formatters"] == ["black", "prettier"]
    assert result.files_changed == ["-b.ts", "a.py"]
    one = bench.call("format_code", {"formatter": "prettier", "paths": ["a.py"]})
    assert one.error.code == "NOT_FOUND"


def test_without_a_formatter_it_says_which_is_missing(bench: Bench, programs: Path) -> None:
    result = bench.call("format_code", {})
    assert result.error.code == "NOT_FOUND" and "ruff or black" in str(result.error)
    result = bench.call("format_code", {"formatter": "black"})
    assert "black is not installed" in str(result.error) and result.error.hint
    assert bench.call("format_code", {"paths": ["notes.txt"]}).error.code == "NOT_FOUND"
    assert bench.call("format_code", {"paths": ["gone.py"]}).error.code == "FILE_NOT_FOUND"
    assert bench.call("format_code", {"paths": ["../x.py"]}).error.code == "INVALID_PATH"
