"""What an event has in common with the intention it names."""

import json

import pytest

from loom_audit.errors import Corrupt
from loom_audit.model.stored.codec import FORMAT
from loom_audit.model.stored.intentions import Intentions

MANIFEST = {("manifest", 0): b"rows", ("keys", 0): b"salts"}


def leaf(version: str = FORMAT, **more: int) -> bytes:
    return json.dumps({"v": version, **more}, separators=(",", ":")).encode()


def test_a_change_gets_the_manifest_of_its_intention_until_its_call_has_finished() -> None:
    intentions = Intentions()
    assert intentions.complete(1, "change.intended", leaf(), MANIFEST) == MANIFEST
    own = {("fact", 0): b"{}"}
    named = intentions.complete(2, "files.changed", leaf(intention=1), own)
    assert named == {**own, **MANIFEST}
    assert intentions.complete(3, "files.changed", leaf(intention=1), own) == named, "a repeat"
    intentions.complete(4, "call.finished", leaf(), {})
    assert intentions.complete(5, "files.changed", leaf(intention=1), own) == own


def test_an_intention_of_format_1_is_not_kept() -> None:
    intentions = Intentions()
    assert intentions.complete(1, "change.intended", leaf("1.0"), MANIFEST) == MANIFEST
    assert intentions.complete(2, "files.changed", leaf(intention=1), {}) == {}


def test_a_leaf_that_cannot_be_read_is_refused() -> None:
    with pytest.raises(Corrupt):
        Intentions().complete(1, "change.intended", b"{", MANIFEST)
