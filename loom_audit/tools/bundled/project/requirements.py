"""Requirements of Python packages as texts: what is installed by name, and what a project needs."""

import re
import tomllib
from collections.abc import Collection, Iterable

from msgspec import Struct

from loom_audit.errors import InvalidArguments

_VERSION = r"(?:===|~=|==|!=|<=|>=|<|>)\s*[A-Za-z0-9.*+!_-]+"
_NAMED = (
    r"[A-Za-z0-9](?:[A-Za-z0-9._-]*[A-Za-z0-9])?"
    r"\s*(?:\[[A-Za-z0-9._, -]+\])?"
    rf"\s*(?:{_VERSION}(?:\s*,\s*{_VERSION})*)?"
)
NAMED = re.compile(_NAMED)
"""A requirement by name (PEP 508), without addresses and markers."""

_WITH_MARKER = re.compile(rf"({_NAMED})\s*(;[A-Za-z0-9_.'\"()<>=!~, *+-]+)?")
_OWN = re.compile(
    r"(?P<editable>(?:-e|--editable)(?:\s+|=))?\.(?:\[(?P<extras>[A-Za-z0-9._, -]+)\])?"
)
_ARCHIVE = re.compile(r"\.(?:whl|zip|tar|tgz|tbz|txz|tlz|tar\.\w+)$", re.IGNORECASE)
_EXTRA = re.compile(r"extra\s*==\s*(['\"])([^'\"]*)\1")
_MOST = 2_000
DEFAULT = ("setuptools>=64", "wheel")
LEGACY = "setuptools.build_meta:__legacy__"
"""What builds a project that does not say (PEP 517)."""


class BuildSystem(Struct, frozen=True):
    """What builds a project: what must be there, the backend, and where in the project it lies."""

    requires: tuple[str, ...] = DEFAULT
    backend: str = LEGACY
    path: tuple[str, ...] = ()


class OwnProject(Struct, frozen=True):
    """The project itself among what shall be installed, with extras, perhaps as it lies there."""

    extras: tuple[str, ...] = ()
    editable: bool = False


def is_named(text: str) -> bool:
    """Return whether a text names a package, perhaps with extras and versions.

    The name of an archive does not: pip would take a file of the workspace for it.
    """
    return NAMED.fullmatch(text) is not None and not _is_archive(text) and len(text) <= 300


def own_project(package: str) -> OwnProject | None:
    """Return the workspace's own project when `.` or `-e .[extra]` names it, else None."""
    found = _OWN.fullmatch(package)
    if found is None:
        return None
    extras = (normal_name(extra.strip()) for extra in (found["extras"] or "").split(","))
    return OwnProject(tuple(extra for extra in extras if extra), bool(found["editable"]))


def normal_name(name: str) -> str:
    """Return a name as indexes compare names (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


def build_system(pyproject: str) -> BuildSystem:
    """Return what builds a project, by its pyproject.toml. InvalidArguments for a malformed one."""
    try:
        table = tomllib.loads(pyproject).get("build-system")
    except tomllib.TOMLDecodeError as error:
        raise InvalidArguments(f"pyproject.toml cannot be read: {error}") from error
    if not isinstance(table, dict):
        return BuildSystem()
    for key in ("requires", "backend-path"):
        given = table.get(key, [])
        if not isinstance(given, list) or not all(isinstance(one, str) for one in given):
            raise InvalidArguments(f"pyproject.toml: build-system.{key} is not a list of texts")
    return BuildSystem(
        tuple(by_name(table.get("requires", DEFAULT), "to build it")),
        str(table.get("build-backend", LEGACY)),
        tuple(table.get("backend-path", ())),
    )


def needed(metadata: str, extras: Collection[str]) -> list[str]:
    """Return what a package with these extras needs, by its METADATA.

    InvalidArguments for an extra it has not, and for what it would have from an address.
    """
    asked: list[str] = []
    known: list[str] = []
    for line in metadata.partition("\n\n")[0].splitlines():
        field, _, value = line.partition(":")
        if field == "Requires-Dist":
            asked.append(_EXTRA.sub(lambda found: _answer(found[2], extras), value.strip()))
        elif field == "Provides-Extra":
            known.append(normal_name(value.strip()))
    if unknown := sorted({*extras} - {*known}):
        raise InvalidArguments(
            f"the project has no extra {unknown[0]:.100}",
            hint=f"It has: {', '.join(sorted(known)) or 'none'}.",
        )
    return by_name(asked, "")


def _is_archive(text: str) -> bool:
    return _ARCHIVE.search(re.sub(r"\s*\[.*\]", "", text).strip()) is not None


def _answer(extra: str, extras: Collection[str]) -> str:
    """What of a marker pip leaves to its caller, as a marker that is true or false anywhere."""
    return f"python_version {'>=' if normal_name(extra) in extras else '<'} '0'"


def by_name(asked: Iterable[str], why: str) -> list[str]:
    """Return requirements as pip takes them. InvalidArguments for one that is none by name."""
    taken: list[str] = []
    for number, text in enumerate(asked):
        plain = re.sub(r"\(([^()]*)\)(?=\s*(;|$))", r"\1", text, count=1).strip()
        found = _WITH_MARKER.fullmatch(plain) if len(plain) <= 1_000 else None
        if found is None or _is_archive(found[1]) or number >= _MOST:
            raise InvalidArguments(
                f"the project needs {text!r:.200} {why}".rstrip() + ", which is not taken by name",
                hint="Only wheels of an index are installed; a person can install the rest.",
            )
        taken.append(plain)
    return taken
