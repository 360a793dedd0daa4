"""Checks the payloads of events, and the contents that they name, by what their leaves commit to.

This version cannot record an erasure, so a payload or content that is missing counts as tampered
with.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any, TypeVar, get_args

from msgspec import Struct, field

from loom_audit.errors import AuditError, Corrupt, NotFound
from loom_audit.history.check.continuity_check import ContinuityChecker
from loom_audit.history.check.log_check import Findings
from loom_audit.model.events import (
    ApprovalRequested,
    CallDecided,
    CallFinished,
    CallRequested,
    ChangeIntended,
    Fact,
    FilesChanged,
    TreeListed,
    UnknownFact,
    WorkspaceAttached,
)
from loom_audit.model.files import BlobId
from loom_audit.model.repeats import REPEATED, Repeat, Repeats
from loom_audit.model.stored.codec import (
    MALFORMED,
    PREV_DIGITS,
    decode_fact,
    intention_in,
    parse_time,
    read_envelope,
)
from loom_audit.model.stored.format_1 import is_format_1, salt_bytes_of
from loom_audit.model.stored.listing import listing_hash
from loom_audit.model.stored.manifest import Manifest, contents_of, decode_manifest
from loom_audit.model.stored.payloads import StoredPayload, check_payloads, from_json, opens
from loom_audit.ports import BlobStore, EventRow, Evidence, PayloadRow, ReferencedBlob
from loom_audit.ports.evidence import CheckedEvent

_READ_WHOLE = 1024 * 1024
"""Most bytes of a content that are read at once."""

_KEYS = ("keys", 0)
"""The role and number of the payload that has the keys of an event's manifest."""

_T = TypeVar("_T")

_ReadEvent = tuple[EventRow, Mapping[str, Any], Sequence[PayloadRow]]
"""An event's row, its envelope and its payloads."""

_CallKey = tuple[str, str]
"""The session and the id of a call, which name it."""

_HASH_ONLY = (ApprovalRequested.kind, CallDecided.kind)
"""Kinds whose payloads no other check needs: their hashes are compared, nothing is decoded."""

_FORMATS = ("1", "2")
"""The major versions of the format of events that this version reads."""

_NO_DIGEST = bytes(32)
"""Stands for the SHA-256 of a payload that has neither content nor blob: it opens nothing."""

_KNOWN = frozenset(fact.kind for fact in get_args(Fact) if fact is not UnknownFact)


class ContentChecker(Struct):
    """Checks the payloads of one log in the order of its events, and counts what it checked.

    `payloads_checked`, `files_checked` (states of files in manifests), `contents_read` and
    `hash_only` (contents on record by their hash) are the counts. `max_file_bytes` is the smallest
    limit on record over which files are recorded by hash only, in bytes; None before one was read.
    """

    evidence: Evidence
    blobs: BlobStore
    findings: Findings
    payloads_checked: int = 0
    files_checked: int = 0
    contents_read: int = 0
    hash_only: int = 0
    max_file_bytes: int | None = None
    continuity: ContinuityChecker | None = None
    """Follows the tree where all events are read; None until then."""
    _open_calls: set[_CallKey] = field(default_factory=set)
    _closed_calls: set[int] = field(default_factory=set)
    """The hashes of the keys of finished calls: there may be millions."""

    _intended: dict[int, tuple[_CallKey, Manifest]] = field(default_factory=dict)
    """The call and the manifest of each intention, by seq, until an event says that it happened."""

    _happened: dict[_CallKey, Manifest] = field(default_factory=dict)
    """For each open call the manifest of the intention that it last said has happened."""

    _repeats: Repeats = field(default_factory=Repeats)
    _reads_all: bool = True
    _before: tuple[int, bytes] = (0, b"")
    """The seq of the event that was checked last, and the hash of its leaf."""

    _next_payload: PayloadRow | None = None
    _references: dict[bytes, tuple[int, int]] = field(default_factory=dict)
    """The contents that checked events name, by SHA-256: the seq of the first, and the size."""

    # --- events ---------------------------------------------------------------------------

    def check(
        self, rows: Sequence[EventRow], payloads: Iterator[PayloadRow], *, calls: bool = True
    ) -> None:
        """Check events by their payloads, which `payloads` yields in order of seq.

        Without `calls` only these events are looked at: not whether calls begin and finish once,
        nor the tree. Each check is made of all events before the next one, which is quicker than
        event by event. AuditError where payloads cannot be read.
        """
        self._reads_all = calls
        whole = [(row, self._payloads_of(row.seq, payloads)) for row in rows]
        read = self._apply_step(
            self._check_envelope, [item for item in whole if item[0].leaf is not None]
        )
        if calls:
            self._apply_step(self._check_call, read)
            self._apply_step(self._check_repeats, read)
        decoded = self._apply_step(self._decode, self._apply_step(self._check_payloads, read))
        self.evidence.add_references(self._references)
        self._references.clear()
        if calls:
            self.evidence.add_checked(decoded)
            if self.continuity is None:
                self.continuity = ContinuityChecker(self.findings)
            self.continuity.check(rows, decoded)

    def _apply_step(
        self, step: Callable[..., _T | None], items: Iterable[tuple[Any, ...]]
    ) -> list[_T]:
        """The results of a check for the items that pass it; an item begins with the event's row.

        What cannot be read becomes a finding.
        """
        made = []
        for item in items:
            try:
                result = step(*item)
            except (Corrupt, *MALFORMED) as error:
                seq = item[0].seq
                self.findings.add(seq, "event.malformed", f"event {seq} cannot be read: {error}")
            else:
                if result is not None:
                    made.append(result)
        return made

    def finish(self, payloads: Iterator[PayloadRow]) -> None:
        """Add the findings that are known only at the end of the log.

        These are payloads that are stored behind the last event, events that are recorded twice by
        calls that did not finish, and how many events the tree could not follow.
        """
        for repeat in self._repeats.unfinished():
            self._note_repeat(repeat)
        if self.continuity is not None:
            self.continuity.finish()
        rest = ([self._next_payload] if self._next_payload else []) + list(payloads)
        for payload in rest:
            self._note_orphan(payload)

    def _payloads_of(self, seq: int, payloads: Iterator[PayloadRow]) -> list[PayloadRow]:
        """The payloads of one event; payloads before it are of an event that is not there."""
        found: list[PayloadRow] = []
        payload = self._next_payload or next(payloads, None)
        while payload is not None and payload.seq <= seq:
            if payload.seq == seq:
                found.append(payload)
            else:
                self._note_orphan(payload)
            payload = next(payloads, None)
        self._next_payload = payload
        return found

    def _note_orphan(self, payload: PayloadRow) -> None:
        self.findings.add(
            payload.seq,
            "payload.extra",
            f"payload {payload.role} {payload.n} is stored for event {payload.seq},"
            " which is not there",
        )

    def _check_envelope(self, row: EventRow, payloads: Sequence[PayloadRow]) -> _ReadEvent | None:
        """Read the envelope; None where its format is one that this version does not know.

        A kind that this version does not know is a finding. Corrupt, or an error of `MALFORMED`,
        for an envelope that cannot be read.
        """
        envelope = read_envelope(row.leaf or b"")
        self._check_place(row, envelope)
        parse_time(envelope["at"])
        if "actor" not in envelope:
            raise ValueError("it does not say who did it")
        if envelope["v"].partition(".")[0] not in _FORMATS:
            message = f"event {row.seq} is in format {envelope['v']!a}, which is not known here"
            self.findings.add(row.seq, "event.format", message, "unreadable")
            return None
        if "intention" in envelope and envelope["kind"] != FilesChanged.kind:
            message = f"event {row.seq} says that what was intended happened, and changes no files"
            self.findings.add(row.seq, "event.intention", message)
        if envelope["kind"] not in _KNOWN:
            self.findings.add(
                row.seq,
                "event.unknown",
                f"event {row.seq} is of the kind {envelope['kind']!a}, which a newer version knows",
                "incomplete",
            )
        return row, envelope, payloads

    def _check_place(self, row: EventRow, envelope: Mapping[str, Any]) -> None:
        """Add findings where the row of an event says something else than its envelope.

        `LogChecker` looks for the bytes of the columns in the leaf, which is quick. An object
        inside the envelope may hold just these bytes while the envelope itself says something else.
        """
        seq, (before, prev) = row.seq, self._before
        self._before = seq, row.leaf_hash
        unlike = []
        if (envelope["log"], envelope["seq"]) != (self.evidence.log, seq):
            unlike.append((seq, "event.place", f"event {seq} was recorded at another place"))
        for name, filed in (("id", row.id), ("kind", row.kind)):
            if envelope.get(name, "") != filed:
                message = f"event {seq} is filed under the {name} {filed!a}, not its own"
                unlike.append((seq, "event.column", message))
        digits = None if is_format_1(envelope) else PREV_DIGITS
        if seq == before + 1 and envelope.get("prev", "") != prev.hex()[:digits]:
            message = f"event {seq} was recorded after another event {before} than this one"
            unlike.append((before, "event.prev", message))
        for about, code, message in unlike:
            if not self.findings.has(about, code):
                self.findings.add(about, code, message)

    def _check_call(self, row: EventRow, envelope: Mapping[str, Any], _: object) -> None:
        """Add a finding where a call is requested or finished twice, or finished unrequested."""
        seq, kind = row.seq, envelope["kind"]
        if kind not in (CallRequested.kind, CallFinished.kind):
            return
        key = _call_of(envelope)
        closed = hash(key) in self._closed_calls
        if kind == CallRequested.kind:
            if closed or key in self._open_calls:
                self.findings.add(seq, "call.twice", f"the call {key[1]!a} is requested again")
            self._open_calls.add(key)
        elif key in self._open_calls:
            self._open_calls.discard(key)
            self._closed_calls.add(hash(key))
        else:
            how = "finishes again" if closed else "finishes without having been requested"
            self.findings.add(seq, "call.twice", f"the call {key[1]!a} {how}")

    def _check_repeats(self, row: EventRow, envelope: Mapping[str, Any], _: object) -> None:
        if repeat := self._repeats.follow(row.seq, envelope):
            self._note_repeat(repeat)

    def _note_repeat(self, repeat: Repeat) -> None:
        seq = repeat.seq
        if repeat.explained:
            message = f"what event {repeat.intention} intended was {REPEATED}: it changes nothing"
            self.findings.add(seq, "event.repeated", message, "harmless")
        else:
            message = f"event {seq} says once more that what {repeat.intention} intended happened"
            self.findings.add(seq, "event.intention", message)

    def _check_payloads(
        self, row: EventRow, envelope: Mapping[str, Any], payloads: Sequence[PayloadRow]
    ) -> _ReadEvent | None:
        """The item where all payloads are what the envelope commits to; None with findings else."""
        missing = {(item["role"], item["n"]): item for item in envelope.get("payloads", ())}
        good = True
        for _, role, n, salt, content, digest, size in payloads:
            if content is not None:
                digest, size = sha256(content).digest(), len(content)
            elif digest is None:
                digest = _NO_DIGEST
            elif role != "manifest" and role != "keys":
                self._references.setdefault(digest, (row.seq, size or 0))
            if role == "keys":
                self._check_keys(row.seq, envelope, n, salt, size)
            else:
                item = missing.pop((role, n), None)
                good = (
                    good
                    and item is not None
                    and opens(salt, role, digest, item["commit"])
                    and size == item["size"]
                )
        self.payloads_checked += len(payloads)
        if missing or not good:
            self._note_payloads(row.seq, envelope, payloads)
            return None
        return row, envelope, payloads

    def _check_keys(
        self, seq: int, envelope: Mapping[str, Any], n: int, salt: bytes, size: int | None
    ) -> None:
        """Add a finding for keys without a manifest, a second row of keys, or keys with a salt.

        Keys are covered by the commitments in their manifest, and have none of their own.
        """
        listed = envelope.get("payloads", ())
        if n == 0 and salt == b"" and size != 0 and any(p["role"] == "manifest" for p in listed):
            return
        message = f"event {seq}: the row {n!a} of keys is not of its manifest, or has a salt"
        self.findings.add(seq, "keys.extra", message)

    def _note_payloads(
        self, seq: int, envelope: Mapping[str, Any], payloads: Sequence[PayloadRow]
    ) -> None:
        stored = []
        for payload in payloads:
            digest, size = payload.digest or _NO_DIGEST, payload.size
            if payload.content is not None:
                digest, size = sha256(payload.content).digest(), len(payload.content)
            stored.append(StoredPayload(payload.role, payload.n, payload.salt, digest, size))
        for code, message in check_payloads(envelope.get("payloads", ()), stored):
            self.findings.add(seq, code, f"event {seq}: {message}")

    def _decode(
        self, row: EventRow, envelope: Mapping[str, Any], payloads: Sequence[PayloadRow]
    ) -> CheckedEvent | None:
        """The event with its fact, its manifest checked; None where a payload cannot be read."""
        seq, kind = row.seq, envelope["kind"]
        if kind in _HASH_ONLY:
            return seq, envelope, None
        try:
            contents = {(payload.role, payload.n): self._bytes_of(payload) for payload in payloads}
        except AuditError as error:
            # a content that is damaged is a finding when contents are read; a manifest is not
            # among these
            if any(payload.role == "manifest" for payload in payloads):
                self._note_manifest(seq, error)
            return None
        manifest = None
        stored = contents.get(("manifest", 0))
        if stored is not None:
            manifest = self._check_manifest(seq, envelope, stored, contents.get(_KEYS))
            if manifest is None:
                return None
        elif kind == WorkspaceAttached.kind:
            limit = from_json(contents["fact", 0], lambda n: None)["max_file_bytes"]
            self.max_file_bytes = min(limit, self.max_file_bytes or limit)
        if kind == ChangeIntended.kind:
            if manifest is None:
                raise ValueError("it says of no paths what is there")
            # in format 1 no event names its intention, so that none is looked up
            if not is_format_1(envelope):
                self._intended[seq] = _call_of(envelope), manifest
            return seq, envelope, None
        if kind == CallFinished.kind:
            self._happened.pop(_call_of(envelope), None)
        if "intention" in envelope:
            manifest = self._manifest_of_intention(seq, envelope)
            if manifest is None:
                return None
        return seq, envelope, decode_fact(envelope, contents, manifest)

    def _manifest_of_intention(self, seq: int, envelope: Mapping[str, Any]) -> Manifest | None:
        """The manifest of the intention that an event says has happened; None with a finding."""
        intention = intention_in(envelope) or 0
        if not self._reads_all and intention not in self._intended:
            self._read_intention(intention)
        own = _call_of(envelope)
        call, manifest = self._intended.pop(intention, (None, None))
        if self._repeats.is_repeat(seq):
            call, manifest = own, self._happened.get(own)
        if manifest is None or call != own:
            self.findings.add(
                seq,
                "event.intention",
                f"event {seq} says that what event {envelope['intention']!a} intended happened,"
                " and that is not an intention of its call, or cannot be read",
            )
            return None
        self._happened[own] = manifest
        return manifest

    def _read_intention(self, seq: int) -> None:
        """Check the intention at a seq that is not among the events that are checked."""
        payloads = self.evidence.payloads(seq - 1, seq)
        for rows in self.evidence.events(seq - 1, seq):
            items = [(row, [*payloads]) for row in rows if row.seq == seq and row.leaf is not None]
            read = self._apply_step(self._check_envelope, items)
            self._apply_step(self._decode, self._apply_step(self._check_payloads, read))

    def _check_manifest(
        self, seq: int, envelope: Mapping[str, Any], stored: bytes, keys: bytes | None
    ) -> Manifest | None:
        """The manifest, with the keys of its contents checked; None with a finding else."""
        references = self._references
        try:
            manifest = decode_manifest(stored, keys, salt_bytes=salt_bytes_of(envelope))
            for content in contents_of(manifest, keys):
                self.files_checked += 1
                digest = content.digest
                if content.proven and digest is not None:
                    references.setdefault(digest, (seq, content.size))
                    continue
                shown = f"event {seq}: the content of {content.path!a} {content.side} the change"
                if digest is None:
                    self.findings.add(seq, "keys.erased", f"{shown} was erased")
                else:
                    self.findings.add(seq, "keys.mismatch", f"{shown} is not the one on record")
        except MALFORMED as error:
            self._note_manifest(seq, error)
            return None
        return manifest

    def _note_manifest(self, seq: int, error: Exception) -> None:
        message = f"event {seq}: its manifest cannot be read: {error}"
        self.findings.add(seq, "keys.length", message)

    def _bytes_of(self, payload: PayloadRow) -> bytes:
        """The bytes of a payload, from its row or from the store. Corrupt by a wrong hash."""
        if payload.content is not None:
            return payload.content
        content = self.blobs.get(BlobId((payload.digest or b"").hex()))
        if sha256(content).digest() != payload.digest:
            raise Corrupt(f"the content of payload {payload.role} does not match its hash")
        return content

    def check_listings(self) -> None:
        """Compare each listing of the tree on record with the tree that the events make."""
        for seq, fact, hashed in self.continuity.listed if self.continuity else ():
            # a listing of a later point than its own event lists what nobody could know
            if hashed != fact.listing and (
                fact.point >= seq or not self._fits_older_fold(fact, hashed)
            ):
                self.findings.add(
                    seq,
                    "tree.listed",
                    f"the tree after event {fact.point} is not the one that event {seq} lists",
                )

    def _fits_older_fold(self, fact: TreeListed, hashed: str | None) -> bool:
        """Whether a listing fits the tree by the rule of formats before 2.1, or by the tables.

        Those formats kept in the tree what was below an opaque entry. `hashed` is the hash of the
        tree, None where it is not known here: then the tables give the tree, which are compared
        with the log as well.
        """
        if hashed is None and listing_hash(*self.evidence.tree(fact.point)) == fact.listing:
            return True
        return not fact.continuous and (
            listing_hash(self.evidence.tree(fact.point, plain=True)[0]) == fact.listing
        )

    # --- blobs ----------------------------------------------------------------------------

    def check_blob(self, blob: ReferencedBlob) -> None:
        """Read a content that events name, and add a finding where hash or size are others."""
        shown = f"the content {blob.digest.hex()[:16]}…, first named by event {blob.seq},"
        if not blob.has_bytes:
            limit = self.max_file_bytes
            if blob.has_row and limit is not None and blob.size > limit:
                self.hash_only += 1
            else:
                self.findings.add(blob.seq, "blob.missing", f"{shown} is missing")
            return
        try:
            digest, size = self._hash(BlobId(blob.digest.hex()), blob.size)
        except (Corrupt, NotFound) as error:
            self.findings.add(blob.seq, "blob.corrupt", f"{shown} is damaged: {error}")
            return
        except AuditError as error:
            self.findings.add(
                blob.seq, "blob.unreadable", f"{shown} cannot be read: {error}", "unreadable"
            )
            return
        self.contents_read += 1
        if digest != blob.digest:
            self.findings.add(blob.seq, "blob.corrupt", f"{shown} does not match its hash")
        elif size != blob.size:
            self.findings.add(
                blob.seq, "blob.size", f"{shown} is {size} bytes, on record are {blob.size}"
            )

    def _hash(self, blob: BlobId, size: int) -> tuple[bytes, int]:
        """The SHA-256 and the size in bytes of a stored content; a large one is read in chunks."""
        if size <= _READ_WHOLE:
            content = self.blobs.get(blob)
            return sha256(content).digest(), len(content)
        digest, count = sha256(), 0
        with self.blobs.open(blob) as stream:
            while chunk := stream.read(_READ_WHOLE):
                digest.update(chunk)
                count += len(chunk)
        return digest.digest(), count


def _call_of(envelope: Mapping[str, Any]) -> _CallKey:
    return envelope.get("session", ""), envelope["call_id"]
