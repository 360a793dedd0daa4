"""The manifests that events have in common with the intentions they refer to."""

from loom_audit.model.events import CallFinished, ChangeIntended
from loom_audit.model.stored.codec import MANIFEST, intention_of, read_envelope
from loom_audit.model.stored.facts import PayloadBytes
from loom_audit.model.stored.format_1 import is_format_1


class Intentions:
    """Keeps the manifest of each intention until the event that says that exactly that happened.

    For the events of one log in order. No event refers to an intention of format 1, so that none
    of these is kept. What a call named last is kept until it has finished, for a repeat of it.
    """

    def __init__(self) -> None:
        self._kept: dict[int, PayloadBytes] = {}
        self._named: dict[tuple[str, str], tuple[int, PayloadBytes]] = {}

    def complete(self, seq: int, kind: str, leaf: bytes, payloads: PayloadBytes) -> PayloadBytes:
        """Return the next event's payloads, with the manifest it shares with its intention.

        Corrupt when the leaf cannot be read.
        """
        if kind == ChangeIntended.kind and not is_format_1(read_envelope(leaf)):
            self._kept[seq] = {key: payloads[key] for key in MANIFEST if key in payloads}
        if kind == CallFinished.kind:
            self._named.pop(_call_of(leaf), None)
        intention = intention_of(leaf)
        if intention is None:
            return payloads
        call = _call_of(leaf)
        again, manifest = self._named.get(call, (None, {}))
        if intention != again:
            manifest = self._kept.pop(intention, {})
            self._named[call] = intention, manifest
        return {**payloads, **manifest}


def _call_of(leaf: bytes) -> tuple[str, str]:
    envelope = read_envelope(leaf)
    return envelope.get("session", ""), envelope.get("call_id", "")
