"""Settings from LOOM_AUDIT_* and flags."""

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from platformdirs import user_data_path, user_state_path


@dataclass(frozen=True, slots=True)
class Settings:
    """Where things are kept.

    `home` is the data folder (database, large blobs, locks, change indexes), `heads` the folder
    of tree heads, which is elsewhere so that who replaces the store does not replace them too.
    """

    url: str
    home: Path
    heads: Path


def read_settings(url: str | None = None, environment: Mapping[str, str] | None = None) -> Settings:
    """LOOM_AUDIT_HOME and LOOM_AUDIT_STORE; an explicit `url` wins over both.

    A `url` without a scheme is taken as the path of a SQLite file.
    """
    given = os.environ if environment is None else environment
    named_home = given.get("LOOM_AUDIT_HOME")
    home = Path(named_home).expanduser() if named_home else user_data_path("loom-audit")
    heads = home / "heads" if named_home else user_state_path("loom-audit") / "heads"
    url = url or given.get("LOOM_AUDIT_STORE") or f"sqlite:///{home / 'audit.db'}"
    if "://" not in url:
        url = f"sqlite:///{Path(url).expanduser().absolute()}"
    # One folder a store: a log that is missing from it must not be looked for in another.
    name = hashlib.sha256(url.encode("utf-8", "surrogateescape")).hexdigest()[:16]
    return Settings(url, _folder(url, home), heads / name)


def _folder(url: str, home: Path) -> Path:
    """A SQLite store keeps its locks, indexes and large blobs beside itself."""
    if url.startswith("sqlite:///"):
        return Path(url.removeprefix("sqlite:///")).absolute().parent
    return home
