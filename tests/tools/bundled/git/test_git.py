"""The workspace's repository looked at, committed to and pushed, with real git."""

import os
import subprocess
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import pytest

from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.gate import Decision
from loom_audit.tools.calls.tool import Tool
from tests.tools.conftest import Bench


@pytest.fixture(autouse=True)
def person(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A person's own git configuration, and none of this machine's."""
    config = tmp_path / "gitconfig"
    config.write_text(
        "[user]\n\tname = Ann\n\temail = ann@example.org\n[init]\n\tdefaultBranch = main\n"
    )
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    return config


def git(root: Path, *words: str) -> str:
    done = subprocess.run(["git", *words], cwd=root, capture_output=True, check=True)
    return os.fsdecode(done.stdout).strip()


@pytest.fixture
def repo(bench: Bench) -> Path:
    git(bench.root, "init", "--quiet")
    git(bench.root, "add", "--all")
    git(bench.root, "commit", "--quiet", "--message=first\n\nthe body")
    return bench.root


def test_a_status_names_branch_and_what_changed_where(bench: Bench, repo: Path) -> None:
    (repo / "notes.txt").write_text("changed")
    (repo / "new file").write_text("1")
    git(repo, "mv", "src/main.py", "src/moved.py")
    result = bench.call("git_status", {})
    assert result.success and not result.files_changed
    assert result.data == {
        "branch": "main",
        "commit": git(repo, "rev-parse", "HEAD"),
        "upstream": None,
        "ahead": None,
        "behind": None,
        "clean": False,
        "truncated": False,
        "entries": [
            {"path": "notes.txt", "from": None, "staged": "", "unstaged": "modified"},
            {"path": "src/moved.py", "from": "src/main.py", "staged": "renamed", "unstaged": ""},
            {"path": "new file", "from": None, "staged": "", "unstaged": "untracked"},
        ],
    }
    assert "renamed (staged): src/moved.py from src/main.py" in result.output
    assert bench.last().status == "ok"


def test_a_commit_of_nobody_stages_nothing(bench: Bench, repo: Path, person: Path) -> None:
    person.write_text("")
    (repo / "new").write_text("1")
    refused = bench.call("git_commit", {"message": "new", "paths": ["new"]})
    assert not refused.success and "tell me who you are" in refused.output
    assert not git(repo, "diff", "--cached", "--name-only")


def test_a_clean_repository_and_one_without_commits(bench: Bench, repo: Path) -> None:
    assert bench.call("git_status", {}).output.endswith("clean")
    git(repo, "checkout", "--quiet", "--orphan", "empty")
    git(repo, "rm", "--quiet", "-r", "--cached", ".")
    result = bench.call("git_status", {})
    assert result.data["commit"] is None and result.data["branch"] == "empty"
    assert bench.call("git_log", {}).data == {"commits": [], "truncated": False}


def test_reading_changes_nothing_in_the_repository(bench: Bench, repo: Path) -> None:
    os.utime(repo / "notes.txt", ns=(1, 1))
    before = (repo / ".git/index").read_bytes()
    for name in ("git_status", "git_log"):
        assert bench.call(name, {}).success
    assert (repo / ".git/index").read_bytes() == before


def test_a_difference_that_is_not_seen_is_named_and_the_patch_is_as_git_gives_it(
    bench: Bench, repo: Path
) -> None:
    (repo / "notes.txt").write_bytes(b"one\ntwo\n" + b"same\n" * 9 + "caf\u00e9".encode())
    git(repo, "commit", "--quiet", "--all", "--message=lines")
    (repo / "notes.txt").write_bytes(b"one\r\ntwo\n" + b"same\n" * 9 + "cafe\u0301".encode())
    result = bench.call("git_diff", {})
    said = result.output.split("\n")
    ends = "[lines that look alike end with LF before, with CRLF now]"
    letters = "[lines that look alike have U+00E9 before, U+0065 U+0301 now]"
    first, second = (n for n, line in enumerate(said) if line.startswith("@@"))
    assert first < said.index(ends) == second - 1
    assert said.index(letters) > second and "look alike" not in result.data["patch"]
    shown = "\n".join(line for line in said if line not in (ends, letters))
    assert shown.endswith("\n" + result.data["patch"])


def test_a_difference_is_given_as_files_and_patch(bench: Bench, repo: Path) -> None:
    (repo / "notes.txt").write_bytes(b"first\r\nsecond\r\nfourth\n")
    (repo / "bin").write_bytes(b"\0\1")
    git(repo, "add", "bin")
    result = bench.call("git_diff", {})
    assert result.data["files"] == [
        {"path": "notes.txt", "from": None, "kind": "modified", "added": 1, "removed": 1}
    ]
    assert "-third\n" in result.data["patch"] and "+fourth\n" in result.data["patch"]
    staged = bench.call("git_diff", {"staged": True}).data
    assert staged["files"] == [
        {"path": "bin", "from": None, "kind": "added", "added": None, "removed": None}
    ]
    assert bench.call("git_diff", {"from": "HEAD"}).data["files"][0]["path"] == "bin"
    assert bench.call("git_diff", {"paths": ["src"]}).output == "[no difference]"


def test_two_revisions_are_compared_and_a_rename_is_one_file(bench: Bench, repo: Path) -> None:
    git(repo, "mv", "src/main.py", "src/moved.py")
    git(repo, "commit", "--quiet", "--message=second")
    result = bench.call("git_diff", {"from": "HEAD~1", "to": "HEAD"})
    assert result.data["files"] == [
        {"path": "src/moved.py", "from": "src/main.py", "kind": "renamed", "added": 0, "removed": 0}
    ]


def test_a_large_patch_is_cut_and_says_so(bench: Bench, repo: Path) -> None:
    (repo / "notes.txt").write_text("".join(f"line {n}\n" for n in range(60_000)))
    result = bench.call("git_diff", {})
    assert result.data["truncated"] is True and result.data["files"][0]["added"] == 60_000
    assert len(result.data["patch"]) < 300_000


def test_a_path_that_neither_disk_nor_git_knows_is_an_error(bench: Bench, repo: Path) -> None:
    error = bench.call("git_diff", {"paths": ["notes.txt", "main.py"]}).error
    assert (error.code, error.message, error.hint) == (
        "FILE_NOT_FOUND",
        "File not found: main.py",
        "Did you mean src/main.py?",
    )
    assert bench.call("git_log", {"paths": ["main.py"]}).error.code == "FILE_NOT_FOUND"
    (repo / "notes.txt").unlink()
    assert bench.call("git_diff", {"paths": ["notes.txt"]}).data["files"][0]["kind"] == "deleted"
    git(repo, "rm", "--quiet", "--cached", "notes.txt")
    for asked in ({}, {"staged": True}, {"from": "HEAD"}):
        assert bench.call("git_diff", {"paths": ["notes.txt"], **asked}).success
    git(repo, "commit", "--quiet", "--message=gone")
    assert bench.call("git_diff", {"paths": ["notes.txt"]}).error.code == "FILE_NOT_FOUND"
    for asked in ({"from": "HEAD~1"}, {"from": "HEAD~1", "to": "HEAD"}):
        found = bench.call("git_diff", {"paths": ["notes.txt"], **asked})
        assert [file["kind"] for file in found.data["files"]] == ["deleted"]
    assert len(bench.call("git_log", {"paths": ["notes.txt"]}).data["commits"]) == 2


def test_a_log_gives_newest_first_and_says_when_there_are_more(bench: Bench, repo: Path) -> None:
    (repo / "src/main.py").write_text("2")
    git(repo, "commit", "--quiet", "--all", "--message=second")
    result = bench.call("git_log", {"max_count": 1})
    [commit] = result.data["commits"]
    assert commit["subject"] == "second" and result.data["truncated"] is True
    assert commit["author"] == "Ann <ann@example.org>" and commit["names"] == ["HEAD -> main"]
    [first] = bench.call("git_log", {"paths": ["notes.txt"]}).data["commits"]
    assert (first["subject"], first["body"], first["parents"]) == ("first", "the body", [])
    [same] = bench.call("git_log", {"ref": "HEAD~1"}).data["commits"]
    assert same == first


@pytest.mark.parametrize("bad", [{"max_count": 0}, {"max_count": 201}, {"ref": ""}, {"x": 1}])
def test_arguments_of_a_log_that_are_none(bench: Bench, repo: Path, bad: dict[str, object]) -> None:
    assert bench.call("git_log", bad).error.code == "INVALID_ARGUMENTS"


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["--output=marker", "-p", "a\nb", "a\0b"])
def test_a_revision_is_never_an_option(bench: Bench, repo: Path, name: str) -> None:
    for tool, arguments in (
        ("git_log", {"ref": name}),
        ("git_diff", {"from": name}),
        ("git_diff", {"from": "HEAD", "to": name}),
        ("git_push", {"ref": name}),
        ("git_push", {"remote": name}),
    ):
        if tool == "git_push":
            git(repo, "config", "remote.origin.url", str(repo))
        result = bench.call(tool, arguments)
        assert result.error.code == "INVALID_ARGUMENTS", (tool, result.output)
    assert not (repo / "marker").exists()
    assert bench.call("git_log", {"ref": "nowhere"}).error.code == "NOT_FOUND"


def test_names_that_are_not_utf_8_and_names_that_look_like_patterns(
    bench: Bench, repo: Path
) -> None:
    odd = os.fsdecode(b"caf\xe9 \t*.py")
    for name in (odd, "*", ":(top)x", "-n"):
        (repo / name).write_text("1")
    found = bench.call("git_status", {}).data["entries"]
    assert sorted(e["path"] for e in found) == sorted([odd, "*", ":(top)x", "-n"])
    committed = bench.call("git_commit", {"message": "odd", "paths": [odd, "*"]})
    assert sorted(f["path"] for f in committed.data["files"]) == ["*", odd]
    (repo / odd).write_text("2")
    assert [f["path"] for f in bench.call("git_diff", {"paths": [odd]}).data["files"]] == [odd]
    assert bench.call("git_diff", {"paths": ["*.py"]}).error.message == "File not found: *.py"
    rest = bench.call("git_commit", {"message": "rest", "paths": ["-n", ":(top)x"]})
    assert sorted(f["path"] for f in rest.data["files"]) == ["-n", ":(top)x"]


def test_a_commit_of_paths_takes_these_and_leaves_what_else_is_staged(
    bench: Bench, repo: Path
) -> None:
    (repo / "notes.txt").write_text("2")
    (repo / "src/new.py").write_text("1")
    (repo / "src/main.py").unlink()
    (repo / "other").write_text("1")
    git(repo, "add", "other")
    result = bench.call("git_commit", {"message": "sub\n\n# text", "paths": ["src", "gone"]})
    assert [(f["path"], f["kind"]) for f in result.data["files"]] == [
        ("src/main.py", "deleted"),
        ("src/new.py", "added"),
    ]
    assert result.data["left_out"] == ["gone"] and result.data["branch"] == "main"
    assert git(repo, "log", "-1", "--format=%B") == "sub\n\n# text"
    assert git(repo, "status", "--porcelain").split() == ["M", "notes.txt", "A", "other"]
    assert not result.files_changed


def test_a_commit_of_paths_that_are_not_there_names_them(bench: Bench, repo: Path) -> None:
    for paths, said in (
        (["nowhere"], "nowhere is not there"),
        (["notes.txt", "gone", "lost/x"], "gone, lost/x are not there"),
    ):
        error = bench.call("git_commit", {"message": "x", "paths": paths}).error
        assert error.code == "NOT_FOUND" and error.message.startswith("there is nothing to commit")
        assert said in error.message and "notes.txt" not in error.message
    (repo / "dangling").symlink_to("nowhere")
    git(repo, "add", "dangling")
    git(repo, "commit", "-q", "-m", "link")
    error = bench.call("git_commit", {"message": "x", "paths": ["dangling"]}).error
    assert error.message == "there is nothing to commit"


def test_a_commit_of_what_is_staged_and_of_all(bench: Bench, repo: Path) -> None:
    (repo / "notes.txt").write_text("2")
    assert bench.call("git_commit", {"message": "x"}).error.code == "NOT_FOUND"
    git(repo, "add", "notes.txt")
    (repo / "notes.txt").write_text("3")
    assert bench.call("git_commit", {"message": "staged"}).success
    assert git(repo, "show", "HEAD:notes.txt") == "2"
    (repo / "untracked").write_text("1")
    result = bench.call("git_commit", {"message": "all", "all": True})
    assert [f["path"] for f in result.data["files"]] == ["notes.txt"]
    assert bench.call("git_commit", {"message": "x", "all": True}).error.code == "NOT_FOUND"
    assert bench.call("git_commit", {"message": "x", "paths": ["."]}).data["files"][0]["path"] == (
        "untracked"
    )


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "bad",
    [
        {"message": " \n"},
        {"message": "a\0b"},
        {"message": "x" * 70_000},
        {},
        {"message": "x", "paths": []},
        {"message": "x", "paths": ["a"], "all": True},
        {"message": "\ud800"},
    ],
)
def test_a_commit_that_is_none_changes_nothing(
    bench: Bench, repo: Path, bad: dict[str, object]
) -> None:
    (repo / "a").write_text("1")
    head = git(repo, "rev-parse", "HEAD")
    assert bench.call("git_commit", bad).error.code == "INVALID_ARGUMENTS"
    assert git(repo, "rev-parse", "HEAD") == head
    assert (
        bench.call("git_commit", {"message": "x", "paths": ["../x"]}).error.code == "INVALID_PATH"
    )


def test_ignored_files_are_not_committed(bench: Bench, repo: Path) -> None:
    (repo / ".gitignore").write_text("*.log\n")
    (repo / "a.log").write_text("1")
    result = bench.call("git_commit", {"message": "x", "paths": ["a.log", ".gitignore"]})
    assert result.data["left_out"] == ["a.log"]
    assert [f["path"] for f in result.data["files"]] == [".gitignore"]


def test_without_an_identity_the_commit_says_what_to_do(
    bench: Bench, repo: Path, person: Path
) -> None:
    person.write_text("[user]\n\tuseConfigOnly = true\n")
    (repo / "notes.txt").write_text("2")
    result = bench.call("git_commit", {"message": "x", "all": True})
    assert result.error.code == "EXECUTION_ERROR" and "git config --global" in result.error.hint


def test_a_directory_that_is_not_a_repository(bench: Bench) -> None:
    for tool, arguments in (
        ("git_status", {}),
        ("git_diff", {}),
        ("git_log", {}),
        ("git_push", {}),
        ("git_commit", {"message": "x"}),
    ):
        result = bench.call(tool, arguments)
        assert result.error.code == "NOT_FOUND" and "git init" in result.error.hint


def test_a_repository_above_the_workspace_is_not_touched(bench: Bench) -> None:
    git(bench.root.parent, "init", "--quiet")
    (bench.root / "x").write_text("1")
    for tool, arguments in (("git_status", {}), ("git_commit", {"message": "x", "paths": ["x"]})):
        assert bench.call(tool, arguments).error.code == "NOT_FOUND"


def test_variables_of_ours_lead_to_no_other_repository(
    bench: Bench, repo: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    monkeypatch.setenv("GIT_DIR", str(other / ".git"))
    monkeypatch.setenv("GIT_INDEX_FILE", str(tmp_path / "index"))
    (repo / "x").write_text("1")
    assert bench.call(
        "git_commit",
        {"message": "x", "paths": ["x"]},
        environment={
            "GIT_OBJECT_DIRECTORY": str(other / ".git/objects"),
        },
    ).success
    for name in ("GIT_DIR", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name)
    assert git(repo, "log", "--format=%s").split() == ["x", "first"]


def test_a_worktree_linked_to_a_repository_elsewhere_is_used(
    bench: Bench,
    repo: Path,
    tmp_path: Path,
    new_bench: Callable[[Path], AbstractContextManager[Bench]],
) -> None:
    git(repo, "worktree", "add", "--quiet", str(tmp_path / "second" / "tree"))
    # the fixture makes `work`; move the worktree there
    with new_bench(tmp_path / "second") as other:
        for path in (tmp_path / "second" / "tree").iterdir():
            path.rename(other.root / path.name) if path.name == ".git" else None
        git(other.root, "worktree", "repair")
        assert other.call("git_status", {}).success
        assert other.call("git_commit", {"message": "there", "all": True}).error.code == "NOT_FOUND"
        (other.root / "notes.txt").write_text("there")
        assert other.call("git_commit", {"message": "there", "all": True}).data["branch"] == "tree"


def test_data_outside_the_workspace_is_refused(bench: Bench, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    git(other, "init", "--quiet")
    (bench.root / ".git").write_text(f"gitdir: {other}/.git\n")
    assert bench.call("git_status", {}).error.code == "PERMISSION_DENIED"
    (bench.root / ".git").unlink()
    (bench.root / ".git").symlink_to(other / ".git")
    assert bench.call("git_log", {}).error.code == "PERMISSION_DENIED"
    (bench.root / ".git").unlink()
    git(bench.root, "init", "--quiet")
    assert bench.call("git_status", {}).success
    (bench.root / ".git/objects/info/alternates").write_text(f"{other}/.git/objects\n")
    assert bench.call("git_status", {}).error.code == "PERMISSION_DENIED"


def test_a_work_tree_set_to_elsewhere_is_not_read(bench: Bench, repo: Path, tmp_path: Path) -> None:
    secret = tmp_path / "elsewhere"
    secret.mkdir()
    (secret / "notes.txt").write_text("secret")
    git(repo, "config", "core.worktree", str(secret))
    result = bench.call("git_diff", {})
    assert result.success and "secret" not in result.output
    assert bench.call("git_status", {}).data["clean"]


@pytest.fixture
def remote(repo: Path, tmp_path: Path) -> Path:
    place = tmp_path / "remote.git"
    git(tmp_path, "init", "--quiet", "--bare", str(place))
    git(repo, "remote", "add", "origin", str(place))
    return place


def test_a_push_is_announced_recorded_as_network_and_never_forced(
    bench: Bench, repo: Path, remote: Path
) -> None:
    result = bench.call("git_push", {"set_upstream": True})
    assert result.success and result.data["status"] == "[new branch]"
    assert result.data["ref"] == "refs/heads/main" and result.data["url"] == str(remote)
    assert git(remote, "rev-parse", "main") == git(repo, "rev-parse", "main")
    stays = "not taken back of git: remote branch origin/main"
    assert bench.last().coverage.reasons == ("outside the workspace: network", stays)
    assert "git: remote branch origin/main created at " in result.output
    assert bench.call("git_status", {}).data["ahead"] == 0
    git(repo, "commit", "--quiet", "--amend", "--message=other")
    refused = bench.call("git_push", {})
    assert refused.error.code == "EXECUTION_ERROR" and "rejected" in str(refused.error)
    for ref in ("+main", ":main", "main:other", "nothing"):
        assert bench.call("git_push", {"ref": ref}).error.code == "NOT_FOUND"
    git(repo, "config", "remote.origin.push", "+refs/heads/main:refs/heads/main")
    git(repo, "config", "remote.origin.mirror", "true")
    assert not bench.call("git_push", {}).success
    assert git(remote, "log", "-1", "--format=%s", "main") == "first"
    bench.assert_every_call_has_one_finish()


def test_a_tag_is_pushed_alone_and_unknown_remotes_are_named(
    bench: Bench, repo: Path, remote: Path
) -> None:
    git(repo, "tag", "v1")
    assert bench.call("git_push", {"ref": "v1"}).data["ref"] == "refs/tags/v1"
    assert git(remote, "for-each-ref", "--format=%(refname)") == "refs/tags/v1"
    result = bench.call("git_push", {"remote": "elsewhere"})
    assert result.error.code == "NOT_FOUND" and "origin" in result.error.hint


def test_a_push_always_asks_and_a_commit_with_hooks_does(
    bench: Bench, repo: Path, remote: Path
) -> None:
    class Asked:
        def __init__(self) -> None:
            self.seen: list[tuple[str, str, str]] = []

        async def decide(
            self, tool: Tool, args: Any, ctx: ToolContext, *, asked: str = ""
        ) -> Decision:
            preview = tool.preview(args, ctx)
            self.seen.append((tool.name, asked, preview.text))
            return Decision("denied" if asked else "allowed", "gate:test", "no")

    gate = Asked()
    assert bench.call("git_push", {}, gate=gate).error.code == "APPROVAL_DENIED"
    assert gate.seen[0][1] == f"pushes the current branch to origin ({remote})"
    assert str(remote) in gate.seen[0][2]
    (repo / "notes.txt").write_text("2")
    commit = {"message": "x", "all": True}
    assert bench.call("git_commit", {**commit, "hooks": True}, gate=gate).error.code == (
        "APPROVAL_DENIED"
    )
    assert bench.call("git_commit", commit, gate=gate).success


def test_a_secret_in_a_remote_s_address_does_not_go_on_record(bench: Bench, repo: Path) -> None:
    git(repo, "remote", "add", "origin", "https://ann:sesame@127.0.0.1:9/x.git")
    shown = []

    class Asked:
        async def decide(
            self, tool: Tool, args: Any, ctx: ToolContext, *, asked: str = ""
        ) -> Decision:
            shown.append(await ctx.in_thread(lambda: tool.preview(args, ctx).text))
            return Decision("allowed", "gate:test")

    result = bench.call("git_push", {}, gate=Asked())
    assert result.error.code == "EXECUTION_ERROR" and "127.0.0.1:9/x.git" in shown[0]
    assert "sesame" not in shown[0] + result.to_json()
