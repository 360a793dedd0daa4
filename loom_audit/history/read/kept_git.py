"""A repository as the log has it at a point, with its objects from the mirror."""

import re
from collections.abc import Sequence
from hashlib import sha1, sha256

from msgspec import Struct

from loom_audit.errors import Corrupt, InvalidArguments, NotFound
from loom_audit.history.ground.attachment import OnDisk
from loom_audit.history.read.timeline import Timeline
from loom_audit.model.git.record import GitChanged, GitState
from loom_audit.model.text.display import visible
from loom_audit.ports import EventFilter, GitAnswer, GitPoint, MirroredGit, ObjectMirror
from loom_audit.ports.git_objects import LONG_ID

COMMANDS = (
    "blame",
    "cat-file",
    "diff-tree",
    "for-each-ref",
    "grep",
    "log",
    "ls-tree",
    "merge-base",
    "rev-list",
    "rev-parse",
    "shortlog",
    "show",
)
"""The commands of git that can be asked: none writes a file or runs a program."""

_OPTIONS = re.compile(
    r"--(?:all|branches|tags|remotes|reflog|walk-reflogs|oneline|graph|decorate|no-decorate|reverse"
    r"|stat|numstat|shortstat|summary|patch|no-patch|raw|name-only|name-status|full-index|abbrev"
    r"|abbrev-commit|no-abbrev-commit|no-color|first-parent|merges|no-merges|follow|full-history"
    r"|date-order|topo-order|author-date-order|no-walk|objects|count|left-right|cherry-pick"
    r"|boundary|parents|children|root|text|binary|word-diff|find-renames|find-copies|no-renames"
    r"|ignore-all-space|ignore-space-change|ignore-blank-lines|function-context|is-ancestor"
    r"|octopus|verify|quiet|short|symbolic-full-name|abbrev-ref|long|full-name|full-tree"
    r"|line-number|ignore-case|word-regexp|extended-regexp|fixed-strings|perl-regexp|count"
    r"|files-with-matches|cached|porcelain|line-porcelain|show-email|numbered|email|diff-merges"
    r"|cc|pickaxe-all|pickaxe-regex|invert-grep|all-match|regexp-ignore-case|end-of-options)"
    r"|--(?:format|pretty|date|since|until|after|before|author|committer|grep|max-count|skip"
    r"|abbrev|decorate|color|unified|diff-filter|diff-algorithm|word-diff|find-renames|find-copies"
    r"|sort|points-at|contains|merged|no-merged|count|short|branches|tags|remotes|glob"
    r"|diff-merges|max-depth|dirstat|inter-hunk-context|min-parents|max-parents)=(?s:.*)"
    r"|-[0-9]+|-[pursztwbgiElecdnaqvM]|-[nUMCSGL](?s:.+)|-[nUCSGLe]|-[nse]{2}"
)
"""The options that can be given, in full: what is not here could name a file or a program."""

_RUNS_PROGRAM = re.compile(r"%[-+ ]?G|%\(signature")
"""What makes git run another program, to check a signature."""

_READS_A_FILE = {"blame": "-S", "grep": "-f"}
"""Options that mean a file of the machine for one command, and something else for others."""


class KeptGit(Struct, frozen=True):
    """A repository of the workspace at a point, whose objects are read from the mirror."""

    mirror: ObjectMirror
    git: MirroredGit
    point: GitPoint

    def blob(self, revision: str, path: str) -> bytes:
        """The bytes that a revision has at a path, by git's rules for both; checked by their hash.

        NotFound; InvalidArguments where a folder is at the path; Corrupt; ExecutionFailed.
        """
        name = f"{revision}:{path}"
        if "\n" in name:
            raise InvalidArguments("git cannot be asked for a name with a line break")
        given = f"{name}\n".encode("utf-8", "surrogateescape")
        done = self._ask(("cat-file", "--batch"), given)
        line, _, rest = done.output.partition(b"\n")
        about = line.decode("utf-8", "replace").split(" ")
        if done.code or len(about) != 3 or not about[2].isdecimal():
            raise NotFound(
                f"no {name:.200} is kept of the repository",
                hint="`loom-audit git . -- log --all` lists the commits of a point.",
            )
        id, kind, size = about
        if kind != "blob":
            raise InvalidArguments(
                f"{name:.200} is not a file", hint=f"`loom-audit git . -- show {name:.200}`"
            )
        content = rest[: int(size)]
        made = sha256 if len(id) == LONG_ID else sha1
        if made(b"blob %d\0" % len(content) + content).hexdigest() != id:
            raise Corrupt(
                f"the object {id} is damaged in the mirror",
                hint="`loom-audit doctor` names the file that holds it.",
                details={"object": id},
            )
        return content

    def ask(self, words: Sequence[str]) -> GitAnswer:
        """What git says to one of `COMMANDS`. InvalidArguments for another, or for an option that
        is not known to be harmless; ExecutionFailed.
        """
        check_words(words)
        return self._ask(words)

    def _ask(self, words: Sequence[str], given: bytes = b"") -> GitAnswer:
        folder = self.mirror.folder(long_ids=self.point.long_ids)
        return self.git.ask(folder, self.point, words, given)


def check_words(words: Sequence[str]) -> None:
    """Refuse what could write a file or run a program: InvalidArguments."""
    if not words or words[0] not in COMMANDS:
        raise InvalidArguments(
            "not a command that can be asked of the mirror",
            hint=f"There are: {', '.join(COMMANDS)}.",
        )
    for word in words[1:]:
        if word == "--":
            return
        if word.startswith("-") and not _OPTIONS.fullmatch(word):
            raise InvalidArguments(
                f"the option {word:.100} is not known to be harmless",
                hint="Paths go after a `--`. An option is given in full, as --name=value.",
            )
        if word.startswith(_READS_A_FILE.get(words[0], "--file=")):
            raise InvalidArguments(
                f"the option {word:.100} of git {words[0]} reads a file",
                hint="Only what is in the mirror is read. Paths go after a `--`.",
            )
        if _RUNS_PROGRAM.search(word):
            raise InvalidArguments(
                f"git would run another program for {word:.100}", hint="Leave it out."
            )


def kept_git(timeline: Timeline, on_disk: OnDisk, folder: str, seq: int) -> KeptGit:
    """The repository in a folder at a point; without names where it was gone then.

    NotFound where there had been none, Corrupt.
    """
    mirror, git = on_disk.mirror, on_disk.mirrored_git
    if mirror is None or git is None:
        raise NotFound("of an imported log no repository is kept")
    state, last = GitState(), dict[str, str]()
    for event in timeline.events(EventFilter(before=seq + 1, kinds=(GitChanged.kind,))):
        if isinstance(event.fact, GitChanged) and event.fact.folder == folder:
            state.follow(event.fact)
            last = dict(state.names) or last
    if not last:
        where = f"in {visible(folder)}" if folder else "at the top of the workspace"
        raise NotFound(
            f"no git repository {where} is on record at this point",
            hint="`loom-audit history .git` lists what changed of each repository.",
        )
    shallow = state.files.get("shallow")
    content = timeline.content(shallow) if shallow else b""
    ids = (one.rpartition(" ")[2] for name, one in last.items() if name != "index")
    point = GitPoint(state.names, content, any(len(id) == LONG_ID for id in ids))
    return KeptGit(mirror, git, point)
