"""An interrupted undo of which the intention, or the tree that it is compared with, was forged."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Literal

import pytest

from loom_audit import AuditedWorkspace, open_store
from loom_audit.errors import Corrupt
from loom_audit.history.record.drift import record_drift
from tests.integrity.test_verified_reads import again, forge
from tests.oracles.trees import tree_of
from tests.processes.stopped import killed_after

INTENDED = "(SELECT max(seq) FROM event WHERE kind = 'change.intended')"
FORGED = {
    "deleted": (
        f"DELETE FROM payload WHERE seq = {INTENDED}",
        f"DELETE FROM event WHERE seq = {INTENDED}",
    ),
    "with another manifest": (
        "UPDATE payload SET content = (SELECT content FROM payload WHERE role = 'manifest' "
        f"ORDER BY seq LIMIT 1) WHERE seq = {INTENDED} AND role = 'manifest'",
    ),
    "in another leaf": (
        f"UPDATE event SET leaf = replace(leaf, '\"reverts\":[', '\"reverts\":[9') "
        f"WHERE seq = {INTENDED}",
    ),
    "compared with a forged tree": (
        "UPDATE tree_entry SET blob = (SELECT blob FROM tree_entry WHERE path = "
        "(SELECT number FROM path WHERE path = CAST('b' AS BLOB))) WHERE path = "
        "(SELECT number FROM path WHERE path = CAST('a' AS BLOB))",
    ),
}


@pytest.fixture
def stopped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[AuditedWorkspace]:
    monkeypatch.setenv("LOOM_AUDIT_HOME", str(tmp_path / "home"))
    root = tmp_path / "w"
    root.mkdir()
    for name in "abc":
        (root / name).write_text(f"old {name}\n")
    with closing(open_store()) as store:
        found = store.attach(root)
        with found.session("test") as session:
            session.run(["sh", "-c", "for n in a b c; do echo new $n > $n; done"])
        killed_after(1, root, lambda one: one.carry_out(one.plan_undo()))
        with found.attachment.exclusive():
            record_drift(found.attachment)  # somebody looks, so that the intention is not the last
        (root / "c").write_text("mine\n")
        yield found


@pytest.mark.few(2)
@pytest.mark.parametrize("end", ["continue", "abandon"])
@pytest.mark.parametrize("how", FORGED)
def test_nothing_is_written_by_a_forged_intention(
    stopped: AuditedWorkspace, how: str, end: Literal["continue", "abandon"]
) -> None:
    before = tree_of(stopped.root)
    forge(stopped, *FORGED[how])
    seen = again(stopped)
    with pytest.raises(Corrupt):
        seen.recover(end)
    without = {p: e for p, e in tree_of(stopped.root).items() if b".loom-audit-tmp-" not in p}
    assert without == {p: e for p, e in before.items() if b".loom-audit-tmp-" not in p}


@pytest.mark.parametrize("end", ["continue", "abandon"])
def test_an_intention_that_is_listed_as_of_another_kind_is_found_all_the_same(
    stopped: AuditedWorkspace, end: Literal["continue", "abandon"]
) -> None:
    forge(stopped, f"UPDATE event SET kind = 'call.decided' WHERE seq = {INTENDED}")
    [done] = again(stopped).recover(end)
    assert [path for path, _ in done.outcomes] == ["a", "b", "c"]
    content = {path: (Path(stopped.root) / path).read_text() for path in "abc"}
    assert content["c"] == "mine\n"
    assert ({"old a\n", "old b\n"} <= {*content.values()}) == (end == "continue")
