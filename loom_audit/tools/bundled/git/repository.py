"""The workspace's git repository, asked and changed without running anything it names.

A repository's own configuration can name programs for nearly everything git does, and an agent
can write that configuration. So git is told otherwise in every call: what it lists as set by the
repository and can run a program is set to what the person's own configuration says, or to
nothing. The person's configuration (identity, LFS, credentials) stays in force.

What is looked at first may be another thing when git reads it. So git is confined too, but for
the few commands that find the repository: those run nothing, whatever a configuration says.
"""

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from loom_audit.errors import (
    ExecutionFailed,
    InvalidArguments,
    NotFound,
    PermissionDenied,
    TooLarge,
    ToolTimeout,
)
from loom_audit.ports import (
    NO_HOOKS,
    ON_HOSTILE_GROUND,
    RUNS_NOTHING,
    CommandResult,
    Confinement,
    setting_variables,
)
from loom_audit.tools.bundled.environment import find_programs, program, system_program
from loom_audit.tools.bundled.git.person_config import (
    IDENTITY_VARIABLES,
    KEPT_VARIABLES,
    Setting,
    person_files,
    person_variables,
    settings_of,
)
from loom_audit.tools.bundled.text import decode
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.places.area import search_path

MAX_LISTING = 16 * 1024 * 1024
"""Bytes git may print of names and other data."""

MAX_UNSAFE = 1_000
SECONDS = 20.0

UNWRITTEN = frozenset({"annex", "hooks", "modules", "objects"})
"""Folders of a repository in which git writes through no link here; `objects` is looked at."""

FIXED = (
    *RUNS_NOTHING,
    ("core.editor", ":"),
    ("commit.gpgSign", "false"),
    ("commit.verbose", "false"),
    ("push.gpgSign", "false"),
    ("protocol.ext.allow", "never"),
    ("safe.bareRepository", "explicit"),
)
IDENTITY = frozenset(
    f"{who}.{what}" for who in ("user", "author", "committer") for what in ("name", "email")
)
LISTING = ("config", "--list", "--show-scope", "--show-origin", "-z")

_RUNS_PROGRAMS = re.compile(
    r"core\.(sshcommand|gitproxy)|ssh\.variant|diff\.external|diff\..*\.(command|textconv)"
    r"|filter\..*\.(clean|smudge|process|required)|gpg\..*|user\.signingkey|merge\..*\.driver"
    r"|trailer\..*|interactive\.difffilter|sequence\.editor|pager\..*"
    r"|remote\..*\.(uploadpack|receivepack|vcs|mirror)|push\.pushoption"
    r"|http\.(.*\.)?(savecookies|cookiefile|sslverify)",
    re.DOTALL,
)
"""Settings that run programs or write files, in the form in which git lists them."""

_NOT_OURS = ("insufficient permission", "Permission denied", "dubious ownership", "Read-only file")
_HELPER = re.compile(r"credential\.(.*\.)?helper", re.DOTALL)
_FILTER = re.compile(r"filter\.(.*)\.(clean|smudge|process)", re.DOTALL)
_LFS = re.compile(
    r"lfs\.(extension\..*|customtransfer\..*|(.*\.)?standalonetransferagent)", re.DOTALL
)
_HARMLESS = {
    "core.sshcommand": "ssh",
    "ssh.variant": "auto",
    "required": "false",
    "receivepack": "git-receive-pack",
    "uploadpack": "git-upload-pack",
    "mirror": "false",
    "savecookies": "false",
    "sslverify": "true",
}
"""What stands for nothing where an empty text does not, by the key or its last part."""


@dataclass(frozen=True, slots=True)
class Repository:
    """The repository whose top is the workspace.

    `listed` is its configuration with the person's. `filters` are the names of those the
    repository's own defines; they are switched off in every command. `folders` are the
    repository's own, the last the one it shares with its worktrees. With `confinement` off it
    can be asked where it is and what is configured, and nothing else.
    """

    ctx: ToolContext
    settings: tuple[tuple[str, str], ...] = FIXED
    filters: frozenset[str] = frozenset()
    listed: tuple[Setting, ...] = field(default=(), repr=False)
    root: str = field(default="")
    folders: tuple[str, ...] = ()
    confinement: Confinement = "off"

    def argv(
        self,
        *words: str,
        protocols: str = "none",
        locks: bool = False,
        hooks: bool = False,
        other: Mapping[str, str] | None = None,
    ) -> tuple[str, ...]:
        """Return the words of a git command with the environment it needs, and none of ours.

        `other` are variables that lead to another repository than the workspace's.
        """
        # hooks may ask who commits, and see nothing of the person's own configuration
        nobody = self.ctx.settings.git_identity == "none"
        again = [
            (s.key, s.value) for s in self.listed if s.key in IDENTITY and (s.own or not nobody)
        ]
        settings = (*self.settings, *(again if hooks else (NO_HOOKS,)))
        ours = sorted({*os.environ, *self.ctx.environment})
        kept = KEPT_VARIABLES - IDENTITY_VARIABLES if nobody else KEPT_VARIABLES
        unset = [n for n in ours if n.startswith("GIT_") and n not in kept]
        variables = {
            "GIT_CEILING_DIRECTORIES": os.path.dirname(self.root),
            **({"GIT_WORK_TREE": self.root} if other is None else other),
            **ON_HOSTILE_GROUND,
            "GIT_OPTIONAL_LOCKS": str(int(locks)),
            "GIT_ALLOW_PROTOCOL": protocols,
            "GIT_EDITOR": ":",
            "LC_ALL": "C.UTF-8",
            **setting_variables(settings),
        }
        given = [f"{name}={value}" for name, value in variables.items()]
        options = [option for name in unset for option in ("-u", name)]
        # what hooks find on PATH is the project's, and git must not be
        git = program("git", self.ctx) if hooks else "git"
        return (system_program("env"), *options, *given, git, "--no-pager", *words)

    async def ask(self, *words: str, stdin: bytes = b"", limit: int = MAX_LISTING) -> CommandResult:
        """Run a command that only reads.

        ExecutionFailed when git cannot be run, ToolTimeout after `SECONDS`.
        """
        done = await self.ctx.compute(
            *self.argv(*words),
            stdin=stdin,
            timeout=SECONDS,
            limit=limit,
            confinement=self.confinement,
            environment=person_variables() if self.confinement != "off" else None,
            readable=(*person_files(self.listed), *self._outside_folders),
            read_only=not any(_FILTER.fullmatch(s.key) and not s.own for s in self.listed),
        )
        return check_ran(done)

    async def read(self, *words: str, stdin: bytes = b"") -> bytes:
        """Return the whole output of a command that only reads.

        ExecutionFailed, TooLarge over `MAX_LISTING` bytes.
        """
        done = await self.ask(*words, stdin=stdin)
        if done.exit_code:
            raise git_error(done)
        if done.truncated:
            raise TooLarge(
                f"git {words[0]} printed {done.stdout_bytes} bytes",
                hint="Ask for fewer paths, or use shell_execute.",
            )
        return done.stdout

    async def change(
        self,
        *words: str,
        stdin: bytes = b"",
        hooks: bool = False,
    ) -> CommandResult:
        """Run a command that changes the repository; hooks see nothing of the person's own.

        PermissionDenied for a link in the repository's folders; else the errors of `ask`.
        """
        await self.ctx.in_thread(self._check_links)
        done = await self.ctx.run(
            *self.argv(*words, locks=True, hooks=hooks),
            stdin=stdin,
            confinement=self.confinement,
            environment=(await find_programs(self.ctx)).variables
            if hooks
            else {**search_path(self.root, self.ctx.scratch_dir), **person_variables()},
            network=None if hooks else False,
            readable=() if hooks else person_files(self.listed),
            writable=self._outside_folders,
        )
        return check_ran(done)

    @property
    def _outside_folders(self) -> tuple[str, ...]:
        """The folder a linked worktree shares, when it lies outside the workspace."""
        return tuple(folder for folder in self.folders[-1:] if not _within(folder, self.root))

    def _check_links(self) -> None:
        """PermissionDenied for a link in the repository's folders: git writes through some."""
        for link in (link for folder in self.folders for link in _links(folder, UNWRITTEN)):
            raise PermissionDenied(
                "The repository's own folder holds a symbolic link, which git could write through",
                hint="Look at where it leads, and remove it.",
                details={"path": link.encode("utf-8", "replace").decode()},
            )

    async def commit_id(self, revision: str) -> str:
        """Return the id of the commit that a revision names.

        InvalidArguments for an option, NotFound for no commit.
        """
        check_name(revision, "revision")
        done = await self.ask(
            "rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{commit}"
        )
        if done.exit_code:
            raise NotFound(
                f"no commit {revision:.200}", hint="git_log and git_status name what there is."
            )
        return decode(done.stdout).strip()

    async def has_commits(self) -> bool:
        """Return whether the current branch has a commit."""
        return not (await self.ask("rev-parse", "--verify", "--quiet", "HEAD")).exit_code


async def repository(ctx: ToolContext) -> Repository:
    """Return the workspace's repository, with what its configuration may not do.

    NotFound when the workspace is not one; a repository above it is never used. PermissionDenied
    when its data lies outside the workspace and is not that of a worktree linked to it.
    ExecutionFailed when git fails.
    """
    root = os.path.realpath(str(ctx.workspace))
    bare = Repository(ctx, root=root)
    done = await bare.ask("rev-parse", "--absolute-git-dir", "--git-common-dir")
    if done.exit_code:
        said = decode(done.stderr).strip()
        if "not a git repository" in said:
            raise NotFound(
                "The workspace is not a git repository",
                hint="Run `git init` in it with shell_execute. A repository above it is not used.",
            )
        raise git_error(done)
    own, common = os.fsdecode(done.stdout).removesuffix("\n").split("\n")[-2:]
    common = os.path.realpath(os.path.join(root, common))
    if not _within(os.path.realpath(own), root) or not _within(common, root):
        listing = await bare.read("worktree", "list", "--porcelain", "-z")
        if b"worktree " + os.fsencode(root) not in listing.split(b"\0"):
            raise _outside_error(own)
    for folder in await ctx.in_thread(lambda: [*_object_folders(common)]):
        if not (_within(folder, root) or _within(folder, common)):
            raise _outside_error(folder)
    listed = tuple(settings_of(await bare.read(*LISTING)))
    return Repository(
        ctx,
        (*FIXED, *_overrides(listed)),
        frozenset(_own_filters(listed)),
        listed,
        root,
        (os.path.realpath(own), common),
        ctx.settings.confinement or "preferred",
    )


def check_name(name: str, what: str) -> None:
    """Raise InvalidArguments for a name that git could take for an option, or for several."""
    if not name or name.startswith("-") or len(name) > 1_000 or re.search(r"[\0-\x1f\x7f]", name):
        raise InvalidArguments(f"{name!r:.100} is not a {what}", hint="It may not begin with -.")


def paths_of(ctx: ToolContext, paths: Sequence[str] | None) -> list[str]:
    """Return the paths relative to the workspace. InvalidPath outside of the workspace."""
    return [ctx.open_writer.workspace.relative(path) or "." for path in paths or ()]


def git_error(done: CommandResult) -> ExecutionFailed:
    """Return git's own words as an error, with a hint where the cause is known."""
    said = decode(done.stderr).strip() or decode(done.stdout).strip()
    hint = ""
    if "index.lock" in said:
        hint = "Another git command is running there, or one was killed and left the lock."
    elif "Please tell me who you are" in said or "identity" in said:
        hint = "Set user.name and user.email with `git config --global`."
    elif any(words in said for words in _NOT_OURS):
        hint = "Run as the user whose workspace it is; or set confinement to off in tools.toml."
    elif " filter '" in said and "failed" in said:
        hint = "A filter of your own configuration did not work confined: see docs/project-tools.md"
    return ExecutionFailed(
        f"git failed: {said[:1000] or f'exit code {done.exit_code}'}",
        hint=hint,
        details={"exit_code": done.exit_code},
    )


def check_ran(done: CommandResult) -> CommandResult:
    """Return a result of git that ran to its end.

    ToolTimeout, ExecutionFailed where git is missing.
    """
    if done.timed_out:
        raise ToolTimeout(f"git was stopped after {done.duration / 1e6:.0f} seconds")
    if done.exit_code == 127:
        raise ExecutionFailed("git is not installed", hint="Install git: `apt-get install git`.")
    return done


def _overrides(listed: Sequence[Setting]) -> Iterator[tuple[str, str]]:
    """What must be said again because the repository said something of its own about it."""
    ours = {setting.key: setting.value for setting in listed if not setting.own}
    theirs = {setting.key for setting in listed if setting.own}
    unsafe = {key for key in theirs if _RUNS_PROGRAMS.fullmatch(key)}
    for name in _own_filters(listed):
        unsafe |= {f"filter.{name}.{part}" for part in ("clean", "smudge", "process", "required")}
        ours = {k: v for k, v in ours.items() if not k.startswith(f"filter.{name}.")}
    if len(unsafe) > MAX_UNSAFE:
        raise PermissionDenied(
            f"the repository's configuration names more than {MAX_UNSAFE} programs",
            hint="Look at .git/config.",
        )
    for key in sorted(ours.keys() - unsafe):  # one that cannot run must not be passed over
        if (found := _FILTER.fullmatch(key)) and found[2] != "smudge":
            yield f"filter.{found[1]}.required", "true"
    for key in sorted(unsafe):
        yield key, ours.get(key, _HARMLESS.get(key, _HARMLESS.get(key.rpartition(".")[2], "")))
    if any(_HELPER.fullmatch(key) for key in theirs):
        yield "credential.helper", ""  # forgets all helpers so far (gitcredentials(7))
        for setting in listed:
            if not setting.own and _HELPER.fullmatch(setting.key):
                yield setting.key, setting.value


def _own_filters(listed: Sequence[Setting]) -> set[str]:
    """Filters that the repository defines otherwise than the person does."""
    ours = {setting.key: setting.value for setting in listed if not setting.own}
    names = set()
    for setting in listed:
        if setting.own and ours.get(setting.key) != setting.value:
            if found := _FILTER.fullmatch(setting.key):
                names.add(found[1])
            elif _LFS.fullmatch(setting.key):
                names.add("lfs")
    return names


def _object_folders(common: str) -> Iterator[str]:
    """Where git would read objects from: git-repository-layout(5), `objects`."""
    objects = os.path.join(common, "objects")
    yield os.path.realpath(objects)
    try:
        yield from (os.path.realpath(e.path) for e in os.scandir(objects) if e.is_symlink())
        with open(os.path.join(objects, "info", "alternates"), "rb") as stream:
            lines = stream.read(64 * 1024).splitlines()
    except OSError:
        return  # git says what is wrong when anything is
    for line in lines:
        if line and not line.startswith(b"#"):
            yield os.path.realpath(os.path.join(objects, os.fsdecode(line.strip(b'"'))))


def _links(folder: str, skipped: frozenset[str] = frozenset()) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_symlink() and entry.name not in skipped:
                yield entry.path
            elif entry.is_dir(follow_symlinks=False) and entry.name not in skipped:
                yield from _links(entry.path)


def _within(path: str, folder: str) -> bool:
    return path == folder or path.startswith(folder.rstrip("/") + "/")


def _outside_error(path: str) -> PermissionDenied:
    return PermissionDenied(
        "The workspace's repository keeps its data outside the workspace",
        hint="Only worktrees made by `git worktree add` may; use a repository of its own.",
        details={"path": path.encode("utf-8", "replace").decode()},
    )
