"""What of a person's own git configuration a confined git needs: their variables and files."""

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from msgspec import Struct

IDENTITY_VARIABLES = frozenset(
    f"GIT_{who}_{what}" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
)
KEPT_VARIABLES = (
    IDENTITY_VARIABLES
    | {"GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM"}
    | {"GIT_SSH", "GIT_SSH_COMMAND", "GIT_SSH_VARIANT"}
)
"""Variables of ours that git gets: who the person is, and how they reach other machines."""

_NAMED = frozenset({"core.excludesfile", "core.attributesfile", "commit.template"})


class Setting(Struct, frozen=True):
    """One setting as git lists it: its scope and its file, its key and its value."""

    scope: str
    origin: str
    key: str
    value: str

    @property
    def own(self) -> bool:
        """Whether the repository itself made the setting."""
        return self.scope in ("local", "worktree")


def settings_of(listing: bytes) -> Iterator[Setting]:
    """Yield each setting in what `git config --list --show-scope --show-origin -z` printed."""
    parts = listing.split(b"\0")
    for scope, origin, entry in zip(parts[::3], parts[1::3], parts[2::3], strict=False):
        key, _, value = entry.partition(b"\n")
        yield Setting(scope.decode(), os.fsdecode(origin), os.fsdecode(key), os.fsdecode(value))


def person_variables() -> dict[str, str]:
    """Return the variables by which a confined git finds and trusts the person's configuration."""
    names = (*sorted(KEPT_VARIABLES), "XDG_CONFIG_HOME", "SUDO_UID")
    ours = {name: os.environ[name] for name in names if name in os.environ}
    return {"GIT_CONFIG_NOSYSTEM": "0", **ours, "HOME": str(Path.home())}


def person_files(listed: Iterable[Setting]) -> tuple[str, ...]:
    """Return the files of the person's and the machine's configuration, and the files they name.

    Each is named by itself, not by its folder: credentials may lie beside it.
    """
    home = str(Path.home())
    own = os.environ.get("XDG_CONFIG_HOME") or f"{home}/.config"
    found = [f"{home}/.gitconfig", "/etc/gitconfig", "/etc/gitattributes"]
    found += [f"{own}/git/{name}" for name in ("config", "ignore", "attributes")]
    found += [os.environ.get(f"GIT_CONFIG_{which}", "") for which in ("GLOBAL", "SYSTEM")]
    for setting in listed:
        if setting.scope in ("global", "system"):
            found.append(setting.origin.removeprefix("file:"))
            if setting.key in _NAMED:
                found.append(re.sub("^~(?=/)", lambda _: home, setting.value))
    return tuple(dict.fromkeys(path for path in found if os.path.isabs(path)))
