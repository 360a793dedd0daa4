"""The mirror of git's objects on disk, and what is known of it."""

import json
import os
from collections.abc import Sequence
from contextlib import suppress
from hashlib import sha256
from pathlib import Path

from loom_audit.disk.access import system
from loom_audit.disk.access.paths import audit_errors
from loom_audit.disk.access.root_directory import RootDirectory
from loom_audit.disk.access.system import closing_fd, put_file, write_all
from loom_audit.disk.machine.object_taking import FOLDERS, MirrorLimits, Take, Taken, made_folder
from loom_audit.ports import MirroredGit, MissingObjects
from loom_audit.ports.git_objects import LONG_ID, SHORT_ID


class DiskObjectMirror:
    """A `ports.ObjectMirror` in a folder of its own, which the first take makes."""

    def __init__(self, root: str, folder: Path, limits: MirrorLimits | None = None) -> None:
        self._root = root
        self._mirror = folder
        self._limits = limits or MirrorLimits()

    def take(self, folder: str, git: MirroredGit) -> Sequence[str]:
        """Copy what is new in `objects` of a git folder; in words what is not in the mirror."""
        with audit_errors(str(self._mirror)):
            known = self._known()
            before = json.dumps([known.stamps, known.copied, known.left_out])
            take = Take(self._mirror, known, self._limits, git)
            beneath = RootDirectory(self._root, system.probe())
            try:
                try:
                    objects = beneath.open_folder(f"{folder}/objects")
                except OSError as error:
                    return (f"git: {folder}/objects cannot be read: {error.strerror}",)
                with closing_fd(objects), take:
                    take.all_of(folder, objects)
            finally:
                beneath.close()
            known.left_out.pop(folder, None)
            if reasons := tuple(take.reasons(folder)):
                known.left_out[folder] = reasons
            # a cache, and written last: without it all is listed again
            stored = json.dumps([known.stamps, known.copied, known.left_out])
            if stored != before:
                put_file(self._mirror / "taken.json", stored.encode())
            return reasons

    def size(self) -> int:
        """The bytes that the mirror takes on disk."""
        return bytes_in(self._mirror)

    def left_out(self, folder: str = "") -> Sequence[str]:
        """What the last take of a git folder returned, or the last ones of all."""
        found = self._known().left_out
        return found.get(folder, ()) if folder else [one for some in found.values() for one in some]

    def folders(self) -> Sequence[str]:
        """The paths of the mirror's git folders that are there."""
        both = (self._mirror / name for name in FOLDERS)
        return [str(one) for one in both if (one / "HEAD").exists()]

    def folder(self, *, long_ids: bool) -> str:
        """The path of the mirror's git folder for ids of this length; StorageFailed."""
        with audit_errors(str(self._mirror)):
            return str(made_folder(self._mirror, long_ids=long_ids))

    def shallows(self) -> Sequence[bytes]:
        """The contents of `shallow` under which something was noted, first that of none."""
        with audit_errors(str(self._mirror)):
            return (b"", *(one.read_bytes() for one in sorted(self._mirror.glob("shallow-*"))))

    def whole(self, shallow: bytes = b"") -> Sequence[str]:
        """The ids of which all was seen in the mirror that can be reached from them."""
        with audit_errors(str(self._mirror)), suppress(FileNotFoundError):
            lines = self._noted("whole", shallow).read_text("ascii", "replace").split("\n")
            return [one for one in lines if len(one) in (SHORT_ID, LONG_ID)]
        return ()

    def missing(self, shallow: bytes | None = None) -> MissingObjects:
        """What was missing when something was noted last, under one `shallow` or under all."""
        if shallow is None:
            found = [self.missing(one) for one in self.shallows()]
            some = tuple(dict.fromkeys(id for one in found for id in one.some))
            more = sum(one.count - len(one.some) for one in found)
            return MissingObjects(len(some) + more, some)
        with audit_errors(str(self._mirror)), suppress(FileNotFoundError, ValueError):
            count, *ids = self._noted("missing", shallow).read_text("ascii").split()
            return MissingObjects(int(count), tuple(ids))
        return MissingObjects()

    def note(self, whole: Sequence[str], missing: MissingObjects, shallow: bytes = b"") -> None:
        """Append ids to the whole ones, after what is missing; a line that was cut off is ended."""
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        with audit_errors(str(self._mirror)):
            if shallow and not (known := self._noted("shallow", shallow)).exists():
                put_file(known, shallow, durable=True)
            if missing != self.missing(shallow):
                content = "\n".join((str(missing.count), *missing.some))
                put_file(self._noted("missing", shallow), content.encode("ascii"), durable=True)
            path = self._noted("whole", shallow)
            with closing_fd(os.open(path, flags, 0o600)) as file:
                # not made durable: what is not in it is followed again
                write_all(file, ("\n" + "\n".join(whole) + "\n").encode("ascii"))

    def _noted(self, name: str, shallow: bytes) -> Path:
        """The file of what is noted under a `shallow`."""
        return self._mirror / (f"{name}-{sha256(shallow).hexdigest()[:20]}" if shallow else name)

    def _known(self) -> Taken:
        with suppress(OSError, ValueError, TypeError, AttributeError):
            stamps, copied, left_out = json.loads((self._mirror / "taken.json").read_bytes())
            kept = {path: tuple(stamp) for path, stamp in stamps.items()}
            said = {path: tuple(reasons) for path, reasons in left_out.items()}
            return Taken(kept, int(copied), said)
        return Taken(copied=bytes_in(self._mirror))


def bytes_in(folder: Path) -> int:
    """The bytes that the files in a folder and below take on disk."""
    found = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with suppress(FileNotFoundError):
                found += os.lstat(os.path.join(path, name)).st_blocks * 512
    return found
