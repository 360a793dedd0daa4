"""What no stamp of git told of is found later: it is no call's alone, whyever git is asked then."""

from collections.abc import Callable
from pathlib import Path

import anyio
import pytest

from loom_audit import AuditedWorkspace, AuditStore, ToolResult, open_store
from loom_audit.history.look.doers import UNKNOWN
from loom_audit.model.git.record import GitChanged
from loom_audit.sandbox.git.files import STAMPED_REFS
from tests.history.look.test_git_nested import facts, repository
from tests.history.look.test_git_unread import refusing as refusing
from tests.places.git_person import as_ann, git

Call = Callable[..., ToolResult]


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace that is a repository of more refs than are stamped, `feat` the last of them."""
    as_ann(monkeypatch)
    root = tmp_path / "workspace"
    repository(root)
    for n in range(STAMPED_REFS):
        git(root, "branch", f"a{n}")
    return root


IN_PLACE = "git rev-parse main > .git/refs/heads/feat"


def of(workspace: AuditedWorkspace, name: str) -> GitChanged:
    """The only change of a name, or of a file in the git folder, since the first look."""
    _, *changed = facts(workspace)
    [found] = (
        one
        for one in changed
        if name in {*(n.name for n in one.names), *(file.path for file in one.changes)}
    )
    return found


def missed_by(workspace: AuditedWorkspace, call: Call, command: str) -> int:
    """The request of a call of which no stamp tells what it did to git."""
    for quiet in ("true", "sleep 0.1", "true"):  # so that stamps are trusted
        call("shell_execute", command=quiet)
    call("shell_execute", command=command)
    assert len(facts(workspace)) == 1
    newest, *_ = workspace.timeline.calls()
    return newest.requested


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (IN_PLACE, "refs/heads/feat"),
        ("echo > .git/logs/refs/heads/feat", "logs/refs/heads/feat"),
    ],
)
def test_what_a_call_did_unseen_is_not_of_the_next_call_after_which_git_is_asked(
    workspace: AuditedWorkspace, root: Path, call: Call, command: str, name: str
) -> None:
    requested = missed_by(workspace, call, command)
    call("shell_execute", command="sleep 0.05; git tag own")
    found, own = of(workspace, name), of(workspace, "refs/tags/own")
    newest, before, *_ = workspace.timeline.calls()
    assert found.origin == "outside" and {requested, newest.requested} <= {*found.causes}
    assert (own.origin, own.call_id, own.causes) == ("command", newest.call_id, ())
    for one in (newest, before):
        assert any(text.startswith("found later: ") for text in one.coverage.reasons)
    assert workspace.verify().findings == ()


def test_what_a_call_did_unseen_is_not_of_a_person_who_comes_next(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    requested = missed_by(workspace, call, IN_PLACE)
    git(root, "tag", "person")
    call("shell_execute", command="true")
    found, person = of(workspace, "refs/heads/feat"), of(workspace, "refs/tags/person")
    assert requested in found.causes and person.causes == ()
    assert (found.origin, person.origin) == ("outside", "outside")
    newest, before, *_ = workspace.timeline.calls()
    assert any(text.startswith("found later: branch feat") for text in before.coverage.reasons)
    assert newest.coverage.level == "full"


@pytest.mark.few(2)
@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("rm -rf .git/hooks; mv .git/off .git/hooks", "hooks/pre-push"),
        ("mv .git/hooks .git/old; mv .git/off .git/hooks", "hooks/pre-push"),
        ("git config core.hooksPath .git/off", "off/pre-push"),
        ("git config --unset-all include.path", "led/more"),
        ("mv .git/refs/heads/one .git/refs/heads/two", "refs/heads/two/feat"),
        ("mv .git/logs/refs/heads/one .git/two", "logs/refs/heads/one/feat"),
    ],
)
def test_what_was_written_before_and_comes_or_goes_now_is_of_the_call_that_did_it(
    workspace: AuditedWorkspace, root: Path, call: Call, command: str, name: str
) -> None:
    made = "mkdir .git/off .git/led; echo true > .git/off/pre-push; echo > .git/led/more"
    hook = "mkdir -p .git/hooks; echo false > .git/hooks/pre-push"
    call("shell_execute", command=f"{made}; {hook}; git config include.path led/more")
    call("shell_execute", command="git branch one/feat; sleep 0.1")
    call("shell_execute", command="true")
    call("shell_execute", command=command)
    found, newest = facts(workspace)[-1], workspace.timeline.calls()[0]
    assert name in {*(one.name for one in found.names), *(one.path for one in found.changes)}
    assert (found.origin, found.call_id, found.causes) == ("command", newest.call_id, ())
    assert not any(text.startswith("found later: ") for text in newest.coverage.reasons)
    assert workspace.verify().findings == ()


def test_a_plan_that_only_looks_makes_nothing_late(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    call("shell_execute", command="echo x > x")
    git(root, "tag", "person")
    workspace.plan_undo()
    call("shell_execute", command="true")
    person = of(workspace, "refs/tags/person")
    assert (person.origin, person.causes) == ("outside", ())


def test_what_leads_to_a_branch_moves_with_it(
    workspace: AuditedWorkspace, root: Path, call: Call
) -> None:
    git(root, "symbolic-ref", "refs/heads/alias", "refs/heads/main")
    call("shell_execute", command="sleep 0.1")
    call("shell_execute", command="git commit -q --allow-empty -m more")
    newest, *_ = workspace.timeline.calls()
    assert of(workspace, "refs/heads/alias") == of(workspace, "refs/heads/main")
    assert of(workspace, "refs/heads/main").call_id == newest.call_id


def test_what_a_process_could_not_tell_is_no_call_s_alone_in_the_next_one(
    store: AuditStore, workspace: AuditedWorkspace, call: Call, refusing: Path
) -> None:
    call("shell_execute", command="true")
    call("shell_execute", command=f"git branch topic; touch {refusing.name}")
    call("write_file", path="more.txt", content="more")
    with (
        open_store() as other,
        other.workspace(workspace.id).session("next") as session,
    ):
        shell = {"command": f"rm {refusing.name}; git branch more"}
        assert anyio.run(session.call, "shell_execute", shell).success
    newest, _, before, *_ = workspace.timeline.calls()
    found = of(workspace, "refs/heads/topic")
    assert {UNKNOWN, before.requested, newest.requested} == {*found.causes}
    assert newest.coverage.level == "partial"
    assert any(one.startswith("found later: ") for one in before.coverage.reasons)


def test_what_is_told_between_two_processes_is_of_the_call_after_which_it_was_not(
    store: AuditStore, workspace: AuditedWorkspace, call: Call, refusing: Path
) -> None:
    call("shell_execute", command="true")
    call("shell_execute", command=f"git branch topic; touch {refusing.name}")
    refusing.unlink()
    with (
        open_store() as other,
        other.workspace(workspace.id).session("next") as session,
    ):
        assert anyio.run(session.call, "shell_execute", {"command": "true"}).success
    _, before, *_ = workspace.timeline.calls()
    found = of(workspace, "refs/heads/topic")
    assert (found.origin, found.causes) == ("outside", (before.requested,))
