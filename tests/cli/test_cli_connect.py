"""`connect`: our hook in a client's settings, as a person puts it there and takes it out."""

import json
import os
import subprocess
import tempfile
from functools import partial
from pathlib import Path

import pytest

from loom_audit.api.agents.connect import carry_out, connecting
from loom_audit.api.agents.hooked import hooked
from loom_audit.api.store import open_store
from loom_audit.config import read_settings
from loom_audit.disk.machine.shared_filesystems import check_own_filesystem
from loom_audit.errors import Conflict
from tests.cli.shells import Shell

LOCAL = {
    "claude-code": ".claude/settings.local.json",
    "codex": ".codex/hooks.json",
    "opencode": ".opencode/plugins/loom-audit.js",
    "gemini": ".gemini/settings.json",
}


@pytest.fixture
def person(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Shell:
    """A person at a shell whose data folder is not taken for a temporary one."""
    elsewhere = tmp_path / "temporary"
    elsewhere.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(elsewhere))
    monkeypatch.setenv("HOME", str(tmp_path))
    shell.extra |= {"HOME": str(tmp_path)}
    subprocess.run(["git", "init", "-q", str(shell.workspace)], check=True)
    return shell


def written(shell: Shell) -> dict[str, bytes]:
    """Everything in the folder and in what git leaves out, by name."""
    left_out = shell.workspace / ".git" / "info" / "exclude"
    files = [path for path in shell.workspace.rglob("*") if path.is_file()]
    found = {str(path): path.read_bytes() for path in files if ".git" not in path.parts}
    return found | {"exclude": left_out.read_bytes()}


def install(monkeypatch: pytest.MonkeyPatch, folder: Path, *programs: str) -> None:
    """Let these programs, and no others, be found on PATH."""
    monkeypatch.setenv("PATH", str(folder))
    for program in programs:
        (folder / program).write_text("")
        (folder / program).chmod(0o755)


def let_writing_fail(workspace: Path, client: str) -> None:
    """Let the next write of the settings of a client fail, in the midst of it."""
    settings = workspace / LOCAL[client]
    settings.parent.mkdir(exist_ok=True)
    settings.with_name(f".{settings.name}.{os.getpid()}").write_text("in the way")


@pytest.mark.parametrize("client", LOCAL)
def test_connecting_twice_is_once_and_removing_leaves_nothing(person: Shell, client: str) -> None:
    before = written(person)
    told = person("connect", client)
    assert f"{client} is connected:" in told.text and "it does not tell" in told.text
    assert "`loom-audit connect --remove" in told.errors
    once = written(person)
    settings = person.workspace / LOCAL[client]
    assert str(person.home / "hooks" / "hook_client.py") in settings.read_text()
    assert f"/{LOCAL[client]}\n".encode() in once["exclude"]
    status = ["git", "-C", str(person.workspace), "status", "--porcelain", "-uall"]
    assert LOCAL[client] not in subprocess.check_output(status, text=True)
    assert "connected already" in person("connect", client).text
    assert written(person) == once
    person("connect", "--remove", client)
    assert written(person) == before
    assert "was not connected" in person("connect", "--remove", client).text


def test_the_folder_is_put_under_audit_and_the_hook_can_be_run(person: Shell) -> None:
    told = person("connect", "claude-code")
    assert "is under audit" in told.text
    settings = json.loads((person.workspace / LOCAL["claude-code"]).read_text())
    [entry] = settings["hooks"]["PreToolUse"]
    client = person.home / "hooks" / "hook_client.py"
    assert client.is_file() and str(client) in entry["hooks"][0]["command"]
    assert (person.home / "hooks" / "daemon").is_file()


def test_what_is_written_is_on_record_before_any_session(person: Shell) -> None:
    person("connect", "claude-code")
    assert person.records("status")[0]["drift"] == []
    person("run", "--", "touch", "made")
    [session] = person.records("session")
    person("rollback", f"session:{session['id']}", "--outside", "--yes")
    assert not (person.workspace / "made").exists()
    assert (person.workspace / LOCAL["claude-code"]).is_file()


def test_what_connect_wrote_is_told_apart_from_what_a_person_did(person: Shell) -> None:
    person("init")
    mine, settings = person.workspace / "mine.txt", LOCAL["claude-code"]
    mine.write_text("mine\n")
    person("connect", "claude-code")
    sources = {
        change["path"]: event["source"]
        for event in person.records("log", "--events")
        if event["kind"] == "files.changed" and event["fact"]["origin"] == "outside"
        for change in event["fact"]["changes"]
    }
    assert sources["mine.txt"] == "" and sources[settings] == sources[".claude"] == "connect"
    assert "outside  by loom-audit connect" in person("history", settings).text
    assert "connect" not in person("history", "mine.txt").text
    assert ", by loom-audit connect" in person("log", "--events").text
    counted = "1 change from outside and 2 changes by loom-audit connect: "
    assert counted in person("log").errors
    (person.workspace / settings).write_text("{}\n")
    person("connect", "claude-code")
    by_person, *_ = [*person.records("history", settings)][1:]
    assert by_person["source"] is None
    person("connect", "--remove", "claude-code")
    assert person.records("history", settings)[0]["source"] == "connect"
    assert person.records("status")[0]["drift"] == []


def test_printing_shows_what_would_be_written_and_writes_nothing(person: Shell) -> None:
    person("init")
    before = written(person)
    assert "+" in person("connect", "--print", "claude-code").text
    assert written(person) == before and not (person.home / "hooks").exists()


@pytest.mark.parametrize(("client", "said"), [("gemini", True), ("codex", False)])
def test_a_client_that_reads_its_settings_in_one_folder_only_says_so(
    person: Shell, client: str, said: bool
) -> None:
    note = "only when it is started in this very folder"
    assert (note in person("connect", client).text) == said
    assert note not in person("connect", "--user", client).text


def test_what_others_changed_since_stays_when_ours_is_removed(person: Shell) -> None:
    file = person.workspace / LOCAL["claude-code"]
    file.parent.mkdir()
    file.write_text('{\n  // mine\n  "model": "a"\n}\n')
    file.chmod(0o640)
    person("connect", "claude-code")
    file.write_text(file.read_text().replace('"model": "a"', '"model": "b"'))
    person("connect", "--remove", "claude-code")
    assert file.read_text() == '{\n  // mine\n  "model": "b"\n}\n'
    assert file.stat().st_mode & 0o777 == 0o640


def test_a_link_stays_one_and_what_it_leads_to_is_changed(person: Shell, tmp_path: Path) -> None:
    real, file = tmp_path / "dotfiles.json", person.workspace / LOCAL["claude-code"]
    real.write_text("{}")
    file.parent.mkdir()
    file.symlink_to(real)
    person("connect", "claude-code")
    assert file.is_symlink() and "hook_client.py" in real.read_text()
    person("connect", "--remove", "claude-code")
    assert file.is_symlink() and real.read_text() == "{}"


def test_broken_settings_are_named_by_line_and_left_alone(person: Shell) -> None:
    file = person.workspace / LOCAL["gemini"]
    file.parent.mkdir()
    file.write_text('{\n  "a": 1\n  "b": 2\n}\n')
    refused = person("connect", "gemini", code=2)
    assert "line 3, column 3" in refused.errors and str(file) in refused.errors
    assert file.read_text() == '{\n  "a": 1\n  "b": 2\n}\n'


def test_for_all_projects_the_users_own_settings_are_changed(person: Shell, tmp_path: Path) -> None:
    before = written(person)
    person("connect", "--user", "--strict", "--no-prompts", "codex")
    text = (tmp_path / ".codex" / "hooks.json").read_text()
    assert text.count("codex --strict --no-prompts") == text.count("hook_client.py") > 5
    assert written(person) == before and not list(person.home.glob("*.looks"))
    person("connect", "--user", "--remove", "codex")
    assert not (tmp_path / ".codex").exists()


def test_without_a_name_those_that_are_found_are_connected(
    person: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no client was found" in person("connect", code=4).errors
    (tmp_path / "gemini").write_text("")
    (tmp_path / "gemini").chmod(0o755)
    (tmp_path / ".claude").mkdir()
    told = person.records("connect")
    assert [one["client"] for one in told] == ["claude-code", "gemini"]


def test_a_temporary_data_folder_is_refused(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    refused = shell("connect", "codex", code=2)
    assert "temporary folder" in refused.errors
    assert not (shell.workspace / ".codex").exists()
    assert not shell.home.exists()  # nothing is under audit


def test_where_one_clients_settings_are_refused_nothing_is_changed(
    person: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path, "claude", "gemini")
    (person.workspace / ".gemini").mkdir()
    (person.workspace / ".gemini/settings.json").write_text("{ broken")
    before = written(person)
    for clients in ("gemini", ""):
        refused = person("connect", *[clients] * bool(clients), code=2)
        assert "settings.json" in refused.errors
        assert written(person) == before and not person.home.exists()


def test_what_connect_has_begun_is_taken_back_when_it_fails(
    person: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(monkeypatch, tmp_path, "claude", "gemini")
    before = written(person)
    let_writing_fail(person.workspace, "gemini")
    failed = person("connect", code=5)
    assert "is not under audit: what was begun is taken back" in failed.errors
    [begun] = person.records("workspaces")
    assert begun["forgotten"] and written(person) == before
    assert not (person.workspace / ".claude").exists()
    assert "is under audit" in person("connect").text
    assert person.records("status")[0]["drift"] == []


def test_a_folder_that_was_under_audit_stays_so_when_connect_fails(
    person: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    person("init")
    install(monkeypatch, tmp_path, "claude", "gemini")
    let_writing_fail(person.workspace, "gemini")
    assert "taken back" not in person("connect", code=5).errors.replace("undo` takes back", "")
    assert "connected already" in person("connect", "claude-code").text
    assert not person.records("workspaces")[0].get("forgotten")


@pytest.mark.parametrize("place", [".claude", "hooks", "connected"])
def test_where_a_file_stands_in_place_of_a_folder_to_be_written_nothing_is_changed(
    person: Shell, place: str
) -> None:
    paths = {".claude": person.workspace, "hooks": person.home, "connected": person.home / "hooks"}
    paths[place].mkdir(parents=True, exist_ok=True)
    (paths[place] / place).write_text("in the way")
    before, kept = written(person), sorted(person.home.rglob("*"))
    refused = person("connect", "claude-code", code=2)
    assert f"is not a directory: {paths[place] / place}\n" in refused.errors
    assert "under audit" not in refused.text
    assert written(person) == before and sorted(person.home.rglob("*")) == kept


@pytest.mark.parametrize("connected", [False, True])
def test_a_change_of_settings_that_fails_leaves_what_is_kept_of_them_as_it_was(
    tmp_path: Path, connected: bool
) -> None:
    file, home = tmp_path / "project" / LOCAL["claude-code"], tmp_path / "home"
    file.parents[1].mkdir()
    if connected:
        carry_out(connecting("claude-code", file, ["one"]), home, connect=True)
    change = connecting("claude-code", file, ["hook_client.py", "another"])
    file.parent.mkdir(exist_ok=True)
    file.write_text("{}")
    before = {one: one.read_bytes() for one in home.rglob("*") if one.is_file()}
    with pytest.raises(Conflict):
        carry_out(change, home, connect=True)
    after = {one: one.read_bytes() for one in home.rglob("*") if one.is_file()}
    assert after == before and file.read_text() == "{}"


def test_a_folder_that_cannot_be_under_audit_is_refused_before_a_store_is_made(
    person: Shell, tmp_path: Path
) -> None:
    for command in (["connect", "codex"], ["run", "--init", "--", "true"]):
        assert "home directory" in person(*command, code=None, cwd=tmp_path).errors
        assert not person.home.exists() and not (tmp_path / ".codex").exists()


def test_a_store_that_other_machines_may_write_is_refused_and_a_run_there_is_one_call(
    person: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    device = tmp_path.stat().st_dev
    mounts = tmp_path / "mounts"
    mounts.write_text(f"36 35 {os.major(device)}:{os.minor(device)} / /mnt rw - nfs4 s rw\n")
    check = partial(check_own_filesystem, mounts=mounts)
    monkeypatch.setattr("loom_audit.api.agents.launcher.check_own_filesystem", check)
    refused = person("connect", "codex", code=2)
    assert "is on nfs4" in refused.errors
    assert not (person.workspace / ".codex").exists()
    settings = read_settings(f"sqlite:///{person.home / 'audit.db'}")
    run = hooked("claude-code", ["claude", "-p"], str(person.workspace), settings)
    assert run.words == ["claude", "-p"] and "is on nfs4" in run.untold


def test_an_unknown_client_is_refused(shell: Shell) -> None:
    assert "claude-code, codex" in shell("connect", "vim", code=2).errors


def test_a_file_that_was_there_is_not_hidden_from_git(person: Shell) -> None:
    file = person.workspace / LOCAL["gemini"]
    file.parent.mkdir()
    file.write_text('{"model": "a"}\n')
    before = written(person)["exclude"]
    told = person("connect", "gemini")
    assert "this is seen by git" in told.text and "does not see" not in told.text
    assert written(person)["exclude"] == before


def test_a_line_of_ones_own_that_hides_it_from_git_stays(person: Shell) -> None:
    left_out = person.workspace / ".git" / "info" / "exclude"
    left_out.write_text(f"# mine\n/{LOCAL['codex']}")
    left_out.chmod(0o600)
    person("connect", "codex")
    person("connect", "--remove", "codex")
    assert left_out.read_text() == f"# mine\n/{LOCAL['codex']}"
    person("connect", "claude-code")
    person("connect", "--remove", "claude-code")
    assert left_out.read_text() == f"# mine\n/{LOCAL['codex']}\n"
    assert left_out.stat().st_mode & 0o777 == 0o600


def test_removing_without_a_name_takes_out_every_client_whatever_is_installed(
    person: Shell,
) -> None:
    before = written(person)
    for client in LOCAL:
        person("connect", client)
    person("connect", "--remove")
    assert written(person) == before


def test_doctor_tells_a_connection_that_was_heard_from_one_that_was_not(
    person: Shell, tmp_path: Path
) -> None:
    def said() -> list[str]:
        return [
            one["text"]
            for one in person.records("doctor", code=None)
            if one["name"] == "client claude-code"
        ]

    other = tmp_path / "other"
    other.mkdir()
    person("connect", "claude-code")
    person("connect", "claude-code", cwd=other)
    here = str(person.workspace)
    assert said() == [f"connected for {here} (nothing heard yet), {other} (nothing heard yet)"]
    with open_store(f"sqlite:///{person.database}") as store:
        store.workspace(other).start_foreign_session("claude-code", id="s1")
    assert said() == [f"connected for {here} (nothing heard yet), {other} (heard 0 minutes ago)"]


def test_doctor_names_hooks_that_remain_in_a_folder_that_was_forgotten(person: Shell) -> None:
    person("connect", "gemini")
    person("workspaces", "forget", str(person.workspace), "--yes")
    left = f"runs our hook in {person.workspace}, which is not under audit any more"
    told = person("doctor", code=None).text
    assert f"warning client gemini: {left}" in told
    assert f"`cd {person.workspace} && loom-audit connect --remove gemini`" in told
    person("connect", "--remove", "gemini")
    assert "runs our hook" not in person("doctor", code=None).text
