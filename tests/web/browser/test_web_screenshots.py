"""The pictures of the documents are taken by a command."""

import re
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from tests.web.browser.screenshots import HEIGHT, WIDTH

ROOT = Path(__file__).parents[3]
pytestmark = [pytest.mark.browser, pytest.mark.deep]


def test_every_picture_of_the_documents_is_one_that_the_command_takes(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.web.browser.screenshots", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    taken = {file.name: file.read_bytes() for file in tmp_path.iterdir()}
    for picture in taken.values():
        assert picture.startswith(b"\x89PNG\r\n\x1a\n")
        assert struct.unpack(">II", picture[16:24]) == (WIDTH, HEIGHT)
    texts = [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]
    named = {name for text in texts for name in re.findall(r"!\[.*?\]\((.*?)\)", text.read_text())}
    assert {Path(name).name for name in named} == taken.keys()
    assert {file.name for file in (ROOT / "docs").glob("*.png")} == taken.keys()
