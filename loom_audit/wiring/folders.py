"""Folders on disk: which may be under audit, which one a folder is, whether it can be watched."""

from loom_audit.disk.looking.inotify import most_watches
from loom_audit.disk.machine.root_identities import identity_of_folder
from loom_audit.disk.machine.roots import check_root, is_in_place, is_mount_point

__all__ = [
    "check_root",
    "identity_of_folder",
    "is_in_place",
    "is_mount_point",
    "most_watches",
]
