"""What a model is sent back, word for word."""

import os
from pathlib import Path

import pytest

from tests.tools.answers.corpus import FILE, answers


def test_a_model_is_told_what_it_needs_next(
    tmp_path: Path, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", os.environ["PATH"])  # answers puts a folder before it
    told = answers(tmp_path)
    assert told.count("\n>>> ") >= 40
    assert told == FILE.read_text(), "when meant: python -m tests.tools.answers.corpus"
