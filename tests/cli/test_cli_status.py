"""`status`: what differs on disk, leaving no trace."""

from tests.cli.shells import Shell


def test_status_names_drift_and_leaves_no_trace(audited: Shell) -> None:
    assert audited("status").text.endswith("the disk is as the log says\n")
    events = audited("log", "--events", "--json").text
    (audited.workspace / "a.txt").write_text("changed\n")
    assert "M a.txt" in audited("status").text
    assert audited("status", "--exit-code", code=1).text
    (found,) = audited.records("status")
    assert [change["path"] for change in found["drift"]] == ["a.txt"]
    assert "+changed" in audited("diff").text
    assert audited("log", "--events", "--json").text == events
