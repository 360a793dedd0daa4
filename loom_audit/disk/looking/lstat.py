"""The lstat(2) of paths beneath a root, with no link on the way."""

import os
from collections.abc import Iterator, Sequence
from itertools import groupby
from operator import itemgetter

from loom_audit.disk.access.paths import join, split, to_audit_error
from loom_audit.disk.access.root_directory import RootDirectory
from loom_audit.disk.looking.walk import GONE


def lstat(beneath: RootDirectory, path: str) -> os.stat_result | None:
    """The lstat(2) of a path; None when a folder on the way is absent or a link.

    OSError, FileNotFoundError where the folder is there and the name is not.
    """
    if not path:
        beneath.check()
        return None if beneath.is_deleted else os.fstat(beneath.fd)
    parent, name = split(path)
    if not parent:
        return os.stat(name, dir_fd=beneath.fd, follow_symlinks=False)
    try:
        folder = beneath.open_folder(parent, readable=False)
    except OSError as error:
        if error.errno in GONE:
            return None
        raise
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False)
    finally:
        os.close(folder)


def lstat_each(beneath: RootDirectory, paths: Sequence[str]) -> Iterator[os.stat_result | None]:
    """The lstat(2) of each path in turn, None for one that is absent.

    A folder is opened once for paths in it that follow each other. An error of the system comes as
    one of ours.
    """
    for parent, named in groupby(map(split, paths), key=itemgetter(0)):
        names = [name for _, name in named]
        try:
            folder = beneath.open_folder(parent, readable=False)
        except OSError as error:
            if error.errno not in GONE:
                raise to_audit_error(error, parent) from error
            yield from (None for _ in names)
            continue
        try:
            for name in names:
                try:
                    yield os.stat(name, dir_fd=folder, follow_symlinks=False)
                except FileNotFoundError:
                    yield None
                except OSError as error:
                    raise to_audit_error(error, join(parent, name)) from error
        finally:
            os.close(folder)
