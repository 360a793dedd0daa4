"""Which branches of remotes a push moved, as their logs tell, and of which remote each is."""

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from loom_audit.model.git.record import OF_REMOTE, PUSHED, REMOTE_REFS, GitName
from loom_audit.model.plans.git_settings import remotes_of
from loom_audit.ports import GitSeen

_BY_PUSH = b"update by push"
"""What git says in the log of a remote branch that it pushed to."""


def with_pushes(names: Sequence[GitName], seen: GitSeen) -> tuple[GitName, ...]:
    """The names, of which those say it that a push moved, and of which remote a branch is where its
    name does not tell.
    """
    return tuple(
        replace(one, about="; ".join(filter(None, (one.about, *_said(one, seen)))))
        if one.name.startswith(REMOTE_REFS)
        else one
        for one in names
    )


def _said(one: GitName, seen: GitSeen) -> Iterator[str]:
    config = seen.files.get("config")
    remotes = remotes_of(config.content) if config else []
    own = [name for name in remotes if one.name.startswith(f"{REMOTE_REFS}{name}/")]
    whose = " or ".join(own) if any("/" in name for name in own) else ""
    if _is_by_push(one, seen):
        yield f"{PUSHED} {OF_REMOTE} {whose}" if whose else PUSHED
    elif whose and one.after is None:
        yield f"{OF_REMOTE} {whose}"


def _is_by_push(one: GitName, seen: GitSeen) -> bool:
    log = seen.files.get(f"logs/{one.name}")
    *_, last = log.content.rstrip(b"\n").rsplit(b"\n", 1) if log else (b"",)
    ids, _, said = last.partition(b"\t")
    return said.startswith(_BY_PUSH) and ids.split(b" ")[1:2] == [(one.after or "").encode()]
