"""Our verification and the program that knows the stored format only say the same of forged logs.

Each forgery is of a copy of a store that was really recorded, with the heads that were kept of it,
or without.
"""

import io
import json
import random
import re
import shutil
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing, redirect_stdout
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest

from loom_audit import verify_alone
from loom_audit.disk.machine.heads import head_line, parse_heads
from loom_audit.disk.machine.locks import DiskLock
from loom_audit.errors import AuditError
from loom_audit.history.check.log_check import Finding
from loom_audit.history.check.verification import verify
from loom_audit.model.events import TreeHead
from loom_audit.sql.evidence.evidence import open_evidence
from loom_audit.sql.store.database import open_database
from tests.integrity.forgeries import (
    FORGERIES,
    Forged,
    Forgery,
    Harm,
    Log,
    Part,
    change_rows,
    forge_events,
)
from tests.integrity.real_stores import copied, make_stores
from tests.integrity.test_tamper import connect, unguarded

SAMPLE = 12
"""So many forgeries of each sort are tried by the ordinary test, some 50 milliseconds each."""

EACH = 500
PARTS = 20
"""The parts of the deep test, each of so many forgeries of a sort."""

NOT_OF_THE_LOG = re.compile(
    "the table (?!event|payload|tree_node)|the (trigger|index|view) |log .* is filed under"
    "|log .* has events, and its first|log .* cannot be read at"
)
"""What the database is found to be beside the log: tables that follow it, and other logs."""

ERASED = {"payload.missing", "payload.erased", "keys.erased", "blob.missing"}
"""What our verification calls tampered, since this release erases nothing."""

OURS_ONLY = {"projection", "projection.unreadable", "call.twice"}
"""What is compared with tables that follow the log, and calls that finish twice."""


@dataclass
class Verdict:
    """`wrong` are reasons in words; `inconsistent` the first such event of each log."""

    wrong: list[str] = field(default_factory=list)
    erased: list[str] = field(default_factory=list)
    inconsistent: dict[str, int] = field(default_factory=dict)
    heads: dict[str, str] = field(default_factory=dict)
    unanchored: int = 0
    refused: str = ""
    malformed: bool = False
    """Whether an event holds what ours cannot read, and the other perhaps does not need."""

    @property
    def kind(self) -> str:
        if self.refused or self.wrong:
            return "wrong"
        return "inconsistent" if self.inconsistent else "ok"


def ours(store: Path, heads: list[TreeHead]) -> Verdict:
    found = Verdict()
    try:
        lock = DiskLock(store.parent / "locks")
        with closing(open_database(f"sqlite:///{store}", lock=lock)) as database:
            with connect(store) as raw:
                raw.text_factory = lambda text: text.decode("utf-8", "surrogateescape")
                logs = [id for (id,) in raw.execute("SELECT id FROM log").fetchall()]
            found.refused = "" if logs else "there is no log"
            for log in logs:
                with closing(open_evidence(database, log)) as evidence:
                    mine = [head for head in heads if head.log == log]
                    said = verify(evidence, heads=mine)
                _add(found, log, said.findings)
                found.heads[str(log)] = f"{said.size} {said.root.hex()}"
                found.unanchored += said.unanchored
            for log in {head.log for head in heads} - {*logs}:
                found.wrong.append(f"{log} is not here")
    except AuditError as error:
        found.refused = error.message
    return found


def _add(found: Verdict, log: str, findings: tuple[Finding, ...]) -> None:
    for one in findings:
        if one.code == "event.malformed":
            found.malformed = True
            continue
        if one.code in OURS_ONLY or (one.code == "database" and NOT_OF_THE_LOG.match(one.message)):
            continue
        if one.grade == "inconsistent" and one.seq is not None:
            found.inconsistent.setdefault(log, one.seq)
        elif one.code in ERASED:
            found.erased.append(one.message)
        elif one.grade in ("tampered", "unreadable"):
            found.wrong.append(f"{one.code}: {one.message}")


SAID = re.compile(r"^(\w+): (.*)$", re.M)


def alone(store: Path, heads: list[TreeHead]) -> Verdict:
    found, said = Verdict(), io.StringIO()
    options = [option for head in heads for option in ("--head", head_line(head))]
    with redirect_stdout(said):
        code = verify_alone.main([str(store), *options])
    for sort, what in SAID.findall(said.getvalue()):
        if sort == "inconsistent":
            log, seq = re.match(r"log (.*) event (\d+): ", what).groups()
            found.inconsistent.setdefault(log, int(seq))
        elif sort in ("wrong", "erased"):
            getattr(found, sort).append(what)
    found.heads = dict(re.findall(r"^loom-audit-head v1 (\S*) (\d+ \w+)$", said.getvalue(), re.M))
    if unanchored := re.search(r"(\d+) unanchored", said.getvalue()):
        found.unanchored = int(unanchored[1])
    assert code == {"wrong": 1, "inconsistent": 3, "ok": 0}[found.kind], said.getvalue()
    return found


def apart(one: Verdict, other: Verdict) -> list[str]:
    """How our verdict and the other differ.

    Of what was erased ours says more: that is damage, and trees do not fit it.
    """
    said = []
    if one.erased and all(text.startswith("tree.listed: ") for text in one.wrong):
        return [] if other.wrong or other.erased else ["erased and not"]
    if one.malformed and not one.wrong:
        return []
    if one.kind != other.kind:
        said.append(f"{one.kind} and {other.kind}")
    if not one.refused and one.kind == other.kind != "wrong":
        if one.inconsistent != other.inconsistent:
            said.append(f"{one.inconsistent} and {other.inconsistent}")
        if one.heads != other.heads or one.unanchored != other.unanchored:
            said.append("another head, or other events that no head is of")
    return said


class Forger:
    """Changes copies of real stores, and lets both say what they find."""

    def __init__(self, stores: Mapping[str, Path], folder: Path) -> None:
        self.stores, self.folder = stores, folder
        self.counts: Counter[str] = Counter()
        self.wrong: list[str] = []

    @property
    def has_seen_all(self) -> bool:
        """Whether many logs were forged, and what is said of them is not always the same."""
        return self.counts["forged"] > SAMPLE / 2 and len(self.counts) > 2

    def forge(self, harm: Harm, seed: str) -> None:
        chance = random.Random(seed)
        name = chance.choice([*self.stores])
        home = copied(self.stores[name], self.folder / "copy")
        try:
            with connect(home / "audit.db") as raw:
                raw.execute("PRAGMA foreign_keys = OFF")
                raw.execute("BEGIN")
                done = [said for said in harm(unguarded(raw), chance) if said]
                raw.execute("COMMIT")
            if done:
                self._compare(home, chance, f"{name}, {seed}: {'; '.join(done):.500}")
        finally:
            shutil.rmtree(home)

    def _compare(self, home: Path, chance: random.Random, done: str) -> None:
        heads = [
            h for file in (home / "heads").rglob("*.heads") for h in parse_heads(file.read_text())
        ]
        heads = chance.choice(([], [], heads, heads[: len(heads) // 2]))
        one, other = ours(home / "audit.db", heads), alone(home / "audit.db", heads)
        self.counts["forged"] += 1
        self.counts[other.kind] += 1
        if different := apart(one, other):
            self.wrong.append(
                f"{done}\n    {different}\n    ours: {one.refused} {one.wrong[:4]} {one.erased[:2]}"
                f"\n    alone: {other.wrong[:4]} {other.erased[:2]}"
            )


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return make_stores(tmp_path_factory.mktemp("stores"))


@pytest.mark.few(0)
def test_both_say_of_what_was_really_recorded_that_it_is(stores: Mapping[str, Path]) -> None:
    for name, home in stores.items():
        one, other = ours(home / "audit.db", []), alone(home / "audit.db", [])
        assert (one.wrong, other.wrong, apart(one, other)) == ([], [], []), name


@pytest.mark.few(1)
@pytest.mark.parametrize("harm", [change_rows, forge_events])
def test_both_say_the_same_of_a_log_that_was_forged(
    stores: Mapping[str, Path], tmp_path: Path, harm: Harm, seed: str
) -> None:
    forger = Forger(stores, tmp_path)
    for n in range(10 * SAMPLE):
        if n >= SAMPLE and forger.has_seen_all:
            break  # a few may be harmless by chance, or all of one kind
        forger.forge(harm, f"{harm.__name__} {seed} {n}")
    assert forger.wrong == []
    assert forger.has_seen_all


@pytest.mark.parametrize("how", dict.fromkeys(FORGERIES), ids=lambda how: how.__name__)
def test_an_event_that_lost_every_field_can_be_forged_further(
    stores: Mapping[str, Path], tmp_path: Path, how: Forgery
) -> None:
    """Of several forgeries of one log each finds what the ones before it left."""
    home = copied(stores["sessions"], tmp_path / "copy")
    with connect(home / "audit.db") as raw:
        log = Log(unguarded(raw), 1)
        for one in log.events:
            one.envelope = {"payloads": [1, {}]}
        how(log, random.Random(how.__name__), [(bytes(32), 0)])
        log.write()
    assert ours(home / "audit.db", []).wrong and alone(home / "audit.db", []).wrong


@pytest.mark.deep
@pytest.mark.drawn
@pytest.mark.parametrize("harm", [change_rows, forge_events])
@pytest.mark.parametrize("part", range(PARTS))
def test_both_say_the_same_of_many_logs_that_were_forged(
    stores: Mapping[str, Path],
    tmp_path: Path,
    part: int,
    harm: Harm,
    seed: str,
    record_property: Callable[[str, object], None],
) -> None:
    forger = Forger(stores, tmp_path)
    for n in range(EACH):
        forger.forge(harm, f"{harm.__name__} {seed} {part} {n}")
    record_property("counts", dict(forger.counts))
    assert forger.wrong == []


# --- what was said by one of them only, or by none ------------------------------------------

By = Callable[[Log], None]


def _first(log: Log, kind: str, role: str = "") -> Forged:
    return next(
        one for one in log.events if one.envelope["kind"] == kind and (not role or one.part(role))
    )


def another_number_inside(log: Log) -> None:
    """An envelope with the number of another event, and in an object in it that of its row."""
    one = _first(log, "call.finished")
    one.envelope["hidden"] = {"a": 1, "log": one.envelope["log"], "seq": one.seq, "z": 1}
    one.envelope["seq"] = one.seq + 5


def another_kind_inside(log: Log) -> None:
    one = _first(log, "session.ended")
    inside = {"a": 1, "kind": "session.started", "log": one.envelope["log"], "z": 1}
    one.envelope["hidden"], one.stored = inside, "session.started"


def an_id_of_null(log: Log) -> None:
    _first(log, "call.finished").envelope["id"] = None


def a_time_that_is_a_number(log: Log) -> None:
    _first(log, "call.finished").envelope["at"] = 7


def an_actor_that_is_a_number(log: Log) -> None:
    _first(log, "call.finished").envelope["actor"] = 7


def an_intention_of_null(log: Log) -> None:
    _first(log, "files.changed", "manifest").envelope["intention"] = None


def an_intention_of_what_changes_no_files(log: Log) -> None:
    one = _first(log, "change.intended")
    one.envelope["intention"] = one.seq


def no_manifest_at_all(log: Log) -> None:
    one = _first(log, "files.changed", "manifest")
    one.parts = []
    del one.envelope["payloads"]


def an_intention_without_a_manifest(log: Log) -> None:
    one = _first(log, "change.intended")
    one.parts = []
    del one.envelope["payloads"]


def a_state(state: Any) -> By:
    def change(log: Log) -> None:
        one = _first(log, "files.changed", "manifest")
        part = one.part("manifest")
        assert part is not None
        body = json.loads(part.content or b"")
        body["changes"].append(["odd", None, state])
        part.content, part.anew = json.dumps(body, separators=(",", ":")).encode(), True

    return change


def an_intention_in_a_format_to_come(log: Log) -> None:
    _first(log, "change.intended").envelope["v"] = "3.0"


def a_time_that_is_none(log: Log) -> None:
    _first(log, "call.finished").envelope["at"] = "soon"


def nobody_who_did_it(log: Log) -> None:
    del _first(log, "call.finished").envelope["actor"]


def keys_of_nothing(log: Log) -> None:
    one = _first(log, "session.started")
    part = Part("manifest", 0, b"s" * 16, b'{"changes":[]}', None, anew=True)
    one.parts += [part, Part("keys", 0, b"", b"", None)]


def another_listing(log: Log) -> None:
    """Whoever reads from there on would begin with another tree."""
    one = _first(log, "tree.listed")
    part = one.part("fact")
    assert part is not None
    fact = {**json.loads(part.content or b""), "listing": "0" * 64}
    part.content, part.anew = json.dumps(fact, separators=(",", ":")).encode(), True


def a_listing_of_what_is_not_yet(log: Log) -> None:
    one = _first(log, "tree.listed")
    part = one.part("fact")
    assert part is not None
    fact = {**json.loads(part.content or b""), "point": one.seq + 1}
    part.content, part.anew = json.dumps(fact, separators=(",", ":")).encode(), True


FORGED: Mapping[str, By] = {
    by.__name__: by
    for by in (
        another_number_inside,
        another_kind_inside,
        an_id_of_null,
        a_time_that_is_a_number,
        an_actor_that_is_a_number,
        an_intention_of_null,
        an_intention_of_what_changes_no_files,
        no_manifest_at_all,
        an_intention_without_a_manifest,
        an_intention_in_a_format_to_come,
        keys_of_nothing,
        another_listing,
        a_listing_of_what_is_not_yet,
    )
} | {
    f"a state that is {state}": a_state(state)
    for state in (["d"], ["d", "x"], ["x", 1], ["o", {}, {}], ["d", 493, {"g": "x"}], "d", 7)
}


def test_listings_are_compared_where_tables_cannot_be(
    stores: Mapping[str, Path], tmp_path: Path
) -> None:
    home = copied(stores["sessions"], tmp_path / "copy")
    with connect(home / "audit.db") as raw:
        log = Log(unguarded(raw), 1)
        an_intention_without_a_manifest(log)
        a_listing_of_what_is_not_yet(log)
        log.write()
    for found in (ours(home / "audit.db", []), alone(home / "audit.db", [])):
        assert [text for text in found.wrong if "list" in text]


@pytest.mark.parametrize("by", [a_time_that_is_none, nobody_who_did_it])
def test_an_event_without_what_every_event_has_is_named(
    stores: Mapping[str, Path], tmp_path: Path, by: By
) -> None:
    home = copied(stores["sessions"], tmp_path / "copy")
    with connect(home / "audit.db") as raw:
        log = Log(unguarded(raw), 1)
        by(log)
        log.write()
    assert ours(home / "audit.db", []).malformed
    assert alone(home / "audit.db", []).wrong


def test_an_access_control_list_that_a_folder_had_once_only_fits_no_tree(
    stores: Mapping[str, Path], tmp_path: Path
) -> None:
    """A folder has no content that could be erased, and so not be known."""
    home = copied(stores["of 0.1.0"], tmp_path / "copy")
    with connect(home / "audit.db") as raw:
        log = Log(unguarded(raw), 2)
        part = _first(log, "files.changed", "manifest").part("manifest")
        assert part is not None
        body = json.loads(part.content or b"")
        for _, _, after in body["changes"]:
            if after[0] == "d":
                after.append({"a": 1})
        part.content, part.anew = json.dumps(body, separators=(",", ":")).encode(), True
        log.write()
    one, other = ours(home / "audit.db", []), alone(home / "audit.db", [])
    assert one.inconsistent == other.inconsistent != {}


@pytest.mark.few(5)
@pytest.mark.parametrize("how", FORGED)
def test_an_event_that_says_what_none_can_is_found_by_both(
    stores: Mapping[str, Path], tmp_path: Path, how: str
) -> None:
    home = copied(stores["sessions"], tmp_path / "copy")
    with connect(home / "audit.db") as raw:
        log = Log(unguarded(raw), 1)
        FORGED[how](log)
        log.write()
    one, other = ours(home / "audit.db", []), alone(home / "audit.db", [])
    assert (one.kind, other.kind) in (("wrong", "wrong"), ("ok", "wrong"))
    assert one.malformed or one.wrong, other.wrong


ONE = "(SELECT min(number) FROM blob WHERE encoding = '{}' AND large = 0)"
ROWS = {
    "a second revision": "INSERT INTO alembic_version VALUES ('0003')",
    "a revision that there is not": "UPDATE alembic_version SET version_num = '9999'",
    "no revision": "DELETE FROM alembic_version",
    "no table of revisions": "DROP TABLE alembic_version",
    "the first dictionary gone": "DELETE FROM dictionary WHERE number = 1",
    "a version of what is not a version": "UPDATE blob SET version = 1 "
    f"WHERE number = {ONE.format('raw')}",
    "another version": "UPDATE blob SET version = version + 1 WHERE encoding = 'zstd-delta'",
    "an absent content that is there": "UPDATE blob SET encoding = 'absent', stored = 0 "
    f"WHERE number = {ONE.format('raw')}",
    "keys with a salt that is not bytes": "UPDATE payload SET salt = 0 WHERE role = 'keys'",
}


@pytest.mark.parametrize("sql", ROWS.values(), ids=ROWS)
def test_a_row_that_says_what_is_not_so_is_found_by_both(
    stores: Mapping[str, Path], tmp_path: Path, sql: str
) -> None:
    home = copied(stores["sessions"], tmp_path / "copy")
    with connect(home / "audit.db") as raw:
        raw.execute("PRAGMA ignore_check_constraints = ON")
        unguarded(raw).execute(sql)
    one = ours(home / "audit.db", [])
    assert one.kind == "wrong"
    if "DROP" in sql:
        assert verify_alone.main([str(home / "audit.db")]) == 2
    else:
        assert alone(home / "audit.db", []).kind == "wrong"


def test_a_content_of_which_only_the_hash_is_left_is_named(
    stores: Mapping[str, Path], tmp_path: Path
) -> None:
    """It is not damage by the format: it may have been too large to keep, or was erased."""
    home = copied(stores["sessions"], tmp_path / "copy")
    with connect(home / "audit.db") as raw:
        raw.execute("PRAGMA foreign_keys = OFF")
        [(number, digest)] = (
            unguarded(raw)
            .execute(f"SELECT number, hex(sha256) FROM blob WHERE number = {ONE.format('raw')}")
            .fetchall()
        )
        raw.execute("DELETE FROM blob_content WHERE blob = ?", (number,))
        raw.execute("UPDATE blob SET encoding = 'absent', stored = 0 WHERE number = ?", (number,))
    assert ours(home / "audit.db", []).erased
    said = io.StringIO()
    with redirect_stdout(said):
        assert verify_alone.main([str(home / "audit.db")]) == 0
    assert f"absent: content {digest.lower()}: only its hash is known" in said.getvalue()


def test_a_head_of_no_events_is_compared_too(stores: Mapping[str, Path]) -> None:
    store = stores["listed anew"] / "audit.db"
    [log] = alone(store, []).heads
    empty = TreeHead(log, 0, sha256().digest())
    for head, kind in ((empty, "inconsistent"), (TreeHead(log, 0, bytes(32)), "wrong")):
        assert ours(store, [head]).kind == alone(store, [head]).kind == kind


@pytest.mark.parametrize("kept", [0, 1, 2])
def test_both_count_the_events_that_no_head_is_of(stores: Mapping[str, Path], kept: int) -> None:
    home = stores["sessions"]
    [file] = (home / "heads").rglob("*.heads")
    heads = [*parse_heads(file.read_text())][:kept]
    one, other = ours(home / "audit.db", heads), alone(home / "audit.db", heads)
    [head] = one.heads.values()
    size = int(head.split()[0])
    assert one.unanchored == other.unanchored == size - (heads[-1].size if heads else 0)


def test_what_lies_between_the_parts_of_a_listing_is_compared_with_no_tree(
    stores: Mapping[str, Path], tmp_path: Path
) -> None:
    """Something before it is damaged, so that what there is is not known until the last part."""
    home = copied(stores["listed anew"], tmp_path / "copy")
    with connect(home / "audit.db") as raw:
        log = Log(unguarded(raw), 1)
        damaged = _first(log, "files.changed").part("manifest")
        assert damaged is not None
        damaged.salt = b"s" * 16
        listing = _first(log, "tree.relisted")
        at = log.events.index(listing)
        later = next(one for one in log.events[at:] if one.part("manifest") and one is not listing)
        first, between = listing.copy(), later.copy()
        for one, said in ((first, b'{"last":false}'), (listing, b'{"part":2}')):
            one.parts.append(Part("fact", 0, b"s" * 16, said, None, anew=True))
        for one in (first, between):
            one.seq = one.envelope["seq"] = 0
        log.events[at:at] = [first, between]
        log.write()
    mine, other = ours(home / "audit.db", []), alone(home / "audit.db", [])
    assert mine.wrong and other.wrong
    assert mine.inconsistent == other.inconsistent
    assert at + 2 not in mine.inconsistent.values()
