"""Which paths are recorded: never `.git`, heavy folders by name, then `.loomignore`."""

import re
from functools import cached_property
from typing import TYPE_CHECKING

from msgspec import Struct

from loom_audit.errors import InvalidArguments

if TYPE_CHECKING:
    from pathspec import GitIgnoreSpec

NEVER = frozenset({".git"})
HEAVY = frozenset(
    {
        "node_modules",
        ".venv",
        "venv",
        "__pycache__",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
        ".hypothesis",
        ".tox",
        ".nox",
        ".gradle",
        ".terraform",
        ".next",
        ".nuxt",
        ".parcel-cache",
        ".turbo",
    }
)
TEMPORARY = ".loom-audit-tmp-"
"""Prefix of our own temporary files beside what they replace; never recorded."""

IGNORE_FILE = ".loomignore"
MAX_FILE_BYTES = 256 * 1024 * 1024
_FOLDERS = 1 << 16
"""The number of folders of which a scope remembers whether they are in it."""


def _lines(ignore: str) -> list[str]:
    """Split as git does: other line breaks belong to a pattern or a comment."""
    return [line.removesuffix("\r") for line in ignore.split("\n")]


def bad_lines(ignore: str) -> list[str]:
    """Return the lines of a text in gitignore syntax that are not patterns."""
    lines = _lines(ignore)
    if not any(lines):
        return []
    from pathspec import GitIgnoreSpec

    bad = []
    for line in lines:
        try:
            GitIgnoreSpec.from_lines([line])
        except (ValueError, re.error):
            bad.append(line)
    return bad


def check_rules(ignore: str) -> None:
    """Raise InvalidArguments when a line of a text in gitignore syntax is not a pattern."""
    if bad := bad_lines(ignore):
        raise InvalidArguments(
            f"the rules have a line that is not a pattern: {bad[0][:100]}",
            hint=f"Correct it in {IGNORE_FILE}; what was accepted before holds until then.",
        )


class LeftOut(Struct, frozen=True):
    """A folder whose files are not recorded: why, and how many files and bytes it has."""

    path: str
    reason: str
    files: int
    size: int


class Scope(Struct, frozen=True, dict=True):
    """The rules by which a path is recorded, as a person last accepted them.

    `ignore` is text in gitignore syntax; a line that is not a pattern excludes nothing. Files over
    `max_file_bytes` are recorded by hash.
    """

    ignore: str = ""
    max_file_bytes: int = MAX_FILE_BYTES
    heavy: frozenset[str] = HEAVY

    @cached_property
    def _spec(self) -> "GitIgnoreSpec | None":
        bad = set(bad_lines(self.ignore))
        lines = [line for line in _lines(self.ignore) if line.strip() and line not in bad]
        if not lines:
            return None
        from pathspec import GitIgnoreSpec

        return GitIgnoreSpec.from_lines(lines)

    def excludes(self, path: str, *, directory: bool) -> str | None:
        """Return why the path itself is not recorded, or None; folders above do not count."""
        name = path.rsplit("/", 1)[-1]
        if name in NEVER:
            return "git"
        if name.startswith(TEMPORARY):
            return "temporary"
        if directory and name in self.heavy:
            return "heavy folder"
        if self._spec is not None:
            # patterns are single lines, and `$` would match before a newline: only a wildcard may
            plain = path.replace("\n", "\0")
            if self._spec.match_file(plain + "/" if directory else plain):
                return "ignored"
        return None

    def is_opaque(self, path: str) -> bool:
        """Return whether only name and identity are recorded of a folder here, or of `.git`.

        That is when the folder is left out and the folder above it is not.
        """
        above, _, name = path.rpartition("/")
        if name.startswith(TEMPORARY) or self.excludes(path, directory=True) is None:
            return False
        return not above or self.includes(above, directory=True)

    def holds(self, path: str, kind: str) -> bool:
        """Return whether an entry of this kind at the path is recorded."""
        if kind != "opaque":
            return self.includes(path, directory=kind == "directory")
        above = path.rpartition("/")[0]
        return not above or self.includes(above, directory=True)

    def includes(self, path: str, *, directory: bool = False) -> bool:
        """Return whether the path and all folders above it are in scope."""
        above = path.rpartition("/")[0]
        if above:
            inside = self._folders.get(above)
            if inside is None:
                if len(self._folders) >= _FOLDERS:
                    self._folders.clear()
                inside = self._folders[above] = self._includes_folder(above)
            if not inside:
                return False
        return self.excludes(path, directory=directory) is None

    def _includes_folder(self, path: str) -> bool:
        names = path.split("/")
        return all(
            self.excludes("/".join(names[:n]), directory=True) is None
            for n in range(1, len(names) + 1)
        )

    @cached_property
    def _folders(self) -> dict[str, bool]:
        """Whether folders with all above them are in scope, of those that were asked about."""
        return {}
