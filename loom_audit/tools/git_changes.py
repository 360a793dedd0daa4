"""git_commit and git_push: the workspace's repository changed, and sent elsewhere."""

import re
from typing import Annotated

from pydantic import BaseModel, Field

from loom_audit.errors import ExecutionFailed, InvalidArguments, NotFound, PermissionDenied
from loom_audit.ports import Command
from loom_audit.tools.context import ToolContext
from loom_audit.tools.git import DIFF, MAX_ENTRIES, DiffFile, diff_line
from loom_audit.tools.git_output import LOG_FORMAT, changes_of, commits_of
from loom_audit.tools.git_repository import Repository, check_name, failed, paths_of, repository
from loom_audit.tools.programs import own_programs
from loom_audit.tools.text import decode, encode
from loom_audit.tools.tool import Arguments, NonEmpty, Preview, Tool, ToolResult

MAX_MESSAGE = 64 * 1024
PUSH_SECONDS = 120.0


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


class CommitOutput(BaseModel):
    """`left_out` are given paths in which there was nothing to commit."""

    commit: str
    branch: str | None
    subject: str
    files: list[DiffFile]
    left_out: list[str]


class GitCommit(Tool):
    name = "git_commit"
    description = (
        "Commit what is staged, the given paths, or all changes of tracked files. Hooks do not "
        "run unless asked for; commits are not signed."
    )
    input = CommitInput
    output = CommitOutput
    effect = "execute"
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
                f"message must be a text of at most {MAX_MESSAGE} bytes without NUL"
            )
        git = await repository(ctx)
        only, left_out = await self._chosen(git, args, ctx)
        listing = "\0".join(only)
        options = ["--quiet", "--cleanup=whitespace", f"--message={args.message}"]
        if only:
            options += ["--only", "--pathspec-from-file=-", "--pathspec-file-nul"]
            added = await git.change(
                "add", "--all", "--pathspec-from-file=-", "--pathspec-file-nul",
                stdin=listing.encode("utf-8", "surrogateescape"),
            )  # fmt: skip
            if added.exit_code:
                raise failed(added)
        done = await git.change(
            "commit", *options, stdin=listing.encode("utf-8", "surrogateescape"), hooks=args.hooks
        )
        if done.exit_code:
            raise failed(done)
        return await _committed(git, left_out)

    async def _chosen(
        self, git: Repository, args: CommitInput, ctx: ToolContext
    ) -> tuple[list[str], list[str]]:
        """The files to commit as they are, and the given paths that hold none."""
        if not args.paths and not args.all:
            await _something_staged(git)
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
            raise NotFound("there is nothing to commit", hint="git_status says what changed.")
        await _check_filters(git, files)
        return sorted(files), left_out


async def _something_staged(git: Repository) -> None:
    if not await git.read("diff", "--cached", "--name-only", "-z", *DIFF):
        raise NotFound(
            "nothing is staged", hint="Give paths, or all for every change of tracked files."
        )


async def _check_filters(git: Repository, files: set[str]) -> None:
    """PermissionDenied when a file would go through a filter the repository itself defines."""
    if not git.filters:
        return
    listing = "\0".join(sorted(files)).encode("utf-8", "surrogateescape")
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


async def _committed(git: Repository, left_out: list[str]) -> ToolResult:
    raw = await git.read(
        "log",
        "-z",
        "--max-count=1",
        f"--format=tformat:{LOG_FORMAT}",
        "--no-show-signature",
        "--no-mailmap",
        "--no-patch",
        "HEAD",
    )
    [commit] = commits_of(raw)
    files = changes_of(
        await git.read(
            "diff-tree", "-r", "--root", "--no-commit-id", "--raw", "--numstat", "-z",
            *DIFF, commit["commit"],
        )
    )  # fmt: skip
    branch = decode((await git.ask("symbolic-ref", "--quiet", "--short", "HEAD")).stdout).strip()
    lines = [f"committed {commit['commit'][:12]} on {branch or 'a detached HEAD'}"]
    lines[0] += f": {commit['subject']}"
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


class PushInput(Arguments):
    remote: Annotated[NonEmpty, Field(description="A remote of the repository, by name")] = "origin"
    ref: Annotated[NonEmpty | None, Field(description="Branch or tag; the current branch")] = None
    set_upstream: Annotated[bool, Field(description="Remember it as the branch's upstream")] = False


class PushOutput(BaseModel):
    """`status` is git's own word: `[new branch]`, `[up to date]`, `OLD..NEW`."""

    remote: str
    url: str
    ref: str
    commit: str
    status: str


class GitPush(Tool):
    name = "git_push"
    description = "Push one branch or tag to a remote, under the same name. Never by force."
    input = PushInput
    output = PushOutput
    effect = "network"
    timeout_seconds = PUSH_SECONDS + 600

    def requires_approval(self, args: PushInput, ctx: ToolContext) -> bool | str:
        return f"pushes {args.ref or 'the current branch'} to {args.remote}"

    def preview(self, args: PushInput, ctx: ToolContext) -> Preview:
        check_name(args.remote, "remote")
        url = ""
        if ctx.runner is not None and ctx.workspace is not None:
            argv = Repository(ctx, root=str(ctx.workspace)).argv(*_url_words(args.remote))
            done = ctx.runner.run(
                str(ctx.workspace),
                Command(
                    argv,
                    stdin=b"",
                    timeout=10.0,
                    variables=own_programs(ctx.workspace, ctx.scratch_dir),
                ),
            )
            url = _without_secret(decode(done.stdout).strip())
        return Preview(
            f"push {args.ref or 'the current branch'} to {args.remote}"
            f" ({url or 'a remote that is not known'})\n"
        )

    async def execute(self, args: PushInput, ctx: ToolContext) -> ToolResult:
        check_name(args.remote, "remote")
        git = await repository(ctx)
        if args.remote not in git.remotes:
            raise NotFound(
                f"the repository has no remote {args.remote:.200}",
                hint=f"There are: {', '.join(sorted(git.remotes))}." if git.remotes else "",
            )
        ref = await _full_name(git, args.ref)
        commit = await git.commit_id(ref)
        url = decode(await git.read(*_url_words(args.remote))).strip()
        if "\n" in url:
            raise InvalidArguments(f"{args.remote} has several push URLs", hint="Keep one.")
        shown = _without_secret(url)
        words = ["push", "--porcelain", "--no-follow-tags", "--no-recurse-submodules"]
        words += ["--no-signed", "--no-progress", *_receiving(url)]
        words += ["--set-upstream"] if args.set_upstream else []
        done = await git.change(
            *words, "--", args.remote, f"{ref}:{ref}",
            protocols="https:http:ssh:file", network=True, timeout=PUSH_SECONDS, final=True,
        )  # fmt: skip
        status = next(
            (w[2] for w in (x.split("\t") for x in decode(done.stdout).splitlines()) if len(w) > 2),
            "",
        )
        if done.exit_code:
            raise ExecutionFailed(
                f"the push to {args.remote} ({shown}) failed: {_why(status, done.stderr)}",
                hint="This tool never forces; fetch and merge first when the remote has more."
                if "reject" in status
                else "",
            )
        data = {
            "remote": args.remote, "url": shown, "ref": ref, "commit": commit, "status": status,
        }  # fmt: skip
        return ToolResult(True, f"pushed {ref} ({commit[:12]}) to {shown}: {status}", data)


def _url_words(remote: str) -> tuple[str, ...]:
    return "remote", "get-url", "--push", "--all", "--", remote


def _without_secret(url: str) -> str:
    """The address without a password or token that stands in it: it goes on record."""
    return re.sub(r"://[^/@\s]*@", "://…@", url)


def _receiving(url: str) -> list[str]:
    """What runs at the other end; on this machine, without the hooks and programs there."""
    if "://" in url and not url.startswith("file://"):
        return ["--receive-pack=git-receive-pack"]
    head = url.split("/")[0]
    if "://" not in url and ":" in head:
        return ["--receive-pack=git-receive-pack"]  # host:path, by ssh
    quiet = "-c core.hooksPath=/dev/null -c core.fsmonitor=false -c core.alternateRefsCommand=:"
    quiet += " -c receive.denyCurrentBranch=refuse -c receive.autogc=false"
    return [f"--receive-pack=git {quiet} receive-pack"]


async def _full_name(git: Repository, ref: str | None) -> str:
    """`refs/heads/…` or `refs/tags/…`."""
    if ref is not None:
        check_name(ref, "branch or tag")
    done = await git.ask(
        "rev-parse", "--symbolic-full-name", "--verify", "--quiet", "--end-of-options",
        ref or "HEAD",
    )  # fmt: skip
    name = decode(done.stdout).strip()
    if done.exit_code or not name.startswith(("refs/heads/", "refs/tags/")):
        raise NotFound(
            f"{ref or 'HEAD'!s:.200} is no branch or tag with a commit",
            hint="Name a branch, or check one out and commit.",
        )
    return name


def _why(status: str, stderr: bytes) -> str:
    said = decode(stderr).strip()
    return "; ".join(part for part in (status, said[:1000]) if part) or "git did not say why"
