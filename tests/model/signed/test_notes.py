"""Signed notes, held against vectors and programs of others."""

import random
import subprocess
from base64 import b64encode
from pathlib import Path

import pytest

from loom_audit.errors import Corrupt
from loom_audit.model.events import TreeHead
from loom_audit.model.signed.ed25519 import is_signed, public_key, sign
from loom_audit.model.signed.notes import (
    Signature,
    SignedNote,
    Verifier,
    is_key_name,
    keys_of,
    parse_note,
    parse_verifier,
)
from loom_audit.model.signed.signed_heads import (
    SignedHead,
    key_id,
    read_signed_head,
    sign_head,
    verifier,
)
from tests.given.foreign_programs import needs_go, needs_openssl, note_opener

# from the documentation of golang.org/x/mod/sumdb/note
PETER = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
ENOCH = "EnochRoot+af0cfe78+ATtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop"
GO_NOTE = (
    "If you think cryptography is the answer to your problem,\n"
    "then you don't know what your problem is.\n"
    "\n"
    "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZ"
    "b6KE6RyyBwJnAM=\n"
    "— EnochRoot rwz+eBzmZa0SO3NbfRGzPCpDckykFXSdeX+MNtCOXm2/5n2tiOHp+vAF1aGrQ5ovTG01oOTGwnWLox33"
    "WWd1RvMc+QQ=\n"
).encode()
# RFC 8032, section 7.1, tests 1 to 3: private key, public key, message, signature
RFC_8032 = [
    (
        "9d61b19deffd5a60ba844af492ec2cc44449c5697b326919703bac031cae7f60",
        "d75a980182b10ab7d54bfed3c964073a0ee172f3daa62325af021a68f707511a",
        "",
        "e5564300c360ac729086e2cc806e828a84877f1eb8e5d974d873e06522490155"
        "5fb8821590a33bacc61e39701cf9b46bd25bf5f0595bbe24655141438e7a100b",
    ),
    (
        "4ccd089b28ff96da9db6c346ec114e0f5b8a319f35aba624da8cf6ed4fb8a6fb",
        "3d4017c3e843895a92b70aa74d1b7ebc9c982ccf2ec4968cc0cd55f12af4660c",
        "72",
        "92a009a9f0d4cab8720e820b5f642540a2b27b5416503f8fb3762223ebdb69da"
        "085ac1e43e15996e458f3613d0f11d8c387b2eaeb4302aeeb00d291612bb0c00",
    ),
    (
        "c5aa8df43f9f837bedb7442f31dcb7b166d38535076f094b85ce3a2e0b4458f7",
        "fc51cd8e6218a1a38da47ed00230f0580816ed13ba3303ac5deb911548908025",
        "af82",
        "6291d657deec24024827e69c3abe01a30ce548a284743a445e3680d7db5ac3ac"
        "18ff9b538d16f290ae67f760984dc6594a7c15e9716ed28dc027beceea1ec40a",
    ),
]
SEEDS = [bytes.fromhex(row[0]) for row in RFC_8032]
HEAD = TreeHead("0123456789abcdef", 1210, bytes(range(32)))
SIGNED = sign_head(HEAD, SEEDS[:1])
KEY = verifier(HEAD.log, public_key(SEEDS[0]))


@pytest.mark.parametrize(("seed", "public", "message", "signature"), RFC_8032)
def test_the_vectors_of_the_standard(seed: str, public: str, message: str, signature: str) -> None:
    made = sign(bytes.fromhex(seed), bytes.fromhex(message))
    assert made.hex() == signature
    assert public_key(bytes.fromhex(seed)).hex() == public
    assert is_signed(bytes.fromhex(public), made, bytes.fromhex(message))
    assert not is_signed(bytes.fromhex(public), made, b"other")
    assert not is_signed(bytes.fromhex(public), made[:-1], bytes.fromhex(message))
    assert not is_signed(b"short", made, bytes.fromhex(message))


def test_a_signature_with_the_order_added_is_none() -> None:
    """Of a signature (R, S) also (R, S + L) fits the equation: RFC 8032 refuses that one."""
    public, message, made = (bytes.fromhex(RFC_8032[1][n]) for n in (1, 2, 3))
    order = 2**252 + 27742317777372353535851937790883648493
    larger = int.from_bytes(made[32:], "little") + order
    assert not is_signed(public, made[:32] + larger.to_bytes(32, "little"), message)


def test_the_note_of_gos_documentation_is_read_checked_and_written_as_it_is() -> None:
    note = parse_note(GO_NOTE)
    keys = [parse_verifier(PETER), parse_verifier(ENOCH)]
    assert keys_of(note, keys) == keys
    assert [str(key) for key in keys] == [PETER, ENOCH]
    assert keys_of(note, keys[1:]) == keys[1:], "signatures of unknown keys say nothing"
    assert note.to_bytes() == GO_NOTE


def test_a_head_is_three_lines_under_its_signature() -> None:
    raw = SIGNED.note.to_bytes()
    lines = raw.decode().split("\n")
    assert lines[:4] == ["loom-audit/0123456789abcdef", "1210", b64encode(HEAD.root).decode(), ""]
    assert lines[4].startswith(f"— {KEY.name} ") and lines[5:] == [""]
    assert read_signed_head(raw) == SIGNED
    assert SIGNED.signed_by([KEY.public]) == [KEY.public]
    assert SIGNED.signed_by([public_key(SEEDS[1])]) == []
    assert key_id(KEY.public) == "21fe31dfa154a261"


def test_a_head_of_two_keys_is_signed_by_both() -> None:
    both = sign_head(HEAD, SEEDS[:2])
    keys = [public_key(seed) for seed in SEEDS[:2]]
    assert read_signed_head(both.note.to_bytes()).signed_by(keys[::-1]) == keys


def said_by(text: str) -> bytes:
    return SignedNote(text, SIGNED.note.signatures).to_bytes()


ROOT = b64encode(HEAD.root).decode()


@pytest.mark.parametrize(
    "text",
    [
        f"loom-audit/a\n01\n{ROOT}\n",
        f"loom-audit/a\n-1\n{ROOT}\n",
        f"loom-audit/a\n١\n{ROOT}\n",
        f"loom-audit/a\n{1 << 63}\n{ROOT}\n",
        f"loom-audit/a\n{'9' * 5000}\n{ROOT}\n",
        f"loom-audit/\n1\n{ROOT}\n",
        f"loom-audit/a b\n1\n{ROOT}\n",
        f"other.example/a\n1\n{ROOT}\n",
        f"loom-audit/a\n1\n{ROOT[:-1]}\n",
        f"loom-audit/a\n1\n{b64encode(bytes(31)).decode()}\n",
        f"loom-audit/a\n1\n{ROOT}\nextension\n",
        "loom-audit/a\n1\n",
    ],
)
def test_another_text_is_no_head(text: str) -> None:
    with pytest.raises(Corrupt, match="of no tree head of ours"):
        read_signed_head(said_by(text))


LINE = SIGNED.note.to_bytes().decode().split("\n")[4]


@pytest.mark.parametrize(
    ("raw", "why"),
    [
        (b"", "no signatures"),
        (b"text\n", "no signatures"),
        (b"text\n\n", "no signatures"),
        (f"\n\n{LINE}\n".encode(), "no signatures"),
        (f"text\n\n{LINE}".encode(), "no signatures"),
        (f"text\n\n{LINE}\n{LINE}\n".encode(), "twice"),
        (f"text\n\n{LINE}\n\n".encode(), "no signatures"),
        (f"text\n\n{LINE} more\n".encode(), "not base64"),
        (f"text\n\n{LINE}=\n".encode(), "not base64"),
        (f"text\n\n{LINE[:-3]}\n".encode(), "not base64"),
        ("text\n\n— name AAAAAA==\n".encode(), "not base64"),
        ("text\n\n— name AAAAAAA=\n".encode(), ""),
        ("text\n\n— name AAAAAAB=\n".encode(), "not base64"),
        ("text\n\n— name AAAA\\nAAA=\n".encode(), "not base64"),
        ("text\n\n— na+me AAAAAAA=\n".encode(), "no signature"),
        ("text\n\n—  AAAAAAA=\n".encode(), "no signature"),
        (b"text\n\n- name AAAAAAA=\n", "no signature"),
        ("text\n\n— na\u2003me AAAAAAA=\n".encode(), "no signature"),
        (f"te\txt\n\n{LINE}\n".encode(), "control characters"),
        (f"text\r\n\n{LINE}\n".encode(), "control characters"),
        (f"te\0xt\n\n{LINE}\n".encode(), "control characters"),
        (b"te\xffxt\n\n" + LINE.encode() + b"\n", "not UTF-8"),
        (b"a" * 70_000 + f"\n\n{LINE}\n".encode(), "at most 65,536"),
        (
            b"text\n\n" + b"".join(f"— k{n} AAAAAAA=\n".encode() for n in range(101)),
            "more than 100",
        ),
    ],
)
def test_what_is_not_a_note_to_the_letter_is_refused(raw: bytes, why: str) -> None:
    if not why:
        assert parse_note(raw).signatures == (Signature("name", bytes(4), b"\0"),)
        return
    with pytest.raises(Corrupt, match=why) as refused:
        parse_note(raw)
    assert refused.value.hint


@pytest.mark.parametrize(
    "text",
    [
        "",
        "name",
        PETER.replace("c74f20a3", "c74f20a4"),
        PETER.replace("c74f20a3", "C74F20A3"),
        PETER[:-4],
        PETER + "=",
        "na me" + PETER.removeprefix("PeterNeumann"),
        f"name+00000000+{b64encode(bytes([4]) + bytes(32)).decode()}",
    ],
)
def test_another_text_is_no_key(text: str) -> None:
    with pytest.raises(Corrupt, match="no Ed25519 key"):
        parse_verifier(text)


def test_names_of_keys() -> None:
    assert is_key_name("sum.golang.org") and is_key_name("größe/1")
    assert not any(map(is_key_name, ("", "a b", "a+b", "a\nb", "a\u2028b", "\ud800", "a" * 257)))


def mutations(raw: bytes, count: int) -> list[bytes]:
    """So many other byte strings: with a bit turned, bytes changed, taken out, put in, moved."""
    chosen, made = random.Random(29), set[bytes]()
    while len(made) < count:
        at, other = chosen.randrange(len(raw)), chosen.randrange(len(raw))
        first, last = sorted((at, other))
        byte = bytes([chosen.randrange(256)])
        [changed] = chosen.choices(
            [
                raw[:at] + bytes([raw[at] ^ 1 << chosen.randrange(8)]) + raw[at + 1 :],
                raw[:at] + byte + raw[at + 1 :],
                raw[:at] + raw[at + 1 :],
                raw[:at] + byte + raw[at:],
                raw[:at],
                raw[:first] + raw[last:],
                raw[:first] + raw[first:last] * 2 + raw[last:],
            ]
        )
        if changed != raw:
            made.add(changed)
    return sorted(made)


def is_vouched_for(raw: bytes) -> bool:
    try:
        return read_signed_head(raw).signed_by([KEY.public]) == [KEY.public]
    except Corrupt:
        return False


def test_none_of_five_hundred_mutations_is_vouched_for() -> None:
    raw = SIGNED.note.to_bytes()
    assert is_vouched_for(raw)
    assert [one for one in mutations(raw, 500) if is_vouched_for(one)] == []


@needs_go
def test_gos_notes_are_ours(tmp_path: Path) -> None:
    """Go's `note.Open` takes our head by our key's text, and none of 500 mutations of it."""
    opens = note_opener(tmp_path)
    raw = SIGNED.note.to_bytes()
    others = mutations(raw, 500)
    assert opens(str(KEY), [raw, *others]) == [SIGNED.note.text, *[None] * 500]
    assert opens(PETER, [GO_NOTE]) == [parse_note(GO_NOTE).text]
    assert opens(str(Verifier(KEY.name, public_key(SEEDS[1]))), [raw]) == [None]


@needs_openssl
def test_openssl_takes_our_signature(tmp_path: Path) -> None:
    def openssl_takes(signed: SignedHead, public: bytes) -> bool:
        # RFC 8410: what stands before the 32 bytes of a public key in DER
        (tmp_path / "key").write_bytes(bytes.fromhex("302a300506032b6570032100") + public)
        (tmp_path / "text").write_text(signed.note.text, "utf-8")
        (tmp_path / "signature").write_bytes(signed.note.signatures[0].signature)
        command = "openssl pkeyutl -verify -rawin -pubin -keyform DER -inkey key -in text -sigfile"
        done = subprocess.run([*command.split(), "signature"], cwd=tmp_path, capture_output=True)
        return done.returncode == 0

    assert openssl_takes(SIGNED, KEY.public)
    assert not openssl_takes(SIGNED, public_key(SEEDS[1]))
    other = SignedHead(HEAD, SignedNote("other\n", SIGNED.note.signatures))
    assert not openssl_takes(other, KEY.public)
