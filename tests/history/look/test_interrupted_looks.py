"""A signal while a workspace is looked at, which takes long where there is much to read."""

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from loom_audit import AuditedWorkspace
from loom_audit.api.face import AuditStore
from loom_audit.history.look import batches, capture, observation
from loom_audit.model.events import FilesChanged

FILES = 40
AT = 10

Act = Callable[[AuditedWorkspace], object]


class Looked:
    """Counts what is read, and is told to end by the file of that number."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.count, self.at = 0, 0
        real = observation.observe

        def observe(*args: object, **named: object) -> object:
            self.count += 1
            if self.count == self.at:
                os.kill(os.getpid(), signal.SIGINT)
            return real(*args, **named)  # type: ignore[arg-type]

        patch.setattr(capture, observation.observe.__name__, observe)

    def tell_at(self, number: int) -> None:
        self.count, self.at = 0, number


@pytest.fixture
def looked(monkeypatch: pytest.MonkeyPatch) -> Looked:
    return Looked(monkeypatch)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    root = tmp_path / "many"
    root.mkdir()
    write(root, "old")
    return root


def write(root: Path, text: str) -> None:
    for n in range(FILES):
        (root / f"f{n}").write_text(f"{text} {n}\n")


def test_the_first_look_ends_at_once_and_goes_on_where_it_stopped(
    store: AuditStore, looked: Looked, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(batches, "BATCH_BYTES", 4 * batches.ROW_BYTES)
    looked.tell_at(AT)
    with pytest.raises(KeyboardInterrupt):
        store.attach(root)
    assert looked.count == AT
    (root / "f9").write_text("other\n")
    looked.tell_at(0)
    workspace = store.attach(root)
    assert 0 < looked.count < FILES + 1, "what is on record already is not read again"
    assert workspace.status().drift == () and workspace.verify().findings == ()


@pytest.mark.parametrize(
    "act",
    [
        lambda workspace: workspace.status(),
        lambda workspace: workspace.plan_rollback("@start", outside=True),
        lambda workspace: workspace.accept_scope(),
        lambda workspace: workspace.carry_out(workspace.plan_rollback("@start")),
    ],
    ids=["status", "plan", "scope", "rollback"],
)
def test_a_look_ends_at_once_and_has_recorded_nothing(
    store: AuditStore, looked: Looked, root: Path, act: Act
) -> None:
    workspace = store.attach(root)
    workspace.checkpoint("start")
    write(root, "new")
    head = workspace.log.head()
    looked.tell_at(AT)
    with pytest.raises(KeyboardInterrupt):
        act(workspace)
    assert looked.count == AT and workspace.log.head() == head
    assert len(workspace.status().drift) == FILES and workspace.verify().ok


def test_a_look_before_a_command_ends_at_once_and_the_command_does_not_run(
    store: AuditStore, looked: Looked, root: Path
) -> None:
    workspace = store.attach(root)
    write(root, "new")
    looked.tell_at(AT)
    with pytest.raises(KeyboardInterrupt), workspace.session("one") as session:
        session.run(["touch", "made"])
    assert looked.count == AT
    assert not (root / "made").exists()
    [call] = workspace.timeline.calls()
    assert call.status == "cancelled" and call.paths == ()
    assert workspace.timeline.open_sessions() == []
    assert {one.path for one in workspace.status().drift} <= {f"f{n}" for n in range(FILES)}


def test_the_look_after_a_command_is_made_whole(
    store: AuditStore, looked: Looked, root: Path
) -> None:
    workspace = store.attach(root)
    with pytest.raises(KeyboardInterrupt), workspace.session("one") as session:
        words = ["sh", "-c", "for n in $(seq 20); do echo x > made$n; done"]
        session.run(words, started=lambda: looked.tell_at(AT))
    changed = [one.fact for one in workspace.log.read() if isinstance(one.fact, FilesChanged)]
    assert len(changed[-1].changes) == 20 and workspace.status().drift == ()
