"""git_commit: the workspace's repository changed."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import Field

from loom_audit.errors import InvalidArguments, NotFound, PermissionDenied
from loom_audit.model.text.display import first_few
from loom_audit.tools.bundled.git.output import COUNTED, DIFF, LOG, changes_of, commits_of
from loom_audit.tools.bundled.git.queries import MAX_ENTRIES, DiffFile, diff_line
from loom_audit.tools.bundled.git.repository import Repository, git_error, paths_of, repository
from loom_audit.tools.bundled.text import decode, encode
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Preview, Tool

MAX_MESSAGE = 64 * 1024
LISTED = ("--pathspec-from-file=-", "--pathspec-file-nul")
"""The options by which git reads the paths of a command from its standard input."""


class CommitInput(Arguments):
    message: Annotated[NonEmpty, Field(description="Subject, empty line, text")]
    paths: Annotated[
        list[NonEmpty] | None,
        Field(
            description="Commit these files or directories as they are; else what is staged",
            min_length=1,
            max_length=100_000,
        ),
    ] = None
    all: Annotated[bool, Field(description="Commit every changed file git already tracks")] = False
    hooks: Annotated[bool, Field(description="Run the repository's hooks; asks first")] = False


class CommitOutput(Output):
    """`left_out` are given paths in which there was nothing to commit."""

    commit: str
    branch: str | None
    subject: str
    files: list[DiffFile]
    left_out: list[str]


class GitCommit(Tool):
    """Commits to the workspace's repository."""

    name = "git_commit"
    description = (
        "Commit what is staged, the given paths, or all changes of tracked files. Hooks do not "
        "run unless asked for; commits are not signed."
    )
    input = CommitInput
    output = CommitOutput
    effect = "execute"
    confinement = "preferred"
    timeout_seconds = 660

    def requires_approval(self, args: CommitInput, ctx: ToolContext) -> bool | str:
        return args.hooks and "runs the hooks of the repository"

    def preview(self, args: CommitInput, ctx: ToolContext) -> Preview:
        what = ", ".join(args.paths or ()) or ("all changes" if args.all else "what is staged")
        hooks = ", with the hooks of the repository" if args.hooks else ""
        return Preview(f"commit {what:.2000}{hooks}:\n{args.message}\n")

    async def execute(self, args: CommitInput, ctx: ToolContext) -> ToolResult:
        message = encode(args.message, "message")
        if args.paths and args.all:
            raise InvalidArguments("paths and all are given", hint="Give one of them.")
        if "\0" in args.message or not args.message.strip() or len(message) > MAX_MESSAGE:
            raise InvalidArguments(
                f"message must be a text of 1 to {MAX_MESSAGE} bytes without NUL",
                hint="Say in a line what the commit changes.",
            )
        git = await repository(ctx)
        _check_identity(git, ctx)
        await git.read("var", "GIT_COMMITTER_IDENT")  # before anything is staged
        only, left_out = await self._choose_files(git, args, ctx)
        listing = _listing(only)
        options = ["--quiet", "--cleanup=whitespace", f"--message={args.message}"]
        if only:
            options += ["--only", *LISTED]
            added = await git.change("add", "--all", *LISTED, stdin=listing)
            if added.exit_code:
                raise git_error(added)
        done = await git.change("commit", *options, stdin=listing, hooks=args.hooks)
        if done.exit_code:
            raise git_error(done)
        return await _commit_result(git, left_out)

    async def _choose_files(
        self, git: Repository, args: CommitInput, ctx: ToolContext
    ) -> tuple[list[str], list[str]]:
        """The files to commit as they are, and the given paths that hold none."""
        if not args.paths and not args.all:
            await _check_staged(git)
            return [], []
        others = ("--others", "--exclude-standard") if args.paths else ()
        listed = await git.read("ls-files", "-z", "--modified", "--deleted", *others)
        staged = await git.read("diff", "--cached", "--name-only", "--no-renames", "-z", *DIFF)
        files = set((listed + staged).decode("utf-8", "surrogateescape").split("\0"))
        files = {name for name in files if name and not name.endswith("/")}
        left_out: list[str] = []
        if args.paths:
            chosen: set[str] = set()
            for given, path in zip(args.paths, paths_of(ctx, args.paths), strict=True):
                below = {f for f in files if path in (".", f) or f.startswith(path + "/")}
                chosen |= below
                left_out += [] if below else [given]
            files = chosen
        if not files:
            await _check_present(left_out, ctx)
            raise NotFound("there is nothing to commit", hint="git_status says what changed.")
        await _check_filters(git, files)
        return sorted(files), left_out


def _check_identity(git: Repository, ctx: ToolContext) -> None:
    """PermissionDenied where the person's name is not to be used, and the repository has none."""
    own = {setting.key for setting in git.listed if setting.own}
    if ctx.settings.git_identity == "none" and not {"user.name", "user.email"} <= own:
        raise PermissionDenied(
            "the repository does not say who commits, and the person's name is not used here",
            hint="A person can set user.name and user.email in the repository, or git_identity in "
            "tools.toml.",
        )


async def _check_present(paths: list[str], ctx: ToolContext) -> None:
    """NotFound when of the paths without a change some are not there at all."""
    absent = await ctx.in_thread(lambda: [path for path in paths if not ctx.exists(path)])
    if absent:
        verb = "is" if len(absent) == 1 else "are"
        raise NotFound(
            f"there is nothing to commit: {first_few(absent, 5)} {verb} not there, "
            "and not tracked by git",
            hint="git_status says what changed.",
            details={"paths": absent[:100]},
        )


async def _check_staged(git: Repository) -> None:
    if not await git.read("diff", "--cached", "--name-only", "-z", *DIFF):
        raise NotFound(
            "nothing is staged", hint="Give paths, or all for every change of tracked files."
        )


async def _check_filters(git: Repository, files: set[str]) -> None:
    """PermissionDenied when a file would go through a filter the repository itself defines."""
    if not git.filters:
        return
    listing = _listing(sorted(files))
    raw = await git.read("check-attr", "-z", "--stdin", "filter", stdin=listing)
    fields = raw.decode("utf-8", "surrogateescape").split("\0")
    for path, name in zip(fields[::3], fields[2::3], strict=False):
        if name in git.filters:
            raise PermissionDenied(
                f"{path} goes through the filter {name}, which is a program that the "
                "repository's own configuration names, and which nobody was asked about",
                hint="Define the filter in your own configuration (`git config --global`), or "
                "commit with shell_execute.",
                details={"path": path, "filter": name},
            )


def _listing(paths: Iterable[str]) -> bytes:
    """The paths as git reads them from its standard input."""
    return "\0".join(paths).encode("utf-8", "surrogateescape")


async def _commit_result(git: Repository, left_out: list[str]) -> ToolResult:
    [commit] = commits_of(await git.read(*LOG, "--max-count=1", "HEAD"))
    words = ("diff-tree", "-r", "--root", "--no-commit-id", *COUNTED, *DIFF, commit["commit"])
    files = changes_of(await git.read(*words))
    branch = decode((await git.ask("symbolic-ref", "--quiet", "--short", "HEAD")).stdout).strip()
    where = f"{commit['commit'][:12]} on {branch or 'a detached HEAD'}"
    lines = [f"committed {where}: {commit['subject']}"]
    lines += [diff_line(file) for file in files[:MAX_ENTRIES]]
    lines += [f"[nothing to commit in {path}]" for path in left_out]
    data = {
        "commit": commit["commit"],
        "branch": branch or None,
        "subject": commit["subject"],
        "files": files[:MAX_ENTRIES],
        "left_out": left_out,
    }
    return ToolResult(True, "\n".join(lines), data)
