"""Which tests `make quick` runs."""

from pathlib import Path
from types import ModuleType

import pytest

from tests.processes.ci_scripts import ci_script

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def quick() -> ModuleType:
    return ci_script("quick")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A package of three modules in a chain, with a test beside each."""
    files = {
        "loom_audit/model/low.py": "",
        "loom_audit/history/middle.py": "from loom_audit.model import low\n",
        "loom_audit/cli/top.py": "import loom_audit.history.middle\n",
        "tests/model/test_low.py": "",
        "tests/history/test_middle.py": "from loom_audit.history.middle import x\n",
        "tests/shared.py": "from loom_audit.history.middle import x\n",
        "tests/cli/test_top.py": "from tests import shared\n",
        "tests/web/test_page.py": "",
    }
    for name, text in files.items():
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return tmp_path


def test_every_core_test_is_there(quick: ModuleType) -> None:
    assert [name for name in quick.CORE if not (ROOT / name).is_file()] == []
    assert quick.chosen([], ROOT) == list(quick.CORE)


def test_every_room_with_tests_has_one_in_the_core(quick: ModuleType) -> None:
    rooms = {room.name for room in (ROOT / "loom_audit").iterdir() if room.is_dir()}
    tested = {room for room in rooms if [*(ROOT / "tests" / room).rglob("test_*.py")]}
    assert tested <= {name.split("/")[1] for name in quick.CORE}


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ("loom_audit/model/low.py", ["model/test_low", "history/test_middle", "cli/test_top"]),
        ("loom_audit/history/middle.py", ["history/test_middle", "cli/test_top"]),
        ("tests/shared.py", ["cli/test_top"]),
        ("tests/model/test_low.py", ["model/test_low"]),
        ("templates/page.html", ["web/test_page"]),
        ("CHANGELOG.md", []),
        ("tests/model/test_deleted.py", []),
    ],
)
def test_what_changed_is_tested_by_what_is_near_it(
    quick: ModuleType, root: Path, changed: str, expected: list[str]
) -> None:
    found = [test for test in quick.chosen([changed], root) if test not in quick.CORE]
    assert found == [f"tests/{name}.py" for name in expected]


def test_the_nearest_come_first_and_not_more_than_fit(
    quick: ModuleType, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quick, "MOST", 1)
    first, *rest = quick.chosen(["loom_audit/model/low.py"], root)
    assert (first, rest) == ("tests/model/test_low.py", list(quick.CORE))
