"""`loom-audit git` and `loom-audit cat REV:PATH` read what git has deleted."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from loom_audit.history.read.kept_git import COMMANDS
from tests.cli.shells import Shell
from tests.places.git_person import as_ann


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def lost(shell: Shell, monkeypatch: pytest.MonkeyPatch) -> Shell:
    """A workspace whose repository was deleted; `feat` had a file of its own."""
    as_ann(monkeypatch)
    root = shell.workspace
    git(root, "init", "-q", "-b", "main")
    git(root, "commit", "-q", "--allow-empty", "-m", "one\x1b[31m")
    git(root, "checkout", "-q", "-b", "feat")
    (root / "only.txt").write_text("precious\n")
    git(root, "add", "only.txt")
    git(root, "commit", "-q", "-m", "only here")
    git(root, "checkout", "-q", "main")
    shell("init")
    shell("run", "--", "true")
    shell("checkpoint", "before")
    shell("run", "--", "git", "branch", "-D", "feat")
    shutil.rmtree(root / ".git")
    return shell


def test_a_file_of_a_deleted_branch_is_printed(lost: Shell) -> None:
    assert lost("cat", "feat:only.txt", "--at", "@before").text == "precious\n"
    refused = lost("cat", "feat:only.txt", code=4)
    assert "no feat:only.txt is kept" in refused.errors
    assert lost("cat", "feat:gone.txt", "--at", "@before", code=4).text == ""


def test_the_own_change_of_a_session_says_what_its_calls_changed_of_git(lost: Shell) -> None:
    first, last = (one["id"] for one in reversed(lost.records("session")))
    own = lost("diff", "--session", last, "--own")
    assert "git: branch feat deleted (was" in own.errors and own.text == ""
    assert "git: " not in lost("diff", "--session", first, "--own").errors
    assert "git: " not in lost("diff", "--session", last, "--own", "src").errors
    [told] = lost.records("diff", "--session", last, "--own")
    assert told["path"] == ".git" and "feat deleted" in str(told["git"])


def test_git_is_asked_as_of_a_point(lost: Shell) -> None:
    found = lost("git", "--at", "@before", ".", "--", "log", "feat")
    assert "only here" in found.text and "hint: " not in found.errors
    assert "only here" not in lost("git", ".", "--", "log", "--all").text
    failed = lost("git", ".", "--", "log", "nowhere", code=1)
    assert "nowhere" in failed.errors


def test_a_word_that_could_write_a_file_is_refused_and_writes_none(lost: Shell) -> None:
    before = sorted(lost.workspace.rglob("*"))
    refused = lost("git", ".", "--", "log", "--output=made", code=2)
    assert refused.text == "" and "hint: " in refused.errors
    assert sorted(lost.workspace.rglob("*")) == before


def test_the_help_names_the_commands_that_can_be_asked(shell: Shell) -> None:
    said = "".join(shell("git", "--help").text.split())  # a name may be broken at a hyphen
    assert [name for name in COMMANDS if name not in said] == []


def test_a_listing_says_what_git_named_at_the_point_apart_from_files(lost: Shell) -> None:
    made = lost("ls", "--at", "@before")
    head = [line for line in made.errors.splitlines() if line.startswith("git: ")]
    [commit] = (word for word in head[0].split(", ")[0].split(" ")[3:])
    assert head == [f"git: HEAD main {commit}, 2 branches"] and len(commit) == 7
    assert "feat" not in made.text and "HEAD" not in made.text
    [entry] = (one for one in lost("ls", "--json", "--at", "@before").records if "git" in one)
    assert (entry["path"], entry["kind"]) == (".git", "opaque")
    told = entry["git"]
    assert (told["head"], told["branches"], told["stashes"]) == ("main", 2, [])
    assert told["commit"].startswith(commit) and told["words"] == head[0].removeprefix("git: ")
    lost("run", "--", "true")
    assert "git: " not in lost("ls").errors


def test_a_plan_says_in_words_what_comes_back_and_what_no_ref_holds_then(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_ann(monkeypatch)
    git(shell.workspace, "init", "-q", "-b", "main")
    for subject in ("one", "two\x1b[31m"):
        git(shell.workspace, "commit", "-q", "--allow-empty", "-m", subject)
    shell("init")
    reset = "git reset -q --hard HEAD~1 && git commit -q --allow-empty -m other"
    shell("run", "--", "sh", "-c", reset)
    said = shell("undo", "--dry-run").text
    both = r'brings back 1 commit "two\\x1b\[31m" by ann, takes back 1 commit "other" by ann'
    assert re.search(rf"  HEAD main \w+ → \w+: {both}\n", said)
    assert re.search(r"on no ref any more, .*:\n  \w+ ann: other\n", said)
    [record] = shell("undo", "--dry-run", "--json").records
    assert "brings back 1 commit" in record["git_words"][0]
    assert record["lost_commits"][0].endswith(" ann: other")


def test_a_push_is_shown_with_the_command_that_takes_it_back(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_ann(monkeypatch)
    root, remote = shell.workspace, tmp_path / "remote.git"
    git(tmp_path, "init", "-q", "--bare", "-b", "main", str(remote))
    git(root, "init", "-q", "-b", "main")
    git(root, "remote", "add", "origin", str(remote))
    for subject in ("one", "two"):
        git(root, "commit", "-q", "--allow-empty", "-m", subject)
    git(root, "push", "-q", "origin", "main")
    old, new = git(root, "rev-parse", "HEAD"), git(root, "rev-parse", "HEAD~1")
    shell("init")
    shell("run", "--", "git", "push", "-q", "--force", "origin", "HEAD~1:main")
    [call] = shell.records("log", "--limit", "1")
    command = f"git push --force-with-lease=main:{new} origin {old}:refs/heads/main"
    said = f"the push of remote branch origin/main: `{command}` takes that back there"
    assert f"  {said}\n" in shell("show", str(call["seq"])).text
    assert "(1 commit back; pushed)" in shell("log").text
    [told] = shell("show", "--json", str(call["seq"])).records[0]["git"]
    assert told["pushed"] == [said]


def test_a_diff_says_what_differs_of_git_apart_from_files(lost: Shell) -> None:
    point = str(lost("log", "--json").records[0]["seq"])
    said = lost("diff", "@before", point)
    assert re.fullmatch(r"git: branch feat deleted \(was [0-9a-f]{7}\)\n", said.errors)
    assert said.text == "" == lost("diff", "@before", point, "--raw").text
    back = lost("diff", point, "@before")
    assert re.fullmatch(r"git: branch feat created at [0-9a-f]{7}\n", back.errors)
    [record] = lost("diff", "@before", point, "--json").records
    assert (record["path"], record["before"], record["after"]) == (".git", None, None)
    assert [one["name"] for one in record["git"]["names"]] == ["refs/heads/feat"]
    assert "branch feat deleted" in lost("diff", "--call", point, ".git").errors
    lost("run", "--", "true")
    assert "git: git repository gone: HEAD main" in lost("diff", "@before").errors


def test_an_undo_of_a_removed_repository_says_how_what_is_kept_of_it_is_read(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_ann(monkeypatch)
    (shell.workspace / "my lib").mkdir()
    for folder in (shell.workspace, shell.workspace / "my lib"):
        git(folder, "init", "-q")
        git(folder, "commit", "-q", "--allow-empty", "-m", f"of {folder.name}")
    shell("init")
    shell("run", "--", "rm", "-rf", ".git", "my lib/.git")
    said = shell("undo", "--no-git", "--dry-run", code=7).errors
    for name in (".", "my lib"):
        [point] = re.findall(rf"`loom-audit git --at (\d+) '?{name}'? -- log --all`", said)
        log = shell("git", "--at", point, name, "--", "log", "--all").text
        assert f"of {(shell.workspace / name).name}" in log


def test_doctor_says_how_large_the_mirror_is_and_what_of_it_is_damaged(lost: Shell) -> None:
    assert "are kept, whole and hashed" in lost("doctor", code=None).text
    [one, *_] = lost.home.glob("index/*.git/sha1/objects/??/*")
    content = one.read_bytes()
    one.chmod(0o600)
    one.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
    said = lost("doctor", code=1).text
    assert "are kept, damaged: " in said


def test_doctor_says_which_repository_could_not_be_told_at_the_last_look(
    lost: Shell,
) -> None:
    below = lost.workspace / "lib"
    below.mkdir()
    git(below, "init", "-q", "-b", "main")
    git(below, "commit", "-q", "--allow-empty", "-m", "one")
    lost("run", "--", "true")
    assert "cannot be told" not in lost("doctor", code=None).text
    lost("run", "--", "sh", "-c", "echo garbage > lib/.git/index")
    said = lost("doctor", code=None).text
    [line] = (one for one in said.splitlines() if "cannot be told" in one)
    assert "git cannot be told in lib: the index: git cannot read the repository" in line
    assert "(before or after call " in line
    lost("run", "--", "sh", "-c", "rm lib/.git/index")
    lost("run", "--", "true")
    assert "cannot be told" not in lost("doctor", code=None).text


def test_forgetting_the_workspace_deletes_the_mirror(lost: Shell) -> None:
    assert [*lost.home.glob("index/*.git/sha1/HEAD")] != []
    lost("workspaces", "forget", str(lost.workspace), "--yes")
    assert [*lost.home.glob("index/*.git")] == []


def test_what_blocks_and_has_no_path_is_not_offered_as_one(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    as_ann(monkeypatch)
    root = shell.workspace
    git(root, "init", "-q", "-b", "main")
    git(root, "commit", "-q", "--allow-empty", "-m", "one")
    shell("init")
    shell("run", "--", "sh", "-c", "git tag t; git tag u")
    git(root, "commit", "-q", "--allow-empty", "-m", "two")
    git(root, "tag", "-f", "t")
    git(root, "tag", "-f", "u")
    refused = shell("undo", "--choose", "a/.git=old", "--yes", code=4).errors
    assert "the plan says nothing of a/.git" in refused and "In conflict" not in refused
