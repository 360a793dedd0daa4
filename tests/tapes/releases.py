"""The releases of the projects in tests/data."""

import tarfile
from pathlib import Path

DATA = Path(__file__).parents[1] / "data"
PROJECTS = ("iniconfig", "itsdangerous", "tomli")


def unpack_releases(project: str, folder: Path) -> list[Path]:
    """Each release of a project, unpacked below the folder, oldest first."""
    for archive in sorted((DATA / project).glob("*.tar.gz")):
        unpack_release(archive, folder)
    unpacked = sorted(folder.iterdir())
    assert len(unpacked) == 5
    return unpacked


def unpack_release(archive: Path, folder: Path) -> None:
    """Unpack one release into a folder, below a folder of its own name."""
    with tarfile.open(archive) as tar:
        tar.extraction_filter = staticmethod(lambda member, _: member)  # `filter=` is of 3.11.4
        tar.extractall(folder)
