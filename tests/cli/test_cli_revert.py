"""`revert`: named calls and events, the later ones kept."""

from tests.cli.shells import Shell


def test_revert_keeps_a_later_edit_of_the_same_file_by_merging(audited: Shell) -> None:
    text = "".join(f"line {n}\n" for n in range(30))
    audited.call("write_file", path="long.txt", content=text)
    audited.call("edit_file", path="long.txt", old_str="line 2\n", new_str="LINE TWO\n")
    audited.call("edit_file", path="long.txt", old_str="line 25\n", new_str="LINE 25\n")
    first_edit = audited.numbers()[1]
    audited("revert", str(first_edit))
    expected = text.replace("line 25\n", "LINE 25\n")
    assert (audited.workspace / "long.txt").read_text() == expected


def test_a_conflict_writes_nothing_and_names_the_call_until_a_choice_is_made(
    audited: Shell,
) -> None:
    audited.call("edit_file", path="a.txt", old_str="two", new_str="2")
    audited.call("edit_file", path="a.txt", old_str="2", new_str="zwei")
    first, second = audited.numbers()
    disk = audited.tree()
    refused = audited("revert", str(first), code=5)
    assert f"call {second}" in refused.text
    assert "--choose" in refused.errors
    assert audited.tree() == disk
    (plan,) = audited.records("revert", str(first), "--dry-run", code=5)
    assert plan["blocked"][0]["path"] == "a.txt"
    assert plan["blocked"][0]["calls"] == [second]

    audited("revert", str(first), "--choose", "a.txt=merge")
    merged = (audited.workspace / "a.txt").read_text()
    assert "<<<<<<<" in merged
    assert "zwei" in merged
    audited("undo")
    assert audited.tree() == disk
    audited("revert", str(first), "--choose", "a.txt=old")
    assert (audited.workspace / "a.txt").read_text() == "one\ntwo\nthree\n"


def test_an_event_from_outside_kept_by_choice_is_not_taken_back(audited: Shell) -> None:
    (audited.workspace / "a.txt").write_text("by hand\n")
    audited.sh("true")
    changed = audited.records("log", "--events", "--kind", "files.changed", "-n", "0")
    (event,) = [one["seq"] for one in changed if one["origin"] == "outside"]
    verb = ("revert", str(event), "--dry-run")
    assert audited.records(*verb)[0]["reverts"] == [event]
    assert audited.records(*verb, "--choose", "a.txt=current")[0]["reverts"] == []


def test_a_conflict_says_what_each_choice_does(audited: Shell) -> None:
    audited.call("write_file", path="a.txt", content="1\n")
    first = audited.numbers()[-1]
    audited.call("write_file", path="a.txt", content="2\n")
    second = audited.numbers()[-1]
    refused = audited("revert", str(first), code=5)
    assert f"a.txt: same lines changed later by call {second}\n" in refused.text
    for said in ("PATH=current keeps it", "PATH=old takes what was", "PATH=merge writes both"):
        assert said in refused.errors


def test_a_plan_says_which_file_will_hold_conflict_markers(audited: Shell) -> None:
    audited.call("edit_file", path="a.txt", old_str="two", new_str="2")
    audited.call("edit_file", path="a.txt", old_str="2", new_str="zwei")
    first = str(audited.numbers()[0])
    plan = audited("revert", first, "--choose", "a.txt=merge", "--dry-run")
    assert "a.txt  (14 B -> " in plan.text or "a.txt" in plan.text
    assert "conflict markers" in plan.text
    (record,) = audited.records("revert", first, "--choose", "a.txt=merge", "--dry-run")
    assert record["marked"] == ["a.txt"]
    other = audited.records("revert", first, "--choose", "a.txt=old", "--dry-run")[0]
    assert other["marked"] == []


def test_a_choice_for_a_folder_decides_every_conflict_in_it_and_nothing_else(
    audited: Shell,
) -> None:
    for path in ("docs/a.txt", "docs/deep/b.txt", "other.txt"):
        audited.call("write_file", path=path, content="1\n")
    audited.sh("for f in docs/a.txt docs/deep/b.txt other.txt; do echo 2 > $f; done")
    number = audited.numbers()[-1]
    audited.sh("for f in docs/a.txt docs/deep/b.txt other.txt; do echo 3 > $f; done")
    revert = ("revert", str(number), "--choose", "docs=old")
    refused = audited(*revert, code=5)
    assert "other.txt would lose later changes" in refused.errors
    unknown = audited("revert", str(number), "--choose", "doc=old", code=4)
    assert "docs/a.txt, docs/deep/b.txt, other.txt" in unknown.errors
    audited(*revert, "--choose", "docs/deep=current", "--choose", ".=merge")
    texts = {p: (audited.workspace / p).read_text() for p in ("docs/a.txt", "docs/deep/b.txt")}
    assert texts == {"docs/a.txt": "1\n", "docs/deep/b.txt": "3\n"}
    assert "<<<<<<<" in (audited.workspace / "other.txt").read_text()
    (done,) = audited.records("show", str(audited.numbers()[-1]))
    assert done["arguments"]["choices"] == {
        "": "merge",
        "docs": "old",
        "docs/deep": "current",
        "docs/a.txt": "old",
        "docs/deep/b.txt": "current",
        "other.txt": "merge",
    }


def test_a_dry_run_of_what_would_be_refused_says_why(audited: Shell) -> None:
    audited.call("edit_file", path="a.txt", old_str="two", new_str="2")
    (number,) = audited.numbers()
    (audited.workspace / "a.txt").rename(audited.workspace / "moved.txt")
    told = audited("revert", str(number), "--dry-run", code=5)
    assert "not carried out as it stands (exit 5): nothing was taken back: a.txt" in told.errors
    (plan,) = audited.records("revert", str(number), "--dry-run", code=5)
    assert "would be kept as it is" in plan["refused"]
    (other,) = audited.records("revert", str(number), "--choose", "moved.txt=old", "--dry-run")
    assert other["refused"] is None


def test_one_file_of_a_call_is_taken_back_and_the_call_says_so(audited: Shell) -> None:
    audited.sh("echo A > a.txt; echo new > 7; mkdir d; echo new > d/f")
    (number,) = audited.numbers()
    planned = audited("revert", str(number), "d", "./7", "--dry-run")
    assert f"takes back in part: {number}  7, d, d/f" in planned.text
    audited("revert", str(number), "d", "./7")
    assert (audited.workspace / "a.txt").read_text() == "A\n"
    assert not (audited.workspace / "d").exists() and not (audited.workspace / "7").exists()
    by = max(audited.numbers())
    assert f"in part    d/f is taken back by {by}" in audited("show", str(number)).text
    (shown,) = audited.records("show", str(number))
    assert shown["taken_back_in_part"] == {"7": by, "d": by, "d/f": by}
    audited("revert", str(number), "not-there", code=4)
    audited("revert", "d", code=2)
