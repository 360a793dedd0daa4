"""`run --sandbox`: confined on a person's word, never silently not."""

from pathlib import Path

from tests.cli.shells import Shell


def test_a_run_is_not_confined_unless_asked(audited: Shell, tmp_path: Path) -> None:
    beside = tmp_path / "beside.txt"
    audited("run", "--", "sh", "-c", f"echo x > {beside}")
    assert beside.read_text() == "x\n"
    assert audited.records("log")[0]["sandbox"] == "plain"


def test_a_confined_run_cannot_write_outside_and_is_recorded(
    audited: Shell, tmp_path: Path
) -> None:
    beside = tmp_path / "beside.txt"
    script = f"echo in > inside.txt; echo out > {beside}"
    audited("run", "--sandbox", "required", "--", "sh", "-c", script, code=None)
    assert not beside.exists()
    newest = audited.records("log")[0]
    assert newest["sandbox"] in ("bubblewrap", "landlock") and "inside.txt" in newest["paths"]


def test_another_word_for_the_sandbox_is_refused(audited: Shell) -> None:
    before = audited.records("log")
    told = audited("run", "--sandbox", "maybe", "--", "touch", "made", code=125)
    assert "required, preferred or off" in told.errors
    assert not (audited.workspace / "made").exists() and audited.records("log") == before
