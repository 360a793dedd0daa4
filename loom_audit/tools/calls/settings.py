"""What a person has set for the tools."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from msgspec import Struct

from loom_audit.errors import InvalidArguments
from loom_audit.ports import Confinement, Limits

NAME = "tools.toml"
MIB = 1024 * 1024
LIMITS = ("cpu_seconds", "memory_mib", "processes", "file_mib")
CONFINEMENTS: tuple[Confinement, ...] = ("required", "preferred", "off")
LISTS = ("readable", "allowed_hosts", "private_hosts", "build_packages")

GitIdentity = Literal["person", "none"]


class ToolSettings(Struct, frozen=True):
    """The keys of `tools.toml`; nothing set is the careful choice.

    `confinement` replaces every tool's own when given; `readable` are further paths a confined
    command may read. `network` gives confined commands the network. `cpu_seconds`, `memory_mib`,
    `processes` and `file_mib` limit each process of one; 0 means no limit. `allowed_hosts` are
    fetched from without asking and `private_hosts` may have addresses that are not public (`*.`
    in front for all below a name). `proxy_url` is where `loom-audit proxy` listens. With
    `auto_commit` a session's batches end with a git commit of what they changed. `git_identity`
    says in whose name confined commands commit, and `build_packages` names the packages of Python
    that may be built where there is no wheel of them.
    """

    confinement: Confinement | None = None
    network: bool = False
    readable: tuple[str, ...] = ()
    cpu_seconds: int = 0
    memory_mib: int = 16_384
    processes: int = 4_096
    file_mib: int = 16_384
    allowed_hosts: tuple[str, ...] = ()
    private_hosts: tuple[str, ...] = ()
    proxy_url: str = ""
    auto_commit: bool = False
    git_identity: GitIdentity = "person"
    build_packages: tuple[str, ...] = ()

    @property
    def limits(self) -> Limits:
        """The resources that each process of a confined command may use."""
        return Limits(
            cpu=self.cpu_seconds or None,
            memory=self.memory_mib * MIB or None,
            processes=self.processes or None,
            file=self.file_mib * MIB or None,
        )


def tool_settings(table: Mapping[str, Any]) -> ToolSettings:
    """Return the settings that a parsed `tools.toml` makes.

    InvalidArguments names the key and what it must be.
    """
    known = set(ToolSettings.__struct_fields__)
    for key, value in table.items():
        if key not in known:
            raise _invalid(key, f"is not known; known are {', '.join(sorted(known))}")
        if key == "confinement" and value not in CONFINEMENTS:
            raise _invalid(key, f"must be one of {', '.join(CONFINEMENTS)}")
        if key == "git_identity" and value not in get_args(GitIdentity):
            raise _invalid(key, f"must be one of {', '.join(get_args(GitIdentity))}")
        if key in ("network", "auto_commit") and not isinstance(value, bool):
            raise _invalid(key, "must be true or false")
        if key == "proxy_url" and not _is_address(value):
            raise _invalid(key, "must be an address that begins with http:// or https://")
        if key in LIMITS and not (type(value) is int and value >= 0):
            raise _invalid(key, "must be a whole number from 0; 0 means no limit")
        if key in LISTS and not _is_list_of_texts(value):
            raise _invalid(key, "must be a list of texts")
    values: dict[str, Any] = {
        key: tuple(value) if isinstance(value, list) else value for key, value in table.items()
    }
    if "readable" in values:
        values["readable"] = tuple(_absolute_path(path) for path in values["readable"])
    return ToolSettings(**values)


def _absolute_path(path: str) -> str:
    found = Path(path).expanduser()
    if not found.is_absolute():
        raise _invalid("readable", f"names {path}, which is not absolute")
    return str(found)


def _is_address(value: Any) -> bool:
    """Whether it is the address of a server, or empty for none."""
    return isinstance(value, str) and (
        not value
        or re.fullmatch(r"https?://[^\s/?#]+(/[^\s?#]*)?", value, re.IGNORECASE) is not None
    )


def _is_list_of_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(item, str) and item for item in value)


def _invalid(key: str, flaw: str) -> InvalidArguments:
    return InvalidArguments(
        f"{NAME}: {key} {flaw}",
        hint=f"Correct {NAME}, or remove the key.",
        details={"key": key},
    )
