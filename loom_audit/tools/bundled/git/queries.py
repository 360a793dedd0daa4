"""git_status, git_diff and git_log: the workspace's repository looked at."""

from collections.abc import Sequence
from functools import partial
from types import MappingProxyType
from typing import Annotated, Any

from pydantic import Field

from loom_audit.errors import InvalidArguments
from loom_audit.tools.bundled.git.output import (
    COUNTED,
    DIFF,
    LOG,
    STATUS,
    changes_of,
    commits_of,
    status_of,
)
from loom_audit.tools.bundled.git.repository import Repository, git_error, paths_of, repository
from loom_audit.tools.bundled.text import decode, patch_text
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Tool

MAX_ENTRIES = 2_000
MAX_PATCH = 256 * 1024

Paths = Annotated[
    list[NonEmpty] | None,
    Field(description="Files or directories, taken literally", max_length=1000),
]


class StatusInput(Arguments):
    pass


class StatusEntry(Output):
    """`staged` and `unstaged` say how the index differs from HEAD, and the file from the index."""

    path: str
    source: Annotated[str | None, Field(alias="from")]
    staged: str
    unstaged: str


class StatusOutput(Output):
    """`branch` is None when HEAD is detached, `commit` before the first one."""

    branch: str | None
    commit: str | None
    upstream: str | None
    ahead: int | None
    behind: int | None
    entries: list[StatusEntry]
    clean: bool
    truncated: bool


class GitStatus(Tool):
    """Lists the files that differ from the last commit."""

    name = "git_status"
    description = (
        "The branch of the workspace's git repository, and the files that differ from its last "
        "commit: staged, not staged, untracked."
    )
    input = StatusInput
    output = StatusOutput
    confinement = "preferred"

    async def execute(self, args: StatusInput, ctx: ToolContext) -> ToolResult:
        git = await repository(ctx)
        data = status_of(await git.read(*STATUS))
        entries = data["entries"]
        data["truncated"] = len(entries) > MAX_ENTRIES
        lines = [_branch_line(data)]
        for entry in entries[:MAX_ENTRIES]:
            kinds = [f"{entry['staged']} (staged)"] if entry["staged"] else []
            kinds += [entry["unstaged"]] if entry["unstaged"] else []
            source = f" from {entry['from']}" if entry["from"] else ""
            lines.append(f"{', '.join(kinds)}: {entry['path']}{source}")
        if data["truncated"]:
            lines.append(
                f"[{len(entries) - MAX_ENTRIES} more: `git status PATH` in bash shows them]"
            )
        data["entries"] = entries[:MAX_ENTRIES]
        return ToolResult(True, "\n".join(lines if entries else [*lines, "clean"]), data)


def _branch_line(data: dict[str, Any]) -> str:
    line = f"on {data['branch']}" if data["branch"] else "HEAD is detached"
    line += f" at {data['commit'][:12]}" if data["commit"] else ", no commit yet"
    if data["upstream"]:
        line += f", upstream {data['upstream']}"
    if data["ahead"] is not None:
        line += f" (ahead {data['ahead']}, behind {data['behind']})"
    return line


class DiffInput(Arguments):
    staged: Annotated[bool, Field(description="What is staged, not what is in the files")] = False
    paths: Paths = None
    start: Annotated[
        NonEmpty | None, Field(alias="from", description="Revision to compare with; HEAD's index")
    ] = None
    end: Annotated[
        NonEmpty | None, Field(alias="to", description="Revision to compare it with; the files")
    ] = None


class DiffFile(Output):
    """Lines `added` and `removed` are None for a binary file."""

    path: str
    source: Annotated[str | None, Field(alias="from")]
    kind: str
    added: int | None
    removed: int | None


class DiffOutput(Output):
    files: list[DiffFile]
    patch: str
    truncated: bool


class GitDiff(Tool):
    """Compares files, index and commits."""

    name = "git_diff"
    description = (
        "What differs: the files from the index; with staged the index from HEAD; with from, and "
        "to, a revision from the files or from another revision. Gives files and a patch."
    )
    input = DiffInput
    output = DiffOutput
    confinement = "preferred"

    async def execute(self, args: DiffInput, ctx: ToolContext) -> ToolResult:
        if args.end is not None and args.start is None:
            raise InvalidArguments("to is given without from", hint="Say what to compare it with.")
        if args.end is not None and args.staged:
            raise InvalidArguments(
                "staged compares with the index, not with a revision",
                hint="Leave out staged, or to.",
            )
        git = await repository(ctx)
        revisions = [await git.commit_id(r) for r in (args.start, args.end) if r is not None]
        words = (*DIFF, *(["--cached"] if args.staged else []), *revisions, "--")
        paths = paths_of(ctx, args.paths)
        files = changes_of(await git.read("diff", *COUNTED, *words, *paths))
        seen = [name for file in files for name in (file["path"], file["from"]) if name]
        await _check_known(git, ctx, args.paths, seen, revisions)
        done = await git.ask("diff", "--patch", "--unified=3", *words, *paths, limit=MAX_PATCH)
        if done.exit_code:
            raise git_error(done)
        patch = decode(done.stdout)
        truncated = done.truncated or len(files) > MAX_ENTRIES
        data = {"files": files[:MAX_ENTRIES], "patch": patch, "truncated": truncated}
        lines = [diff_line(file) for file in files[:MAX_ENTRIES]]
        if truncated:
            said = f"{len(files)} files, a patch of {done.stdout_bytes} bytes"
            lines.append(f"[cut: {said}; name paths to see them in parts]")
        return ToolResult(
            True,
            "\n".join([*lines, "", patch_text(done.stdout)]) if files else "[no difference]",
            data,
        )


async def _check_known(
    git: Repository,
    ctx: ToolContext,
    paths: Sequence[str] | None,
    seen: Sequence[str],
    revisions: Sequence[str],
) -> None:
    """FileNotFound for a path that is neither on disk nor known to git."""
    for given, path in zip(paths or (), paths_of(ctx, paths), strict=True):
        if path == "." or any(name == path or name.startswith(f"{path}/") for name in seen):
            continue
        if await ctx.in_thread(partial(ctx.exists, path)):
            continue
        asked: list[tuple[str, ...]] = [("ls-files", "-z", "--", path)]
        asked += [("ls-tree", "-z", each, "--", path) for each in (*revisions, "HEAD")]
        # before the first commit there is no HEAD to look into
        if not any([(await git.ask(*words)).stdout for words in asked]):
            raise await ctx.missing(given)


def diff_line(file: dict[str, Any]) -> str:
    """Return a changed file as one line: kind, counts of lines, path."""
    count = "binary" if file["added"] is None else f"+{file['added']} -{file['removed']}"
    source = f" from {file['from']}" if file["from"] else ""
    return f"{file['kind']} ({count}): {file['path']}{source}"


class LogInput(Arguments):
    max_count: Annotated[int, Field(ge=1, le=200, description="Commits at most")] = 20
    ref: Annotated[NonEmpty | None, Field(description="Where to begin; HEAD")] = None
    paths: Paths = None


class Commit(Output):
    commit: str
    parents: list[str]
    author: str
    authored: str
    committer: str
    committed: str
    names: list[str]
    subject: str
    body: str


class LogOutput(Output):
    commits: list[Commit]
    truncated: bool


class GitLog(Tool):
    """Lists commits, the newest first."""

    name = "git_log"
    description = "The commits that lead to a revision, newest first, or those that changed paths."
    input = LogInput
    output = LogOutput
    other_names = MappingProxyType(
        dict.fromkeys(("limit", "max_results", "head_limit"), "max_count")
    )
    confinement = "preferred"

    async def execute(self, args: LogInput, ctx: ToolContext) -> ToolResult:
        git = await repository(ctx)
        if args.ref is None and not await git.has_commits():
            return ToolResult(True, "[no commit yet]", {"commits": [], "truncated": False})
        commit = await git.commit_id(args.ref or "HEAD")
        words = (*LOG, f"--max-count={args.max_count + 1}", commit, "--")
        commits = [*commits_of(await git.read(*words, *paths_of(ctx, args.paths)))]
        if not commits:
            await _check_known(git, ctx, args.paths, (), (commit,))
        truncated = len(commits) > args.max_count
        commits = commits[: args.max_count]
        lines = [
            f"{c['commit'][:12]} {c['authored']} {c['author']}: {c['subject']}"
            + (f" ({', '.join(c['names'])})" if c["names"] else "")
            for c in commits
        ]
        if truncated:
            lines.append(
                "[there are older ones: raise max_count, or begin at the last commit above]"
            )
        data = {"commits": commits, "truncated": truncated}
        return ToolResult(True, "\n".join(lines) or "[no commit]", data)
