"""Checks who signed heads of a log, and how far: by the keys that are known here."""

from collections.abc import Sequence

from msgspec import Struct

from loom_audit.errors import AuditError, Corrupt
from loom_audit.history.check.log_check import Finding, Grade
from loom_audit.model.events import TreeHead
from loom_audit.model.signed.signed_heads import SignedHead, key_id
from loom_audit.model.text.display import count_text
from loom_audit.ports import SignedHeads, SigningKeys

_UNSURE: Grade = "incomplete"


class SignedTo(Struct, frozen=True):
    """A key, by what people call it, and how many events the largest head is over it signed."""

    key: str
    size: int


class SignedCheck(Struct, frozen=True):
    """The heads that are signed, whoever signed them; with the keys of each that is rightly so."""

    heads: tuple[TreeHead, ...]
    findings: tuple[Finding, ...]
    rightly: tuple[tuple[str, TreeHead], ...]

    def signed_to(self, anchored: int, findings: Sequence[Finding]) -> tuple[SignedTo, ...]:
        """How far each key has signed what the log holds, by what was found of its heads.

        Behind the first head that does not match nothing counts.
        """
        wrong = [one.seq or 0 for one in findings if one.code == "head.root"]
        first = min((seq for seq in wrong if seq), default=anchored + 1)
        sizes: dict[str, int] = {}
        for key, head in self.rightly:
            if head.size <= anchored and head.size < first:
                sizes[key] = max(head.size, sizes.get(key, 0))
        return tuple(SignedTo(key, size) for key, size in sizes.items())


def check_signed(signed: SignedHeads, keys: SigningKeys) -> SignedCheck:
    """Check every signed head of a log; what cannot be read is a finding. StorageFailed."""
    findings = [
        Finding(None, "signed.damaged", f"{one} is damaged: what it says is not known", _UNSURE)
        for one in signed.damaged()
    ]
    kept = list(signed.kept())
    try:
        last = signed.last()
        if last is not None and last not in kept:
            kept.append(last)
    except Corrupt as error:
        findings.append(Finding(None, "signed.damaged", f"the last one: {error}", _UNSURE))
    public: Sequence[bytes] = ()
    try:
        if (ring := keys.read()) is not None:
            public = ring.public_keys
    except AuditError as error:
        said = f"no signature of a head counts: {error}"
        findings.append(Finding(None, "keys.unreadable", said, _UNSURE))
    rightly, unknown = list[tuple[str, TreeHead]](), list[SignedHead]()
    for one in kept:
        try:
            by = one.signed_by(public)
        except Corrupt as error:
            said = f"the signed head over {one.head.size} events: {error}"
            findings.append(Finding(None, "signed.wrong", said))
            continue
        rightly += [(key_id(key), one.head) for key in by]
        if not by:
            unknown.append(one)
    if unknown:
        said = f"{count_text(len(unknown), 'head')} signed by no key that is known here"
        findings.append(Finding(None, "signed.unknown", said, _UNSURE))
    return SignedCheck(tuple(one.head for one in kept), tuple(findings), tuple(rightly))
