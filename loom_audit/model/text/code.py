"""What can be searched for in a text file: definitions by name, and lines by words.

Definitions are found line by line with the rules below, not by parsing: files that do not
parse are found too, and one that is written unusually may be missed.
"""

import re
from collections.abc import Iterator
from typing import Literal

from msgspec import Struct

MAX_BYTES = 1024 * 1024
"""The number of bytes over which a content is not searched."""

CHUNK_LINES = 40
MAX_LINE = 2_000
MAX_DEFINING = 300
"""The number of characters over which a line defines nothing: the rules take its square in time."""
MAX_DEFINITIONS = 20_000

SymbolKind = Literal[
    "function", "class", "method", "constant", "type", "module", "interface", "enum", "section"
]


class Definition(Struct, frozen=True):
    """A name and where it is defined: line from 1, and the text of that line."""

    name: str
    kind: SymbolKind
    line: int
    text: str


class Chunk(Struct, frozen=True):
    """Some lines of a file, the first from 1; `words` are the parts of its camelCase names."""

    first: int
    text: str
    words: str


_SUFFIXES = {
    "python": "py pyi",
    "javascript": "js jsx mjs cjs ts tsx mts cts vue svelte",
    "go": "go",
    "rust": "rs",
    "java": "java kt kts scala cs swift dart groovy",
    "c": "c h cc cpp cxx hh hpp hxx m mm cu",
    "ruby": "rb",
    "php": "php",
    "shell": "sh bash zsh",
    "lua": "lua",
    "sql": "sql",
    "markdown": "md markdown",
}
_LANGUAGES = {suffix: name for name, all_ in _SUFFIXES.items() for suffix in all_.split()}

_JAVA_MODIFIERS = (
    r"(?:(?:public|private|protected|internal|static|final|abstract|open|override|sealed|data"
    r"|suspend|async|virtual|partial|inline|case|fileprivate|mutating|export)\s+)*"
)
_RULES: dict[str, list[tuple[SymbolKind, str]]] = {
    "python": [
        ("method", r"[ \t]+(?:async +)?def +(\w+)"),
        ("function", r"(?:async +)?def +(\w+)"),
        ("class", r"[ \t]*class +(\w+)"),
        ("constant", r"([A-Z][A-Z0-9_]+) *(?::[^=]+)?=[^=]"),
    ],
    "javascript": [
        ("function", r"\s*(?:export +)?(?:default +)?(?:async +)?function *\*? *([\w$]+)"),
        ("class", r"\s*(?:export +)?(?:default +)?(?:abstract +)?class +([\w$]+)"),
        ("interface", r"\s*(?:export +)?(?:declare +)?interface +([\w$]+)"),
        ("type", r"\s*(?:export +)?(?:declare +)?type +([\w$]+)(?:<[^=]*)? *="),
        ("enum", r"\s*(?:export +)?(?:declare +)?(?:const +)?enum +([\w$]+)"),
        (
            "function",
            r"\s*(?:export +)?(?:const|let|var) +([\w$]+)[^=]*= *(?:async *)?"
            r"(?:function\b|\([^)]*\)[^=]*=>|[\w$]+ *=>)",
        ),
        ("constant", r"(?:export +)?const +([\w$]+)[^=]*="),
        (
            "method",
            r"\s+(?:(?:static|async|get|set|public|private|protected|readonly) +)*"
            r"(?!if\b|for\b|while\b|switch\b|catch\b|return\b|function\b)"
            r"([\w$]+) *\([^;]*\)[^;=]*\{\s*$",
        ),
    ],
    "go": [
        ("method", r"func +\([^)]*\) *(\w+)"),
        ("function", r"func +(\w+)"),
        ("interface", r"type +(\w+) +interface\b"),
        ("type", r"type +(\w+)"),
        ("constant", r"const +(\w+)"),
        ("module", r"package +(\w+)"),
    ],
    "rust": [
        (
            "function",
            r"\s*(?:pub(?:\([^)]*\))? +)?(?:(?:const|async|unsafe|extern(?: *\"[^\"]*\")?)"
            r" +)*fn +(\w+)",
        ),
        ("class", r"\s*(?:pub(?:\([^)]*\))? +)?(?:struct|union) +(\w+)"),
        ("enum", r"\s*(?:pub(?:\([^)]*\))? +)?enum +(\w+)"),
        ("interface", r"\s*(?:pub(?:\([^)]*\))? +)?(?:unsafe +)?trait +(\w+)"),
        ("type", r"\s*(?:pub(?:\([^)]*\))? +)?type +(\w+)"),
        ("module", r"\s*(?:pub(?:\([^)]*\))? +)?mod +(\w+)"),
        ("constant", r"\s*(?:pub(?:\([^)]*\))? +)?(?:const|static(?: +mut)?) +(\w+) *:"),
        ("function", r"\s*macro_rules! +(\w+)"),
    ],
    "java": [
        ("class", rf"\s*{_JAVA_MODIFIERS}(?:class|record|struct|object|actor|mixin) +(\w+)"),
        ("interface", rf"\s*{_JAVA_MODIFIERS}(?:@?interface|protocol|trait) +(\w+)"),
        ("enum", rf"\s*{_JAVA_MODIFIERS}enum +(?:class +)?(\w+)"),
        ("function", rf"\s*{_JAVA_MODIFIERS}(?:fun|func|def) +(?:<[^>]*> *)?(?:\w+\.)?(\w+)"),
        (
            "method",
            r"\s+(?:(?:public|private|protected|internal|static|final|abstract|override"
            r"|virtual|synchronized|async) +)+[\w<>\[\],.?]+(?:, [\w<>\[\],.?]+)* +"
            r"(\w+) *\(",
        ),
    ],
    "c": [
        (
            "class",
            r"\s*(?:template *<[^>]*> *)?(?:typedef +)?(?:class|struct|union) +(\w+)"
            r"[^;()]*(?:\{|$)",
        ),
        ("enum", r"\s*(?:typedef +)?enum +(?:class +)?(\w+)"),
        ("module", r"\s*namespace +(\w+)"),
        ("constant", r"# *define +(\w+)"),
        (
            "function",
            r"(?!return\b|else\b|typedef\b|if\b|for\b|while\b|switch\b)"
            r"(?=[A-Za-z_])(?:[\w:<>,&*]+[ \t]+)+[*&]*((?:\w+::)*~?\w+) *\([^;]*$",
        ),
    ],
    "ruby": [
        ("method", r"\s*def +(?:self\.)?([\w?!=]+)"),
        ("class", r"\s*class +([\w:]+)"),
        ("module", r"\s*module +([\w:]+)"),
    ],
    "php": [
        (
            "function",
            r"\s*(?:(?:public|private|protected|static|final|abstract) +)*"
            r"function +&?(\w+)",
        ),
        ("class", r"\s*(?:(?:final|abstract|readonly) +)*class +(\w+)"),
        ("interface", r"\s*(?:interface|trait) +(\w+)"),
        ("enum", r"\s*enum +(\w+)"),
    ],
    "shell": [
        ("function", r"\s*(?:function +)?([\w-]+) *\(\)"),
        ("function", r"\s*function +([\w-]+)"),
    ],
    "lua": [("function", r"\s*(?:local +)?function +([\w.:]+)")],
    "sql": [
        (
            "type",
            r"\s*(?i:create) +(?:(?i:or +replace|temp|temporary|unique|materialized) +)*"
            r"(?i:table|view|index|trigger|function|procedure|type) +"
            r"(?:(?i:if +not +exists) +)?[\"`\[]?([\w.]+)",
        )
    ],
    "markdown": [("section", r"#{1,6} +(.+?) *#*$")],
}
_COMPILED = {
    language: [(kind, re.compile(rule)) for kind, rule in rules]
    for language, rules in _RULES.items()
}
_PYTHON_TEXT = re.compile(r'"""(?:[^\\]|\\.)*?"""|\'\'\'(?:[^\\]|\\.)*?\'\'\'', re.DOTALL)
_CAMEL = re.compile(r"\b\w*[a-z0-9][A-Z]\w*")
_SUBWORDS = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+")


def language_of(path: str) -> str:
    """Return the language by the suffix of the name; empty when definitions in it are not known."""
    return _LANGUAGES.get(path.rpartition("/")[2].rpartition(".")[2].lower(), "")


def text_of(content: bytes) -> str | None:
    """Return a content as text; None when over 1 MiB, or binary (a NUL in its first 8 KiB)."""
    if len(content) > MAX_BYTES or b"\0" in content[:8192]:
        return None
    return content.decode("utf-8", "replace")


def definitions(text: str, language: str) -> Iterator[Definition]:
    """Yield the definitions in a text, in order of lines; at most one of each line."""
    rules = _COMPILED.get(language, [])
    if not rules:
        return
    shown = text.split("\n")
    if language == "python":
        text = _PYTHON_TEXT.sub(lambda found: "\n" * found[0].count("\n"), text)
    count = 0
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) > MAX_DEFINING or not line or line.isspace():
            continue
        for kind, rule in rules:
            if found := rule.match(line):
                yield Definition(found[1][:200], kind, number, shown[number - 1].strip()[:300])
                count += 1
                break
        if count == MAX_DEFINITIONS:
            return


def chunks(text: str) -> Iterator[Chunk]:
    """Yield a text in pieces of `CHUNK_LINES` lines, without blank pieces."""
    lines = text.split("\n")
    for first in range(0, len(lines), CHUNK_LINES):
        piece = "\n".join(line[:MAX_LINE] for line in lines[first : first + CHUNK_LINES])
        if piece.strip():
            names = sorted({*_CAMEL.findall(piece)})
            parts = " ".join(" ".join(_SUBWORDS.findall(name)) for name in names)
            yield Chunk(first + 1, piece, parts)
