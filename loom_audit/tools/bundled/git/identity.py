"""Who commits in a confined command: the person, as their own git says for this folder."""

import os
from collections.abc import Mapping, Sequence

from loom_audit.errors import AuditError
from loom_audit.tools.bundled.environment import Programs, system_program
from loom_audit.tools.bundled.git.person_config import (
    IDENTITY_VARIABLES,
    Setting,
    person_files,
    settings_of,
)
from loom_audit.tools.bundled.git.repository import IDENTITY, LISTING, Repository
from loom_audit.tools.calls.context import ToolContext

FILE = ".gitconfig"
_IN_REPOSITORY = (".git/config", ".git/config.worktree", ".git/HEAD")

Stamps = tuple[tuple[str, int, int, int], ...]


class Identities:
    """What is known of who commits in which workspace.

    Git is asked once, and again when a file has changed that has a say in the answer.
    """

    def __init__(self) -> None:
        self._known: dict[str, tuple[Sequence[str], Stamps, bytes]] = {}

    async def home(self, ctx: ToolContext, programs: Programs) -> Mapping[str, bytes]:
        """Return the file of git's configuration for the home of a confined command, if any.

        It holds name and address only; the repository's own settings win over it.
        """
        if ctx.settings.git_identity == "none" or not programs.confined:
            return {}
        root = os.path.realpath(str(ctx.workspace))
        files, stamps, content = self._known.get(root, ((), (), b""))
        if not files or stamps != _stamps(files):
            listed = await _listed(ctx, root)
            files = [*_files(listed), *(f"{root}/{name}" for name in _IN_REPOSITORY)]
            content = gitconfig(listed)
            self._known[root] = files, _stamps(files), content
        return {FILE: content} if content else {}


def withholding(ctx: ToolContext) -> tuple[str, ...]:
    """Return the words before a command that must not know the person by our variables."""
    told = [name for name in sorted(IDENTITY_VARIABLES) if name in os.environ]
    if ctx.settings.git_identity != "none" or not told:
        return ()
    return (system_program("env"), *(word for name in told for word in ("-u", name)))


def gitconfig(listed: Sequence[Setting]) -> bytes:
    """Return what the person's settings say of who commits, as a file of git's configuration."""
    said = {s.key: s.value for s in listed if s.key in IDENTITY and not s.own}
    lines: list[str] = []
    for key, value in sorted(said.items()):
        section, _, name = key.partition(".")
        escaped = value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines += [f"[{section}]", f'\t{name} = "{escaped}"']
    return "".join(f"{line}\n" for line in lines).encode("utf-8", "surrogateescape")


async def _listed(ctx: ToolContext, root: str) -> Sequence[Setting]:
    try:
        done = await Repository(ctx, root=root).ask(*LISTING)
    except AuditError:
        return ()  # without git nobody commits, and git itself says what is wrong with it
    return () if done.exit_code else [*settings_of(done.stdout)]


def _files(listed: Sequence[Setting]) -> Sequence[str]:
    """The files that have a say in who commits, there or not."""
    named = (setting.origin.removeprefix("file:") for setting in listed if not setting.own)
    return [*person_files(()), *(path for path in dict.fromkeys(named) if os.path.isabs(path))]


def _stamps(files: Sequence[str]) -> Stamps:
    found: list[tuple[str, int, int, int]] = []
    for path in files:
        try:
            seen = os.stat(path)
        except OSError:
            continue  # one that is not there is told by its absence
        found.append((path, seen.st_mtime_ns, seen.st_ino, seen.st_size))
    return tuple(found)
