"""Settings from the environment (`LOOM_AUDIT_*`) and from flags."""

import hashlib
import os
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from msgspec import Struct

from loom_audit.errors import AuditError, InvalidArguments, StorageFailed

if TYPE_CHECKING:
    from loom_audit.tools.approvals.policy import Policy
    from loom_audit.tools.calls.settings import ToolSettings

APPROVALS = "approvals.toml"
TOOLS = "tools.toml"
_SQLITE = "sqlite:///"

VERSION: str = import_module("loom_audit").__version__
"""The version of this release, as `loom_audit/__init__.py` says it."""


class Settings(Struct, frozen=True):
    """The places of a store and of what belongs to it.

    `home` is the data folder (database, large blobs, locks, change indexes), `heads` the folder
    of tree heads, which is elsewhere so that who replaces the store does not replace its heads too.
    `configuration` is the folder of `approvals.toml` and `tools.toml`.
    """

    url: str
    home: Path
    heads: Path
    configuration: Path

    @property
    def hooks(self) -> Path:
        """The folder of the hook client, the socket and what starts the warm process."""
        return self.home / "hooks"

    @property
    def keys(self) -> Path:
        """The folder of the key that signs the heads of this store, of which nothing else is."""
        return self.configuration / "keys" / self.heads.name

    @property
    def file(self) -> Path | None:
        """The file of a SQLite store, absolute; None for any other database."""
        if not self.url.startswith(_SQLITE):
            return None
        return Path(self.url.removeprefix(_SQLITE)).absolute()


def read_settings(
    url: str | os.PathLike[str] | None = None, environment: Mapping[str, str] | None = None
) -> Settings:
    """The settings of `LOOM_AUDIT_HOME` and `LOOM_AUDIT_STORE`; an explicit `url` wins over both.

    A `url` without a scheme is taken as the path of a SQLite file. InvalidArguments for a
    relative LOOM_AUDIT_HOME.
    """
    given = os.environ if environment is None else environment
    url = None if url is None else os.fspath(url)
    if named_home := given.get("LOOM_AUDIT_HOME"):
        home = Path(named_home).expanduser()
        if not home.is_absolute():  # each folder that a command is run in would have its own store
            raise InvalidArguments(
                f"LOOM_AUDIT_HOME is a relative path: {named_home}",
                hint="Name the folder from `/` or `~` on.",
            )
        heads, configuration = home / "heads", home / "config"
    else:
        home, heads, configuration = _own_folders()
    url = url or given.get("LOOM_AUDIT_STORE") or f"{_SQLITE}{home / 'audit.db'}"
    if "://" not in url:
        url = f"{_SQLITE}{Path(url).expanduser().absolute()}"
    # One folder a store: a log that is missing from it must not be looked for in another.
    name = hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return Settings(url, _folder(url, home), heads / name, configuration)


def _own_folders() -> tuple[Path, Path, Path]:
    from platformdirs import user_config_path, user_data_path, user_state_path

    name = "loom-audit"
    return user_data_path(name), user_state_path(name) / "heads", user_config_path(name)


def read_tool_settings(settings: Settings) -> "ToolSettings":
    """The settings in `tools.toml` of the configuration folder; InvalidArguments where wrong."""
    from loom_audit.tools.calls.settings import tool_settings

    return tool_settings(read_table(settings.configuration / TOOLS))


def read_approvals(settings: Settings) -> "Policy | None":
    """The rules in `approvals.toml` of the configuration folder, None when there is no such file.

    StorageFailed when the file cannot be read, InvalidArguments when its content is malformed.
    """
    file = settings.configuration / APPROVALS
    try:
        os.lstat(file)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise _unreadable(file, error) from error
    from loom_audit.tools.approvals.policy import read_policy

    # A link that leads nowhere counts neither as a file without rules nor as an absent one.
    return read_policy(read_table(file, needed=True))


def read_table(path: Path, *, needed: bool = False) -> Mapping[str, object]:
    """The content of a TOML file; empty when the file is absent and not `needed`.

    StorageFailed when the file cannot be read, InvalidArguments when it is not TOML.
    """
    try:
        text = path.read_text(encoding="utf-8")
        import tomllib

        return tomllib.loads(text)
    except (OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError) and not needed:
            return {}
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> AuditError:
    made = StorageFailed if isinstance(error, OSError) else InvalidArguments
    return made(f"{path} cannot be read: {error}", hint="Correct the file, or remove it.")


def _folder(url: str, home: Path) -> Path:
    """The data folder of a store: beside the file of a SQLite store, else the home."""
    if url.startswith(_SQLITE):
        return Path(url.removeprefix(_SQLITE)).absolute().parent
    return home
