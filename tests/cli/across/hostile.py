"""Texts that would steer a terminal or mislead a reader if they were shown as they are."""

import unicodedata

from hypothesis import strategies as st

CORPUS = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;owned\x07",
    "\x1b]8;;http://evil.example\x07click\x1b]8;;\x07",
    "\x1bP+q544e\x1b\\",
    "\x9b2J",
    "a\rb",
    "a\bb",
    "line\nbreak",
    "tab\there",
    "\u202egnp.exe",
    "\u2066hidden\u2069",
    "zero\u200bwidth",
    "\ufeffbom",
    "line\u2028separator",
    "\x7f",
    "\udcff\udc80",
    "tag\U000e0041\U000e0042",
    "bell\x07",
)

texts = st.one_of(
    st.sampled_from(CORPUS),
    st.text(alphabet=st.characters(), max_size=30),
    st.lists(
        st.sampled_from(
            ["\x1b", "\u202e", "\u2066", "\x9b", "\r", "\x08", "[31m", "a", "/", "\udcff"]
        ),
        max_size=12,
    ).map("".join),
)

BIDI = {*"\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"}


def dangerous(text: str, *, allowed: str = "\n") -> set[str]:
    """The characters of a printed text that could steer a terminal or reorder a line."""
    return {
        char
        for char in text
        if char not in allowed
        and (unicodedata.category(char) in ("Cc", "Cf", "Cs", "Zl", "Zp") or char in BIDI)
    }
