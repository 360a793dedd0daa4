"""Folders that are renamed as a whole: the stages of such a plan come to what it says."""

import random
from collections import Counter

from loom_audit.model.files import (
    BlobId,
    FileState,
    Move,
    diff,
    folder_renames,
    follow,
    is_directory,
    is_within,
    parents,
)
from loom_audit.model.plans.whole_folders import Work, with_whole_folders

FOLDER = FileState("directory", None, 0o755, 0)
NAMES = ("a", "b", "c", "d")


def file(text: str) -> FileState:
    return FileState("file", BlobId(text * 64), 0o644, 1)


def some_tree(chance: random.Random) -> dict[str, FileState]:
    tree: dict[str, FileState] = {}
    for _ in range(chance.randint(2, 7)):
        path = "/".join(chance.choice(NAMES) for _ in range(chance.randint(1, 3)))
        if any(not is_directory(tree.get(one, FOLDER)) for one in parents(path)):
            continue
        if path in tree:
            continue
        tree |= dict.fromkeys((one for one in parents(path) if one not in tree), FOLDER)
        tree[path] = chance.choice([FOLDER, file("1"), file("2")])
    return tree


def renamed(tree: dict[str, FileState], move: Move) -> dict[str, FileState]:
    """The tree with a folder elsewhere, and what has to be there for that."""
    inside = {p: s for p, s in tree.items() if is_within(p, [move.source])}
    found = {p: s for p, s in tree.items() if p not in inside}
    found |= {move.target + p.removeprefix(move.source): s for p, s in inside.items()}
    return found | dict.fromkeys(parents(move.target), FOLDER)


def test_the_stages_of_random_plans_come_to_what_the_plan_says() -> None:
    counts: Counter[str] = Counter()
    for seed in range(3_000):
        chance = random.Random(seed)
        tree, whole = some_tree(chance), dict[Move, str]()
        folders = [path for path, state in tree.items() if is_directory(state)]
        final = dict(tree)
        for source in chance.sample(folders, min(len(folders), chance.randint(1, 2))):
            target = "/".join(chance.choice(NAMES) for _ in range(chance.randint(1, 2)))
            free = target not in final and not is_within(target, folders)
            free = free and all(is_directory(final.get(p, FOLDER)) for p in parents(target))
            if free and source in final:
                final, whole[Move(source, target)] = renamed(final, Move(source, target)), source
        for path in [path for path in final if not is_directory(final[path])]:
            if chance.random() < 0.3:
                final[path] = file("3")
        work, used = with_whole_folders(Work((), (), diff(tree, final)), tree, whole)
        now = dict(tree)
        for stage in work.stages():
            paths = [change.path for change in stage]
            assert len(paths) == len({*paths}), seed
            assert all(now.get(change.path) == change.before for change in stage), seed
            for move in folder_renames(stage, used):
                assert move.target not in now, seed
            follow(now, stage)
            for path in now:
                assert all(is_directory(now.get(one)) for one in parents(path)), seed
        assert now == final, seed
        counts["whole"] += len(used)
        counts["stages"] += len(work.stages()) > 1
    assert counts["whole"] > 500 and counts["stages"] > 50, counts
