"""git_push: a branch or tag of the workspace's repository sent elsewhere.

It needs the network and the person's credentials, so nothing confines it. Instead git is given
a repository of our own making: the workspace's objects, and of its configuration only the
remote's addresses, written once. What is changed in the workspace meanwhile is not looked at.
"""

import os
import re
from collections.abc import Iterable, Mapping
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated

from pydantic import Field

from loom_audit.errors import AuditError, Conflict, ExecutionFailed, InvalidArguments, NotFound
from loom_audit.ports import Command, CommandResult
from loom_audit.tools.bundled.git.person_config import Setting, settings_of
from loom_audit.tools.bundled.git.repository import (
    LISTING,
    MAX_LISTING,
    Repository,
    check_name,
    check_ran,
    git_error,
    repository,
)
from loom_audit.tools.bundled.text import decode
from loom_audit.tools.calls.context import ToolContext
from loom_audit.tools.calls.models import Arguments, NonEmpty, Output
from loom_audit.tools.calls.places.area import search_path
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.tool import Preview, Tool

PUSH_SECONDS = 120.0
UNKNOWN = "a remote that is not known"
PROTOCOLS = "https:http:ssh:file"

_PASSED_SETTINGS = re.compile(
    r"extensions\.(objectformat|partialclone)|url\..*\.(push)?insteadof"
    r"|remote\..*\.(url|pushurl|fetch|promisor|partialclonefilter)",
    re.DOTALL,
)
"""What a push hears of the repository's own configuration, as git lists it."""


class PushInput(Arguments):
    remote: Annotated[NonEmpty, Field(description="A remote of the repository, by name")] = "origin"
    ref: Annotated[NonEmpty | None, Field(description="Branch or tag; the current branch")] = None
    set_upstream: Annotated[bool, Field(description="Remember it as the branch's upstream")] = False


class PushOutput(Output):
    """`status` is git's own word: `[new branch]`, `[up to date]`, `OLD..NEW`."""

    remote: str
    url: str
    ref: str
    commit: str
    status: str


class GitPush(Tool):
    """Pushes one branch or tag to a remote."""

    name = "git_push"
    description = "Push one branch or tag to a remote, under the same name. Never by force."
    input = PushInput
    output = PushOutput
    effect = "network"
    timeout_seconds = PUSH_SECONDS + 600

    def requires_approval(self, args: PushInput, ctx: ToolContext) -> bool | str:
        where = _address(args.remote, ctx)
        return f"pushes {args.ref or 'the current branch'} to {args.remote} ({where})"

    def preview(self, args: PushInput, ctx: ToolContext) -> Preview:
        check_name(args.remote, "remote")
        return Preview(f"{self.requires_approval(args, ctx)}\n")

    async def execute(self, args: PushInput, ctx: ToolContext) -> ToolResult:
        check_name(args.remote, "remote")
        git = await repository(ctx)
        remotes = {s.key[7:-4] for s in git.listed if re.fullmatch(r"remote\..*\.url", s.key, re.S)}
        if args.remote not in remotes:
            raise NotFound(
                f"the repository has no remote {args.remote:.200}",
                hint=f"There are: {', '.join(sorted(remotes))}."
                if remotes
                else "There is none: ask where to push to, then `git remote add NAME URL`.",
            )
        ref = await _full_name(git, args.ref)
        commit = await git.commit_id(ref)
        pushed = decode(await git.read("rev-parse", "--verify", "--end-of-options", ref)).strip()
        shallow = b""
        if decode(await git.read("rev-parse", "--is-shallow-repository")).strip() == "true":
            shallow = await ctx.in_thread(partial(_shallow_boundary, git.folders[-1]))
        with TemporaryDirectory(prefix="loom-audit-") as folder:
            variables = await ctx.in_thread(partial(_make_repository, folder, git, shallow))
            url = await ctx.in_thread(partial(_push_urls, args.remote, ctx, variables))
            if "\n" in url:
                raise InvalidArguments(f"{args.remote} has several push URLs", hint="Keep one.")
            shown = _without_secret(url)
            if ctx.asked and not ctx.asked.endswith(f" to {args.remote} ({shown})"):
                raise Conflict(
                    f"{args.remote} is at {shown} now, which is not what was asked about",
                    hint="Ask again.",
                    details={"asked": ctx.asked, "url": shown},
                )
            options = [*_receive_pack_options(url), "--", args.remote, f"{pushed}:{ref}"]
            status = await self._send(git, variables, options, f"{args.remote} ({shown})")
            lines = [f"pushed {ref} ({commit[:12]}) to {shown}: {status}"]
            lines += await _update_tracking(git, variables, args, ref)
        data = {
            "remote": args.remote,
            "url": shown,
            "ref": ref,
            "commit": commit,
            "status": status,
        }
        return ToolResult(True, "\n".join(lines), data)

    async def _send(
        self, git: Repository, variables: Mapping[str, str], options: list[str], where: str
    ) -> str:
        """Git's word for what became of it. ExecutionFailed."""
        words = ["push", "--porcelain", "--no-follow-tags", "--no-recurse-submodules"]
        words += ["--no-signed", "--no-progress", *options]
        done = check_ran(
            await git.ctx.run(
                *Repository(git.ctx, root=git.root).argv(
                    *words, protocols=PROTOCOLS, other=variables
                ),
                stdin=b"",
                timeout=PUSH_SECONDS,
                confinement="off",
                environment=search_path(git.root, git.ctx.scratch_dir),
            )
        )
        lines = (line.split("\t") for line in decode(done.stdout).splitlines())
        status = next((words[2] for words in lines if len(words) > 2), "")
        if done.exit_code:
            raise ExecutionFailed(
                f"the push to {where} failed: {_failure_text(status, done.stderr)}",
                hint="This tool never forces; fetch and merge first when the remote has more."
                if "reject" in status
                else "",
            )
        return status


async def _update_tracking(
    git: Repository, variables: Mapping[str, str], args: PushInput, ref: str
) -> list[str]:
    """Tell the workspace's repository where the remote stands now; why that did not work."""
    listing = ("for-each-ref", "--format=update %(refname) %(objectname)")
    moved = await git.ctx.in_thread(partial(_run_git, git.ctx, listing, variables))
    done = [await git.change("update-ref", "--stdin", stdin=moved.stdout)]
    if args.set_upstream and ref.startswith("refs/heads/"):
        branch = f"branch.{ref.removeprefix('refs/heads/')}"
        for key, value in (("remote", args.remote), ("merge", ref)):
            words = ("config", "--local", "--replace-all", f"{branch}.{key}", value)
            done.append(await git.change(*words))
    return [f"[not remembered here: {git_error(one).message}]" for one in done if one.exit_code]


def _address(remote: str, ctx: ToolContext) -> str:
    """Where a push would go now, as it may be shown."""
    if ctx.runner is None or ctx.workspace is None:
        return UNKNOWN
    try:
        check_name(remote, "remote")
        listed = settings_of(_run_git(ctx, LISTING, None).stdout)
        root = os.path.realpath(ctx.workspace)
        with TemporaryDirectory(prefix="loom-audit-") as folder:
            git = Repository(ctx, root=root, listed=tuple(listed))
            return _without_secret(_push_urls(remote, ctx, _make_repository(folder, git)))
    except (AuditError, OSError):
        return UNKNOWN  # the call itself says what is wrong


def _push_urls(remote: str, ctx: ToolContext, variables: Mapping[str, str]) -> str:
    """The addresses a push goes to, a line each."""
    done = _run_git(ctx, ("remote", "get-url", "--push", "--all", "--", remote), variables)
    return decode(done.stdout).strip()


def _run_git(
    ctx: ToolContext, words: Iterable[str], variables: Mapping[str, str] | None
) -> CommandResult:
    """Run a git command that starts no other program, by no configuration; what it printed.

    For a worker thread.
    """
    assert ctx.runner is not None
    assert ctx.workspace is not None
    root = os.path.realpath(ctx.workspace)
    argv = Repository(ctx, root=root).argv(*words, other=variables)
    own = search_path(ctx.workspace, ctx.scratch_dir)
    command = Command(argv, stdin=b"", timeout=10.0, limit=MAX_LISTING, variables=own)
    done = check_ran(ctx.runner.run(root, command))
    if done.exit_code:
        raise git_error(done)
    return done


def _make_repository(folder: str, git: Repository, shallow: bytes = b"") -> dict[str, str]:
    """Make a repository with the remotes of another, and its objects when it is known where.

    The variables for git to use it.
    """
    at = Path(folder)
    for name in ("objects", "refs"):
        (at / name).mkdir()
    (at / "HEAD").write_bytes(b"ref: refs/heads/none\n")
    passed = [s for s in git.listed if s.own and _PASSED_SETTINGS.fullmatch(s.key)]
    lines = [
        "[core]",
        "\trepositoryFormatVersion = 1",
        "\tbare = true",
        *map(_config_lines, passed),
    ]
    (at / "config").write_bytes(os.fsencode("\n".join(lines) + "\n"))
    if shallow:
        (at / "shallow").write_bytes(shallow)
    variables = {"GIT_DIR": folder}
    if git.folders:
        variables["GIT_OBJECT_DIRECTORY"] = os.path.join(git.folders[-1], "objects")
    return variables


def _config_lines(setting: Setting) -> str:
    """git-config(1), Syntax."""
    section, _, rest = setting.key.partition(".")
    middle, _, name = rest.rpartition(".")
    inner = middle.replace("\\", "\\\\").replace('"', '\\"')
    value = setting.value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return (
        f'[{section} "{inner}"]\n\t{name} = "{value}"'
        if middle
        else (f'[{section}]\n\t{name} = "{value}"')
    )


def _shallow_boundary(common: str) -> bytes:
    """Where a shallow clone's history ends: ids, and nothing of what a link may lead to."""
    number = os.open(os.path.join(common, "shallow"), os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    with open(number, "rb") as stream:
        lines = stream.read(MAX_LISTING).splitlines()
    return b"".join(line + b"\n" for line in lines if re.fullmatch(rb"[0-9a-f]{40,64}", line))


def _without_secret(url: str) -> str:
    """The address without a password or token that stands in it: it goes on record."""
    return re.sub(r"://[^/@\s]*@", "://…@", url)


def _receive_pack_options(url: str) -> list[str]:
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
        "rev-parse",
        "--symbolic-full-name",
        "--verify",
        "--quiet",
        "--end-of-options",
        ref or "HEAD",
    )
    name = decode(done.stdout).strip()
    if done.exit_code or not name.startswith(("refs/heads/", "refs/tags/")):
        raise NotFound(
            f"{ref or 'HEAD'!s:.200} is not a branch or tag with a commit",
            hint="Name a branch, or check one out and commit.",
        )
    return name


def _failure_text(status: str, stderr: bytes) -> str:
    said = decode(stderr).strip()
    return "; ".join(part for part in (status, said[:1000]) if part) or "git did not say why"
