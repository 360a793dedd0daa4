"""Whether a filesystem tells names apart that differ only in case."""

import os

from loom_audit.disk.access.root_directory import OpenFolders, RootDirectory


def folds_case(beneath: RootDirectory) -> bool:
    """Whether names that differ only in case are one file in a root; leaves no trace.

    A name that is there is asked for in another case; a folder is made only when there is no such
    name. Case folding may be of one directory alone (ext4: chattr(1), +F): it is the root's here.
    """
    descriptor = beneath.fd
    with os.scandir(descriptor) as entries:
        names = {entry.name for entry in entries}
    for name in names:
        other = name.swapcase()
        if other != name and other not in names:
            return _is_there(other, descriptor)
    before = os.fstat(descriptor)
    name = OpenFolders(beneath).fresh_name()
    try:
        os.mkdir(name, 0o700, dir_fd=descriptor)
    except OSError:
        return False
    try:
        return _is_there(name.swapcase(), descriptor)
    finally:
        os.rmdir(name, dir_fd=descriptor)
        os.utime(descriptor, ns=(before.st_atime_ns, before.st_mtime_ns))


def _is_there(name: str, descriptor: int) -> bool:
    try:
        os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    except OSError:
        return False
    return True
