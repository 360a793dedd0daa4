"""Files of the workspace to which settings of git lead are marked when a call changes them."""

from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace, Session, ToolResult
from loom_audit.history.read.flagged import gather
from loom_audit.model.git.record import NOT_TAKEN_BACK
from loom_audit.model.git.words import git_words
from tests.history.look.test_git_nested import facts, repository
from tests.places.git_person import as_ann, git

Call = Callable[..., ToolResult]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is a repository."""
    as_ann(monkeypatch)
    root = tmp_path / "workspace"
    repository(root)
    return root


def marked(workspace: AuditedWorkspace) -> tuple[str, ...]:
    """What the newest call changed to which settings of git lead."""
    newest, *_ = workspace.timeline.calls()
    told = workspace.timeline.call(newest.seq or 0).git
    found = tuple(path for fact in told for path in fact.led_to)
    timeline = workspace.timeline
    flagged = gather(timeline.log, timeline.projections, [newest]).flagged
    assert (newest.requested in flagged["code"]) == bool(found)
    assert newest.requested not in flagged["git"]
    assert not any(NOT_TAKEN_BACK in reason for reason in newest.coverage.reasons)
    return found


LED = [
    ("core.hooksPath", ".hooks", ".hooks/pre-commit", True),
    ("core.hooksPath", "{root}/.hooks", ".hooks/deep/helper", True),
    ("core.hooksPath", ".", "pre-commit", True),
    ("core.hooksPath", ".", "pre-commit.txt", False),
    ("include.path", "../common", "common", True),
    ("includeIf.onbranch:x=y.path", "../common", "common", True),
    ("core.attributesFile", "attributes", "attributes", True),
    ("core.excludesFile", "ignored", "ignored", False),
    ("alias.x", "!sh tools/run.sh", "tools/run.sh", True),
    ("alias.x", "log tools", "tools/run.sh", False),
    ("filter.x.clean", "python 'tools/clean.py' %f", "tools/clean.py", True),
    ("diff.external", "./tools/diff", "tools/diff", True),
    ("credential.helper", "!./tools/secret", "tools/secret", True),
    ("mergetool.x.path", "tools/merge", "tools/merge", True),
    ("branch.main.merge", "refs/heads/main", "refs/heads/main", False),
    ("user.name", "docs", "docs", False),
]


@pytest.mark.few(6)
@pytest.mark.parametrize(("setting", "value", "path", "is_led"), LED)
def test_what_settings_lead_to_in_the_workspace_is_marked_by_whichever_call_changes_it(
    workspace: AuditedWorkspace,
    root: Path,
    call: Call,
    setting: str,
    value: str,
    path: str,
    is_led: bool,
) -> None:
    expected = (path,) if is_led else ()
    git(root, "config", setting, value.format(root=root))
    call("write_file", path=path, content="made\n")
    assert marked(workspace) == expected
    result = call("shell_execute", command=f"echo written anew > {path}")
    assert marked(workspace) == expected
    said = f"{path} changed, and settings of git lead to it: it can run code as you"
    assert (said in result.output) == is_led
    call("shell_execute", command=f"echo > beside; rm {path}")
    assert marked(workspace) == expected
    call("shell_execute", command="echo x > beside")
    assert marked(workspace) == ()
    assert workspace.verify().findings == ()


@pytest.mark.parametrize(
    "made",
    [
        "ln -s ../../tools/hook .git/hooks/pre-push",
        "mkdir h; ln -s ../tools/hook h/pre-push; git config core.hooksPath h",
        "ln -s tools h; git config core.hooksPath h",
        "rm -rf .git/hooks; ln -s ../tools .git/hooks",
        "printf '[core]\\nhooksPath = tools\\n' > common; git config include.path ../common",
    ],
)
def test_what_hooks_and_included_settings_lead_on_to_is_marked(
    workspace: AuditedWorkspace, root: Path, call: Call, made: str
) -> None:
    call("shell_execute", command=f"mkdir -p .git/hooks tools; echo > tools/hook; {made}")
    call("write_file", path="tools/hook", content="true\n")
    assert marked(workspace) == ("tools/hook",)


def test_of_a_nested_repository_what_its_own_settings_lead_to_is_marked(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    repository(root / "lib")
    git(root / "lib", "config", "core.hooksPath", ".hooks")
    call("shell_execute", command="true")
    call("write_file", path=".hooks/pre-commit", content="true\n")
    assert marked(workspace) == ()
    call("write_file", path="lib/.hooks/pre-commit", content="true\n")
    assert marked(workspace) == ("lib/.hooks/pre-commit",)
    assert facts(workspace, "lib")[-1].led_to == ("lib/.hooks/pre-commit",)


def test_what_was_moved_there_or_taken_back_is_marked(
    workspace: AuditedWorkspace, root: Path, call: Call, session: Session
) -> None:
    git(root, "config", "core.hooksPath", ".hooks")
    call("shell_execute", command="mkdir off; echo true > off/pre-push")
    call("shell_execute", command="mv off .hooks")
    assert marked(workspace) == (".hooks/pre-push",)
    workspace.carry_out(workspace.plan_undo())
    newest, *_ = workspace.timeline.calls()
    assert newest.tool == "undo" and newest.coverage.level == "full"
    assert workspace.timeline.call(newest.seq or 0).git[-1].led_to == (".hooks/pre-push",)
    assert not (root / ".hooks").exists()
    assert workspace.verify().findings == ()


def test_what_a_person_changes_there_is_no_call_s(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    git(root, "config", "core.hooksPath", ".hooks")
    call("shell_execute", command="true")
    (root / ".hooks").mkdir()
    (root / ".hooks/pre-push").write_text("true\n")
    call("shell_execute", command="true")
    assert marked(workspace) == () and len(facts(workspace)) == 1


def test_a_file_that_no_setting_leads_to_any_more_did_not_change(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    git(root, "config", "core.hooksPath", ".git/off")
    (root / ".git/off").mkdir()
    for name in ("pre-push", "gone"):
        (root / ".git/off" / name).write_text("true\n")
    call("shell_execute", command="true")
    call("shell_execute", command="git config --unset core.hooksPath; rm .git/off/gone")
    assert [*git_words(facts(workspace)[-1])] == [
        "config changed: it can run code as you",
        "off/gone changed: it can run code as you",
        "off/pre-push: no setting leads to it now",
    ]
