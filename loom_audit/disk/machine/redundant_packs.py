"""Removes packs of a mirror of which a newer one has every object, as there are after a repack."""

from collections.abc import Set
from contextlib import ExitStack
from pathlib import Path

from loom_audit.disk.access import system
from loom_audit.disk.machine.own_packs import PackIndex, new_hash

_PIECE = 1 << 20


def remove_redundant(folder: Path, present: Set[str], *, long_ids: bool) -> int:
    """Remove each pack of a mirror of which a newer one has all objects; the newer one is hashed
    first. Of those that are in the repository, `present`, none goes: it would be copied again.

    Returns the bytes that became free. OSError.
    """
    packs = {one.stem: one for one in folder.glob("*.idx")}
    freed = sum(_remove(one) for one in folder.glob("*.pack") if one.stem not in packs)
    if present >= packs.keys():
        return freed
    size = new_hash(long_ids=long_ids).digest_size
    ordered = sorted(packs.values(), key=lambda one: one.stat().st_mtime_ns)
    hashed: dict[Path, bool] = {}
    for n, old in enumerate(ordered):
        if old.stem in present:
            continue
        with ExitStack() as opened:
            index = opened.enter_context(PackIndex(old, size))
            for newer in reversed(ordered[n + 1 :]):
                with PackIndex(newer, size) as other:
                    within = index.is_within(other)
                if within and newer not in hashed:
                    hashed[newer] = _is_whole(newer, size, long_ids=long_ids)
                if within and hashed[newer]:
                    freed += _remove(old)
                    system.sync_folder(folder)  # an index alone would say that the pack is there
                    freed += _remove(old.with_suffix(".pack"))
                    break
    return freed


def _remove(path: Path) -> int:
    size = path.lstat().st_size
    path.unlink()
    return size


def _is_whole(index: Path, size: int, *, long_ids: bool) -> bool:
    """Whether a pack and its index end in the hash of what is before. OSError."""
    for path in (index, index.with_suffix(".pack")):
        hashed, end = new_hash(long_ids=long_ids), b""
        with path.open("rb") as file:
            while piece := file.read(_PIECE):
                end += piece
                hashed.update(end[:-size])
                end = end[-size:]
        if hashed.digest() != end:
            return False
    return True
