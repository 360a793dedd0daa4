"""Where templates and static files are: beside the package in a checkout, inside it in a wheel."""

import hashlib
from pathlib import Path


def assets(name: str) -> Path:
    """The folder `templates` or `static`, found from where this module lies."""
    package = Path(__file__).resolve().parent.parent
    checkout = package.parent / name
    packed = package / "_assets" / name
    return packed if packed.is_dir() else checkout


def fingerprints(folder: Path) -> dict[str, str]:
    """File name → first 12 hex digits of its SHA-256, for addresses that may be cached for ever."""
    return {
        file.name: hashlib.sha256(file.read_bytes()).hexdigest()[:12]
        for file in folder.iterdir()
        if file.is_file()
    }
