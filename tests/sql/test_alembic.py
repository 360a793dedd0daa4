"""Alembic's own commands, typed in a clone."""

import io
import os
import shutil
import subprocess
import sys
from contextlib import closing, redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from alembic.config import CommandLine, Config

from loom_audit.sql import schema
from loom_audit.sql.ground.driver import driver
from loom_audit.sql.store.database import Database

CLONE = Path(__file__).parents[2]


def alembic(*words: str, clone: Path = CLONE) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(clone)}
    command = [sys.executable, "-m", "alembic", *words]
    return subprocess.run(command, cwd=clone, env=environment, capture_output=True, text=True)


def alembic_here(*words: str) -> subprocess.CompletedProcess[str]:
    """The same in this process, which has loaded what takes most of a second."""
    out, errors, typed = io.StringIO(), io.StringIO(), CommandLine()
    options = typed.parser.parse_args(words)
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(errors):
        patch.chdir(CLONE)
        try:
            typed.run_cmd(Config("alembic.ini", stdout=out, cmd_opts=options), options)
            code = 0
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
    return subprocess.CompletedProcess(words, code, out.getvalue(), errors.getvalue())


def test_the_migrations_make_what_the_tables_say() -> None:
    found = alembic("check")
    assert (found.returncode, found.stdout) == (0, "No new upgrade operations detected.\n")


def test_the_statements_of_all_migrations_make_a_store() -> None:
    shown = alembic_here("upgrade", "head", "--sql")
    assert shown.returncode == 0, shown.stderr
    with closing(driver().connect(":memory:", isolation_level=None)) as raw:
        raw.executescript(shown.stdout)
        names = {name for (name,) in raw.execute("SELECT name FROM sqlite_master")}
        assert set(schema.triggers()) <= names and "tree_node" in names
        assert raw.execute("SELECT version_num FROM alembic_version").fetchall() == [
            (schema.REVISION,)
        ]
    part = alembic_here("upgrade", "0002:0003", "--sql").stdout
    assert "event_scope" in part and "CREATE TABLE" not in part


def test_the_revision_of_the_store_is_shown(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOOM_AUDIT_STORE", database.connections.path)
    assert f"{schema.REVISION} (head)" in alembic_here("current").stdout
    monkeypatch.setenv("LOOM_AUDIT_STORE", f"{database.connections.path}-none")
    assert alembic_here("current").stdout.startswith("FAILED: there is no store at ")
    assert not Path(f"{database.connections.path}-none").exists()


@pytest.mark.parametrize(
    ("words", "instead"),
    [
        (("upgrade", "head"), "`loom-audit db upgrade`"),
        (("downgrade", "-1"), "the backup that `loom-audit db upgrade` made"),
        (("stamp", "head"), "`loom-audit db --help`"),
    ],
)
def test_what_would_change_a_store_says_what_to_use_instead(
    words: tuple[str, ...], instead: str
) -> None:
    refused = alembic_here(*words)
    assert refused.returncode != 0
    assert refused.stdout.count("\n") <= 1 and instead in refused.stdout
    assert "Traceback" not in refused.stderr


@pytest.mark.few(0)
def test_a_new_column_is_found_and_written_as_the_next_revision(tmp_path: Path) -> None:
    shutil.copy(CLONE / "alembic.ini", tmp_path)
    package = tmp_path / "loom_audit"
    shutil.copytree(CLONE / "loom_audit", package, ignore=shutil.ignore_patterns("__pycache__"))
    tables = package / "sql" / "tables.py"
    lines = tables.read_text("utf-8").splitlines(keepends=True)
    (at,) = [n for n, line in enumerate(lines) if line.startswith("class OutcomeRow")]
    key = next(n for n, line in enumerate(lines[at:], at) if line.startswith("    error:"))
    lines.insert(key + 1, "    colour: str | None = None\n")
    tables.write_text("".join(lines), "utf-8")
    checked = alembic("check", clone=tmp_path)
    assert checked.returncode != 0 and "colour" in checked.stdout
    made = alembic("revision", "--autogenerate", "-m", "colour", clone=tmp_path)
    assert made.returncode == 0, made.stderr
    written = package / "migrations" / "versions" / f"{int(schema.REVISION) + 1:04}_colour.py"
    assert "op.add_column('outcome'" in written.read_text("utf-8")
