"""The key of a store: made, listed, put in place of another, and what it signs."""

import json
import os
import shutil
from base64 import b64decode
from pathlib import Path
from typing import Any

import pytest

from loom_audit.disk.machine.key_file import DiskKeys
from loom_audit.disk.machine.signed_heads import DiskSignedHeads
from loom_audit.model.signed.key_ring import KeyRing, OwnKey, read_key_ring
from loom_audit.model.signed.notes import keys_of, parse_note, parse_verifier
from tests.cli.shells import Shell, new_shell
from tests.given.foreign_programs import needs_go, note_opener


def keys_folder(shell: Shell) -> Path:
    [folder] = (shell.home / "config" / "keys").iterdir()
    return folder


def ring(shell: Shell) -> KeyRing:
    return read_key_ring((keys_folder(shell) / "ring.json").read_bytes())


def file_of_notes(shell: Shell) -> Path:
    [file] = (shell.home / "heads").glob("*/*.signed")
    return file


def signed_heads(shell: Shell) -> DiskSignedHeads:
    file = file_of_notes(shell)
    return DiskSignedHeads(file.parent, keys_folder(shell), file.stem)


def noted(shell: Shell) -> list[dict[str, Any]]:
    return [
        event["fact"]
        for event in shell.records("log", "--events", "-n", "0")
        if event["kind"] == "head.noted"
    ]


def test_a_key_is_made_and_signs_the_head_of_each_log(audited: Shell, tmp_path: Path) -> None:
    other = new_shell(tmp_path / "other")
    audited("init", str(other.workspace))
    (made,) = audited.records("keys", "init")
    assert len(made["logs"]) == 2 and all(one["error"] is None for one in made["logs"])
    assert made["key"] in audited("keys", "list").text
    [(id, size)] = [
        (one["id"], one["size"]) for one in made["logs"] if one["root"] == str(audited.workspace)
    ]
    (head,) = audited.records("head")
    assert size == head["size"], "that the key was made is signed over, too"
    (listed,) = audited.records("keys", "list")
    note = parse_note(
        (audited.home / "heads" / keys_folder(audited).name / f"{id}.signed").read_bytes()[:-1]
    )
    key = parse_verifier(listed["verifiers"][id])
    assert keys_of(note, [key]) == [key]
    assert note.text.split("\n")[:2] == [f"loom-audit/{id}", str(size)]
    assert b64decode(note.text.split("\n")[2]).hex() == head["root"]
    assert noted(audited) == [
        {"size": 0, "root": "", "started": 0, "key": key.public.hex(), "replaced": ""}
    ]
    assert f"from here on by {made['key']}" in audited("log", "--events").text


def test_nobody_else_may_read_it(audited: Shell) -> None:
    audited("keys", "init")
    folder = keys_folder(audited)
    modes = {one.name: one.stat().st_mode & 0o777 for one in (folder.parent, folder)}
    assert set(modes.values()) == {0o700}
    assert {one.stat().st_mode & 0o777 for one in folder.iterdir()} == {0o600}
    seed = json.loads((folder / "ring.json").read_bytes())["current"]["seed"]
    assert seed not in audited("keys", "list").text + audited("keys", "list", "--json").text
    ran = audited.records(
        "call", "shell_execute", json.dumps({"command": f"cat {folder}/*"}), code=1
    )
    assert seed not in json.dumps(ran), "a command under confinement does not see it"
    assert seed not in repr(ring(audited)) and "OwnKey(" in repr(ring(audited))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620])
def test_a_key_that_others_may_read_signs_nothing(audited: Shell, mode: int) -> None:
    audited("keys", "init")
    file = keys_folder(audited) / "ring.json"
    file.chmod(mode)
    for command in ("rotate", "list", "init"):
        refused = audited("keys", command, code=1).errors
        assert f"others may read or write {file}" in refused and "chmod 600" in refused
    file.chmod(0o600)
    file.parent.chmod(0o750)
    assert "chmod 700" in audited("keys", "list", code=1).errors
    file.parent.chmod(0o700)
    assert len(noted(audited)) == 1


def test_a_link_or_garbage_is_no_key(audited: Shell, tmp_path: Path) -> None:
    audited("keys", "init")
    file = keys_folder(audited) / "ring.json"
    file.rename(tmp_path / "ring.json")
    file.symlink_to(tmp_path / "ring.json")
    assert "no link" in audited("keys", "list", code=4).errors
    whole = (tmp_path / "ring.json").read_bytes()
    for raw in (b"", b"[]", whole[:-9], whole.replace(b'"seed":"', b'"seed":"AAAA'), b"\xff"):
        file.unlink()
        file.write_bytes(raw)
        file.chmod(0o600)
        assert "the keys of the store are damaged" in audited("keys", "rotate", code=6).errors
    file.unlink()
    os.mkfifo(file, 0o600)
    assert "damaged" in audited("keys", "list", code=6).errors


def test_doctor_says_what_is_with_the_key(audited: Shell) -> None:
    def said() -> dict[str, Any]:
        checks = audited.records("doctor", code=None)
        [check] = [one for one in checks if one["name"] == "signing key"]
        return check

    assert (said()["verdict"], "keys init" in said()["text"]) == ("ok", True)
    (made,) = audited.records("keys", "init")
    assert (said()["verdict"], made["key"] in said()["text"]) == ("ok", True)
    file = keys_folder(audited) / "ring.json"
    whole = ring(audited)
    DiskKeys(keys_folder(audited)).write(
        KeyRing(whole.current, OwnKey(bytes(32), whole.current.made))
    )
    assert (said()["verdict"], "keys rotate" in said()["hint"]) == ("warning", True)
    file.chmod(0o644)
    assert (said()["verdict"], "chmod 600" in said()["hint"]) == ("problem", True)


def test_one_key_only(audited: Shell) -> None:
    assert "`loom-audit keys init` makes one" in audited("keys", "list", code=4).errors
    assert "keys init" in audited("keys", "rotate", code=4).errors
    audited("keys", "init")
    before = ring(audited)
    assert "keys rotate" in audited("keys", "init", code=5).errors
    assert ring(audited) == before


def test_a_new_key_takes_its_place_under_one_head_of_both(audited: Shell) -> None:
    audited("keys", "init")
    old = ring(audited)
    audited.call("write_file", path="b.txt", content="b")
    audited("keys", "rotate")
    new = ring(audited)
    assert new.next is None and new.current != old.current
    assert [one.public for one in new.earlier] == [old.current.public]
    heads = signed_heads(audited)
    assert heads.damaged() == []
    first, both = heads.kept()
    assert first.signed_by(new.public_keys) == [old.current.public]
    assert both.signed_by(new.public_keys) == [old.current.public, new.current.public]
    assert both.head.size == audited.records("head")[0]["size"]
    fact, made = noted(audited)
    assert made["key"] == old.current.public.hex()
    assert fact["key"] == new.current.public.hex() and fact["replaced"] == made["key"]
    assert (fact["size"], fact["root"]) == (first.head.size, first.head.root.hex())
    assert fact["started"] > 0
    lines = [one["state"] for one in audited.records("keys", "list")]
    assert lines == ["signs", "earlier"]
    assert " until " in audited("keys", "list").text
    seed = json.loads(old.to_bytes())["current"]["seed"].encode()
    left = [one for one in audited.home.rglob("*") if one.is_file() and seed in one.read_bytes()]
    assert left == [], "what the old key signs with is gone"


def test_a_rotation_that_was_interrupted_is_gone_on_with(audited: Shell) -> None:
    audited("keys", "init")
    begun = KeyRing(ring(audited).current, next=OwnKey(bytes(32), ring(audited).current.made))
    DiskKeys(keys_folder(audited)).write(begun)
    assert [one["state"] for one in audited.records("keys", "list")] == ["signs", "next"]
    audited("keys", "rotate")
    done = ring(audited)
    assert done.current == begun.next and done.next is None
    # as killed after the heads were signed: the fact is on record once, nothing is signed anew
    DiskKeys(keys_folder(audited)).write(begun)
    before = file_of_notes(audited).read_bytes()
    audited("keys", "rotate")
    assert len(noted(audited)) == 2 and file_of_notes(audited).read_bytes() == before


def test_what_a_killed_process_left_of_a_note_is_no_damage(audited: Shell) -> None:
    audited("keys", "init")
    audited("keys", "rotate")
    file, heads = file_of_notes(audited), signed_heads(audited)
    whole, all_of_it = file.read_bytes(), heads.kept()
    begins = whole.rindex(b"loom-audit/", 0, whole.rindex(b"\n\n\xe2"))
    for cut in range(begins, len(whole)):
        file.write_bytes(whole[:cut])
        assert heads.last() == all_of_it[-1], "what the signer goes by is beside the keys"
        heads.keep(all_of_it[-1])
        assert (heads.kept(), heads.damaged()) == (all_of_it, []), cut


def test_a_damaged_note_is_named_by_its_line(audited: Shell) -> None:
    audited("keys", "init")
    audited("keys", "rotate")
    file, heads = file_of_notes(audited), signed_heads(audited)
    whole = file.read_bytes()
    file.write_bytes(b"junk\n" + whole.replace(b"\n\n", b"\nmore\n\n", 1))
    assert [one.split(" of ")[0] for one in heads.damaged()] == [
        "the note at line 1",
        "the note at line 2",
    ]
    assert len(heads.kept()) == 1


def test_a_log_that_was_put_back_is_not_signed(audited: Shell, tmp_path: Path) -> None:
    audited("keys", "init")
    shutil.copytree(audited.home, tmp_path / "copy")
    audited.call("write_file", path="b.txt", content="b")
    audited("keys", "rotate")
    for name in ("audit.db", "audit.db-wal", "audit.db-shm"):
        (audited.home / name).unlink(missing_ok=True)
        if (tmp_path / "copy" / name).exists():
            shutil.copy2(tmp_path / "copy" / name, audited.home / name)
    heads = audited.home / "heads"
    for file in heads.glob("*/*"):  # as one does who puts back an older copy
        file.unlink()
    audited("db", "rebuild")
    audited.call("write_file", path="c.txt", content="c")
    # other events, then more of them than were signed
    for expected in ("a head over", "are not those of which the head"):
        (said,) = audited.records("keys", "rotate", code=7)
        assert expected in said["logs"][0]["error"]["message"]
        assert said["logs"][0]["error"]["hint"]
        assert not [*heads.glob("*/*.signed")]
        for n in range(8):
            audited.call("write_file", path=f"{n}.txt", content="c")


@needs_go
def test_go_opens_what_is_kept_by_the_key_that_is_listed(audited: Shell, tmp_path: Path) -> None:
    audited("keys", "init")
    (listed,) = audited.records("keys", "list")
    [(id, key)] = listed["verifiers"].items()
    audited("keys", "rotate")
    (_, earlier) = audited.records("keys", "list")
    assert earlier["verifiers"] == {}
    raws = [one.note.to_bytes() for one in signed_heads(audited).kept()]
    opened = note_opener(tmp_path)(key, raws)
    assert [text.split("\n")[0] for text in opened if text] == [f"loom-audit/{id}"] * 2
