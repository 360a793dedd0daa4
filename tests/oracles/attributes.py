"""Access control lists and other attributes of real files, read and set without our own code."""

import os
import struct
from collections.abc import Mapping
from pathlib import Path

import pytest

ACL, DEFAULT = "system.posix_acl_access", "system.posix_acl_default"
TAGS = {"user": 0x01, "named": 0x02, "group": 0x04, "mask": 0x10, "other": 0x20}
SOMEBODY = 1234


def acl_bytes(owner: int, somebody: int, group: int, mask: int, other: int) -> bytes:
    """A list as acl(5) lays it out, with one named user."""
    entries = zip(TAGS.values(), (owner, somebody, group, mask, other), strict=True)
    packed = (
        struct.pack("<HHI", tag, bits, SOMEBODY if tag == TAGS["named"] else 0xFFFFFFFF)
        for tag, bits in entries
    )
    return struct.pack("<I", 2) + b"".join(packed)


def acl_entries(path: Path, name: str = ACL) -> dict[str, int] | None:
    """The permissions by entry, None without a list."""
    if name not in os.listxattr(path):
        return None
    entries = struct.iter_unpack("<HHI", os.getxattr(path, name)[4:])
    names = {tag: name for name, tag in TAGS.items()}
    return {names[tag]: bits for tag, bits, _ in entries}


def needs_acl(folder: Path) -> None:
    """Skip where the filesystem of a folder has no access control lists."""
    probe = folder / "probe"
    probe.touch()
    try:
        os.setxattr(probe, ACL, acl_bytes(6, 4, 4, 4, 0))
    except OSError as error:
        pytest.skip(f"no access control lists here: {error.strerror}")
    finally:
        probe.unlink()


def user_attributes(path: Path) -> Mapping[str, bytes]:
    """The `user.*` attributes of a file."""
    names = [name for name in os.listxattr(path) if name.startswith("user.")]
    return {name: os.getxattr(path, name) for name in names}


def needs_user_attributes(folder: Path) -> None:
    """Skip where the filesystem of a folder has no `user.*` attributes."""
    probe = folder / "probe"
    probe.touch()
    try:
        os.setxattr(probe, "user.probe", b"x")
    except OSError as error:
        pytest.skip(f"no attributes here: {error.strerror}")
    finally:
        probe.unlink()
