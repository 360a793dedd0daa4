"""Which refs git is asked for again, where it told all of them at earlier stamps."""

from collections.abc import Mapping, Sequence, Set

from msgspec import Struct, field

from loom_audit.model.files import is_within
from loom_audit.model.git.record import BROKEN
from loom_audit.ports import SETTLED
from loom_audit.sandbox.git.files import Numbers


class TakenStamps(Struct, frozen=True):
    """The stamps of a repository by name, and when they were taken, in ns since 1970."""

    numbers: Mapping[str, Numbers] = field(default_factory=dict)
    taken: int = 0

    def folders_changed_since(self, before: "TakenStamps") -> frozenset[str]:
        """The folders in `refs` that have other stamps than before, or had none to trust; `refs` or
        `packed-refs` where any ref can have changed.
        """
        changed = set[str]()
        for name in {*self.numbers, *before.numbers}:
            if name == "packed-refs" or is_within(name, ("refs",)):
                old = before.numbers.get(name)
                if old is None or old != self.numbers.get(name) or old[3] + SETTLED >= before.taken:
                    changed.add(_folder(name))
        return frozenset(changed)


class ToldRefs(Struct, frozen=True):
    """All refs as git told them, and the stamps that were taken before."""

    stamped: TakenStamps = TakenStamps()
    refs: Mapping[str, str] = field(default_factory=dict)

    def folders_to_ask(self, stamped: TakenStamps, there: Set[str]) -> Sequence[str] | None:
        """The folders in `refs` of which git is asked at these stamps, with that of branches, which
        HEAD names; None where it is asked of all. `there` are the refs that are files now.
        """
        if not stamped.numbers or not self.refs:
            return None
        # what one that leads to another tells can change with that one
        leading = {_folder(name) for name, told in self.refs.items() if told.startswith("ref: ")}
        changed = stamped.folders_changed_since(self.stamped) | leading | {"refs/heads"}
        if not changed.isdisjoint({"refs", "packed-refs"}) or BROKEN in self.refs.values():
            return None
        # git tells none that leads in a circle, which the one that it leads to can end
        return sorted(changed) if self.refs.keys() >= there else None

    def with_answer(
        self, told: Mapping[str, str], folders: Sequence[str] | None, stamped: TakenStamps
    ) -> "ToldRefs":
        """The refs with what git tells of some folders now, or of all."""
        if folders is not None:
            within = tuple(f"{one}/" for one in folders)
            asked = frozenset(folders)
            kept = {k: v for k, v in self.refs.items() if not (k.startswith(within) or k in asked)}
            told = {**kept, **told}
        return ToldRefs(stamped, told)


def _folder(name: str) -> str:
    return "/".join(name.split("/")[:2])
