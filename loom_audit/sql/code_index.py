"""The code index as one SQLite file with FTS5, beside the change index and never in the store."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from loom_audit.model.files import BlobId
from loom_audit.ports import FoundCode, ReadCode
from loom_audit.sql.cache_file import CacheFile
from loom_audit.sql.ground.packing import pack_path, unpack_path

_VERSION = 1
_LEAST = 3
"""Letters of the words that a name holds at least, where some of the words suffice."""
_TABLES = """
CREATE TABLE head (seq INTEGER NOT NULL);
CREATE TABLE file (path BLOB PRIMARY KEY, blob TEXT NOT NULL, language TEXT NOT NULL)
    WITHOUT ROWID;
CREATE INDEX file_content ON file (blob, language);
CREATE TABLE content (id INTEGER PRIMARY KEY, blob TEXT NOT NULL, language TEXT NOT NULL,
    UNIQUE (blob, language));
CREATE TABLE symbol (content INTEGER NOT NULL, name TEXT NOT NULL, kind TEXT NOT NULL,
    line INTEGER NOT NULL, text TEXT NOT NULL);
CREATE INDEX symbol_content ON symbol (content);
CREATE TABLE chunk (id INTEGER PRIMARY KEY, content INTEGER NOT NULL, first INTEGER NOT NULL);
CREATE INDEX chunk_content ON chunk (content);
CREATE VIRTUAL TABLE words USING fts5 (text, parts, tokenize = 'unicode61');
INSERT INTO head VALUES (0)
"""
_UNINDEXED = """
FROM (SELECT DISTINCT blob, language FROM file) AS listed
WHERE NOT EXISTS (SELECT 1 FROM content
    WHERE content.blob = listed.blob AND content.language = listed.language)
"""
_STALE = """
SELECT id FROM content WHERE NOT EXISTS (SELECT 1 FROM file
    WHERE file.blob = content.blob AND file.language = content.language)
"""
_SYMBOLS = """
SELECT file.path, symbol.line, symbol.kind, symbol.name, symbol.text FROM symbol
JOIN content ON content.id = symbol.content
JOIN file ON file.blob = content.blob AND file.language = content.language
WHERE {holds} >= :least AND file.path >= :low AND file.path < :high
ORDER BY {holds} DESC, lower(symbol.name) <> :whole, instr(lower(symbol.name), :whole) <> 1,
    length(symbol.name), file.path, symbol.line
LIMIT :limit
"""
_TEXT = """
SELECT file.path, chunk.first, found.text FROM
    (SELECT rowid, text, bm25(words) AS score FROM words WHERE words MATCH :wanted) AS found
JOIN chunk ON chunk.id = found.rowid JOIN content ON content.id = chunk.content
JOIN file ON file.blob = content.blob AND file.language = content.language
WHERE file.path >= :low AND file.path < :high
ORDER BY found.score, file.path, chunk.first
LIMIT :limit
"""


class SqlCodeIndex:
    """A `ports.CodeIndex` in one file. Anything else in the file is taken for an empty index."""

    def __init__(self, path: str | Path) -> None:
        self._file = CacheFile(Path(path), _TABLES, _VERSION)

    def head(self) -> int:
        """The seq that the listing is of; 0 for a new file."""
        return self._file.do(lambda db: int(db.execute("SELECT seq FROM head").fetchone()[0]))

    def update_listing(
        self, changes: Mapping[str, BlobId | None], *, after: int, head: int
    ) -> None:
        """Change the listing, and forget contents that no path has any more, as one transaction."""

        def step(db: Any) -> None:
            if after == 0:
                db.execute("DELETE FROM file")
            elif db.execute("SELECT seq FROM head").fetchone()[0] != after:
                return
            self._put(db, changes, head)

        self._file.do(step)

    def _put(self, db: Any, changes: Mapping[str, BlobId | None], head: int) -> None:
        from loom_audit.model.text.code import language_of

        for path, blob in changes.items():
            if blob is None:
                db.execute("DELETE FROM file WHERE path = ?", (pack_path(path),))
            else:
                row = (pack_path(path), str(blob), language_of(path))
                db.execute("INSERT OR REPLACE INTO file VALUES (?, ?, ?)", row)
        db.execute("UPDATE head SET seq = ?", (head,))
        for (content,) in db.execute(_STALE).fetchall():
            db.execute("DELETE FROM symbol WHERE content = ?", (content,))
            db.execute(
                "DELETE FROM words WHERE rowid IN (SELECT id FROM chunk WHERE content = ?)",
                (content,),
            )
            db.execute("DELETE FROM chunk WHERE content = ?", (content,))
            db.execute("DELETE FROM content WHERE id = ?", (content,))

    def unindexed(self, limit: int) -> Sequence[tuple[BlobId, str]]:
        """The listed contents without a row, with their languages; at most `limit`."""
        query = f"SELECT blob, language {_UNINDEXED} ORDER BY blob, language LIMIT ?"
        rows = self._file.do(lambda db: db.execute(query, (limit,)).fetchall())
        return [(BlobId(blob), language) for blob, language in rows]

    def count_unindexed(self) -> int:
        """How many listed contents have no row."""
        query = f"SELECT count(*) {_UNINDEXED}"
        return self._file.do(lambda db: int(db.execute(query).fetchone()[0]))

    def add_contents(self, contents: Sequence[ReadCode]) -> None:
        """Add definitions and pieces of text of contents, as one transaction."""

        def step(db: Any) -> None:
            for content in contents:
                _learn(db, content)

        self._file.do(step)

    def symbols(
        self, words: Sequence[str], below: str, limit: int, *, some: bool = False
    ) -> Sequence[FoundCode]:
        """The definitions whose names hold all the words, or `some`, in any case of letters.

        A word counts by its length: short ones are in many names.
        """
        lowered = [word.lower() for word in words]
        weights = [len(word) for word in lowered]
        each = (
            f"{weight} * (instr(lower(symbol.name), :word{n}) > 0)"
            for n, weight in enumerate(weights)
        )
        holds = f"({' + '.join(each)})"
        values: dict[str, Any] = {f"word{n}": word for n, word in enumerate(lowered)}
        least = min(_LEAST, max(weights)) if some else sum(weights)
        values |= {"whole": " ".join(lowered), "least": least, "limit": limit, **_range(below)}
        rows = self._file.do(lambda db: db.execute(_SYMBOLS.format(holds=holds), values).fetchall())
        return [FoundCode(unpack_path(path), *rest) for path, *rest in rows]

    def text(
        self, words: Sequence[str], below: str, limit: int, *, some: bool = False
    ) -> Sequence[FoundCode]:
        """The pieces that hold all the words, or `some`, by the rank of SQLite's FTS5."""
        wanted = (" OR " if some else " ").join(f'"{word}"' for word in words) + "*"
        values = {"wanted": wanted, "limit": limit, **_range(below)}
        rows = self._file.do(lambda db: db.execute(_TEXT, values).fetchall())
        found = []
        for path, first, text in rows:
            line, snippet = _best_line(text, words)
            found.append(FoundCode(unpack_path(path), first + line, "text", "", snippet))
        return found


def _learn(db: Any, content: ReadCode) -> None:
    added = db.execute(
        "INSERT OR IGNORE INTO content (blob, language) VALUES (?, ?) RETURNING id",
        (str(content.blob), content.language),
    ).fetchone()
    if added is None:
        return  # another process was faster
    db.executemany(
        "INSERT INTO symbol VALUES (?, ?, ?, ?, ?)",
        [(added[0], d.name, d.kind, d.line, d.text) for d in content.definitions],
    )
    for chunk in content.chunks:
        [place] = db.execute(
            "INSERT INTO chunk (content, first) VALUES (?, ?) RETURNING id",
            (added[0], chunk.first),
        ).fetchone()
        db.execute(
            "INSERT INTO words (rowid, text, parts) VALUES (?, ?, ?)",
            (place, chunk.text, chunk.words),
        )


def _range(below: str) -> dict[str, bytes]:
    """Bounds of the paths in a directory; of all for an empty name."""
    low = pack_path(below) + b"/" if below else b""
    return {"low": low, "high": low[:-1] + b"0" if below else b"\xff\xff"}


def _best_line(text: str, words: Sequence[str]) -> tuple[int, str]:
    """The line that holds most of the words, as its number from 0 and its text."""
    parts = [part for word in words for part in re.split("_+", word.lower()) if part]
    lines = text.split("\n")
    counts = [sum(part in line.lower() for part in parts) for line in lines]
    best = counts.index(max(counts))
    return best, lines[best].strip()[:300]
