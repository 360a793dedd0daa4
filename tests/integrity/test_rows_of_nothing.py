"""Rows that say nothing true of any content, and a store of two revisions."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.integrity.conftest import Recorded, record
from tests.integrity.test_tamper import connect, unguarded

PROGRAM = Path(__file__).parents[2] / "loom_audit" / "verify_alone.py"


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Recorded:
    return record(tmp_path_factory.mktemp("small") / "audit.db", 60)


ONE = "(SELECT min(number) FROM blob WHERE encoding = '{}' AND large = 0)"
CONTENTS = {
    "a content of no row": "INSERT INTO blob_content (blob, content) VALUES (999999, x'00')",
    "a content whose row is gone": "INSERT INTO blob_content VALUES (-1, x'')",
    "a delta without a base": "UPDATE blob SET encoding = 'zstd-delta' "
    f"WHERE number = {ONE.format('zstd')}",
    "no delta, and a base": "UPDATE blob SET encoding = 'zstd' "
    "WHERE number = (SELECT min(number) FROM blob WHERE encoding = 'zstd-delta')",
    "an encoding that there is not": "UPDATE blob SET encoding = 'RAW' "
    f"WHERE number = {ONE.format('raw')}",
    "in a file and in its row": f"UPDATE blob SET large = 1 WHERE number = {ONE.format('raw')}",
}


def forge(small: Recorded, folder: Path, sql: str) -> Recorded:
    forged = small.copy(folder / "forged")
    with connect(forged) as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        assert unguarded(raw).execute(sql).rowcount == 1
    return forged


@pytest.mark.few(2)
@pytest.mark.parametrize("sql", CONTENTS.values(), ids=CONTENTS)
def test_a_content_that_is_not_stored_as_its_row_says_is_found(
    small: Recorded, tmp_path: Path, sql: str
) -> None:
    assert small.verify().exit_code == 0
    forged = forge(small, tmp_path, sql)
    found = forged.verify()
    assert found.exit_code == 1, found.findings
    assert "database" in {one.code for one in found.findings}
    alone = [sys.executable, "-I", str(PROGRAM), str(forged.path)]
    assert subprocess.run(alone, capture_output=True, check=False).returncode == 1


@pytest.mark.parametrize("other", ["0001", "0004x", "9999", ""])
def test_a_second_revision_is_found(small: Recorded, tmp_path: Path, other: str) -> None:
    forged = forge(small, tmp_path, f"INSERT INTO alembic_version VALUES ('{other}')")
    found = forged.verify()
    assert found.exit_code == 1
    assert [one.message for one in found.findings if "revision" in one.message]
