"""Logs of imported transcripts, which are of no folder: their root only names one."""

from loom_audit.errors import NoWorkspace

IMPORTED = "import:"
"""How the root of such a log begins, before the folder that the client worked in."""


def is_imported(root: str) -> bool:
    """Whether the root of a log names a folder that was imported, and is none that we look at."""
    return root.startswith(IMPORTED)


def named_folder(root: str) -> str:
    """The folder that a root names, which may be on another machine or gone."""
    return root.removeprefix(IMPORTED)


def only_read(root: str) -> NoWorkspace:
    """The error for whoever would write an imported log, or look at the folder that it names."""
    return NoWorkspace(
        f"{root} is a log that was imported: it can only be read",
        hint="`log`, `show`, `diff`, `cat`, `ls`, `history` and `replay POINT --to DIR` read it. "
        "To record and take back, put the folder itself under audit with `loom-audit init`.",
        details={"root": root},
    )
