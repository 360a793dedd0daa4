"""Reports in any order against a plain account of who may have changed what."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import example, given
from hypothesis import strategies as st

from loom_audit import AuditedWorkspace, ForeignSession, open_store
from loom_audit.model.events import CallFinished, CallRequested
from tests.given.examples import examples
from tests.places.made_store import lay_store

CALLS = ("a", "b", "c")
PATHS = ("x", "y")

Step = tuple[str, ...]
steps = st.one_of(
    st.tuples(st.just("write"), st.sampled_from(PATHS)),
    st.tuples(st.just("begin"), st.sampled_from(CALLS), st.sampled_from(["", "x", "y"])),
    st.tuples(st.just("begin within"), st.sampled_from(CALLS), st.sampled_from(CALLS)),
    st.tuples(st.just("end"), st.sampled_from(CALLS)),
)


@dataclass
class Account:
    """What should be on record, worked out from the steps alone."""

    declared: dict[str, str] = field(default_factory=dict)
    inside: dict[str, str] = field(default_factory=dict)
    open: list[str] = field(default_factory=list)
    begun: set[str] = field(default_factory=set)
    written: set[str] = field(default_factory=set)
    found: list[tuple[str, frozenset[str]]] = field(default_factory=list)

    def look(self, acting: Iterable[str]) -> None:
        """Whoever acts may have written what was written since the last look."""
        among = [*acting]
        leaves = [one for one in among if one not in {self.inside.get(other) for other in among}]
        for path in sorted(self.written):
            owners = {one for one in leaves if self.declared[one] == path}
            owners = owners or {one for one in leaves if not self.declared[one]}
            self.found.append((path, frozenset(owners)))
        self.written.clear()

    def begin(self, call: str, path: str = "", within: str = "") -> None:
        self.look(self.open)
        self.begun.add(call)
        self.open.append(call)
        self.declared[call] = path
        if within:
            self.inside[call] = within

    def end(self, call: str) -> None:
        self.look(self.open)
        self.open.remove(call)


def carry_out(
    session: ForeignSession, root: Path, account: Account, step: Step, requests: dict[str, int]
) -> None:
    match step:
        case ("write", path):
            with (root / path).open("a") as file:
                file.write("more\n")
            account.written.add(path)
        case ("begin", call, path) if call not in account.begun:
            paths = [path] if path else None
            requests[call] = session.begin_call(call, "Bash", paths=paths).seq
            account.begin(call, path)
        case ("begin within", call, outer) if call not in account.begun and outer in account.begun:
            requests[call] = session.begin_call(call, "Bash", within=requests[outer]).seq
            account.begin(call, within=outer)
        case ("end", call) if call in account.open:
            session.end_call(call)
            account.end(call)


def recorded(workspace: AuditedWorkspace) -> list[tuple[str, frozenset[str]]]:
    """Each change since the baseline: its path, and whose it may be."""
    projections = workspace.attachment.stored.tables
    return [
        (
            one.change.path,
            frozenset(
                projections.call_at(seq).call_id for seq in one.causes or (one.requested,) if seq
            ),
        )
        for one in projections.changes()
        if one.origin != "baseline"
    ]


@examples(5, 28)
@given(st.lists(steps, max_size=14))
@example(
    [("begin", "a", ""), ("begin within", "b", "a"), ("write", "x"), ("end", "a"), ("end", "b")]
)
@example([("begin", "a", "x"), ("begin", "b", ""), ("write", "x"), ("write", "y"), ("end", "b")])
@example([("begin", "a", "x"), ("write", "y"), ("end", "a")])
def test_reports_in_any_order_attribute_each_change_once_to_those_who_may_have_made_it(
    told: list[Step],
) -> None:
    with TemporaryDirectory() as folder:
        root = Path(folder) / "root"
        root.mkdir()
        lay_store(Path(folder) / "home")
        with open_store(f"sqlite:///{folder}/home/audit.db") as store:
            workspace = store.attach(root)
            session = workspace.start_foreign_session("client", id="s")
            account, requests = Account(), dict[str, int]()
            for step in told:
                carry_out(session, root, account, step, requests)
            assert sorted(recorded(workspace), key=str) == sorted(account.found, key=str)
            facts = [event.fact for event in workspace.log.read()]
            begun = [fact.call_id for fact in facts if isinstance(fact, CallRequested)]
            ended = [fact.call_id for fact in facts if isinstance(fact, CallFinished)]
            assert {*begun} == account.begun and len(begun) == len(account.begun)
            assert sorted(ended) == sorted(account.begun - {*account.open})
            assert workspace.verify().findings == ()
