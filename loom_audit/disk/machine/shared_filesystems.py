"""Filesystems that other machines may write: a store there has no locks that hold for all."""

import os
from pathlib import Path

from loom_audit.disk.access.paths import audit_errors
from loom_audit.disk.access.system import MOUNTS
from loom_audit.errors import InvalidArguments

SHARED = frozenset(
    ("nfs", "nfs4", "9p", "virtiofs", "cifs", "smb3", "smb2", "smbfs", "afs", "ceph", "fuse.sshfs")
)

_DEVICE = 2
"""Which field of a line is the device (proc_pid_mountinfo(5))."""


def check_own_filesystem(folder: Path, mounts: Path = MOUNTS) -> None:
    """Raise InvalidArguments for a folder on a filesystem that other machines may write too."""
    with audit_errors(str(folder)):
        device = os.stat(folder).st_dev
        table = mounts.read_bytes() if mounts.exists() else b""
    kind = kind_in_table(table, f"{os.major(device)}:{os.minor(device)}".encode())
    if kind in SHARED:
        raise InvalidArguments(
            f"{folder} is on {kind}, which other machines may write too",
            hint="Keep the store on a disk of this machine: set LOOM_AUDIT_HOME.",
        )


def kind_in_table(table: bytes, device: bytes) -> str:
    """The kind of the filesystem of a device, as `8:1`, in a table like mountinfo; else ""."""
    for line in table.splitlines():
        before, _, after = line.partition(b" - ")
        fields = before.split(b" ")
        if len(fields) > _DEVICE and fields[_DEVICE] == device:
            return after.split(b" ")[0].decode("ascii", "replace")
    return ""
