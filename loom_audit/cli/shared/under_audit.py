"""A folder put under audit on the way to something else, and what is said of its repository."""

import os
import pwd
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

import click

from loom_audit.cli.shared.invocation import Invocation
from loom_audit.cli.shared.output import Output, progress
from loom_audit.model.text.display import visible

if TYPE_CHECKING:
    from loom_audit.api.face import AuditedWorkspace, AuditStore


def put_under_audit(invocation: Invocation, store: "AuditStore", folder: str) -> "AuditedWorkspace":
    """The workspace of a folder, which is put under audit."""
    with progress(invocation.output) as report:
        return store.attach(folder, report=report)


def note_repository(output: Output, root: str) -> None:
    """Say so where a workspace is only a part of a git repository, with the way to take all."""
    from loom_audit.api.store import repository_of

    repository = str(repository_of(Path(root)))
    if repository != root:
        forget, init = (shlex.quote(visible(one)) for one in (root, repository))
        output.note(
            ("note: ", "yellow"),
            f"it is only a part of the git repository {visible(repository)}, and what is done to"
            " that one's branches, stashes and commits is not on record. To record all of that:"
            f" `loom-audit workspaces forget {forget}`, then `loom-audit init {init}`",
        )


def note_owner(output: Output, root: str) -> None:
    """Say so where root connects a client in the folder of somebody who cannot run the hook."""
    owner = os.stat(root).st_uid
    if os.geteuid() == 0 and owner:
        try:
            name = pwd.getpwuid(owner).pw_name
        except KeyError:
            name = f"user {owner}"
        output.note(
            ("note: ", "yellow"),
            f"you are root, and {visible(root)} is {visible(name)}'s: only agents that root starts "
            "can run this hook. For theirs, disconnect it and connect as they",
        )


def ask_what_to_record(invocation: Invocation, *, only_repository: bool = False) -> str:
    """The folder that a person at the terminal wants under audit; "" for none.

    It is the one that they are in, or the git repository that holds it. With `only_repository` they
    are asked only where there are both to choose from, and want the one they are in where not.
    """
    from loom_audit.api.store import repository_of

    here = os.path.realpath(Path.cwd())
    repository = str(repository_of(Path(here)))
    output = invocation.output
    output.stdout.flush()
    if repository == here:
        if only_repository or _confirmed(output, f"Put {visible(here)} under audit?"):
            return here
        return ""
    output.note(f"{visible(here)} is in the git repository {visible(repository)}.")
    answers = {"r": repository, "f": here, "n": ""}
    answer = _answered(
        output, "Put under audit: all of the [r]epository, this [f]older, or [n]one?"
    )
    return answers[answer]


def _confirmed(output: Output, question: str) -> bool:
    try:
        return click.confirm(question, default=False, err=True)
    except click.Abort:
        output.note("")
        raise


def _answered(output: Output, question: str) -> str:
    choice = click.Choice(["r", "f", "n"])
    try:
        answer: str = click.prompt(question, type=choice, default="n", err=True, show_choices=False)
    except click.Abort:
        output.note("")
        raise
    return answer
