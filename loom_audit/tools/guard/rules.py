"""The command blocklist: refuses what destroys a machine or a home, by the words of a command.

Refused: removing `/`, a system directory or a home, or everything in one; `mkfs`; `dd` with an
`if=` operand, whatever it writes; writing below `/dev/`, but for null, tty, stdout, stderr and
fd/*; a recursive `chmod` that opens these places to all; and running in an interpreter what curl,
wget and the like bring or base64 decodes, also by way of a file. Quoting, prefixes such as `sudo`,
chains, pipes, substitutions and scripts in arguments, here-documents and pipes are seen through.

It is a seat-belt, not a wall: it stops accidents and obvious spellings. Ways round it that are
known: words assembled at run time (`eval` of computed text, positional parameters of functions),
scripts in files, also those that an earlier command downloaded, other programs that delete or
download (`python -c`, `rsync --delete`), links to these places, paths that climb. What a command
may really reach is for the sandbox to say.
"""

import re
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from itertools import takewhile

from loom_audit.errors import BlockedCommand
from loom_audit.model.shell.parse import DEEPEST, parse
from loom_audit.model.shell.words import (
    ANY,
    ASSIGNMENT,
    CLEAN,
    HOME,
    LITERAL,
    PIPE_FILE,
    REF,
    REFERENCE,
    SET,
    SHELLS,
    STAR,
    UNKNOWN,
    Budget,
    Command,
    Flow,
    Script,
)
from loom_audit.tools.guard.programs import (
    MAKERS,
    REMOVERS,
    destroys,
    find_start,
    is_device,
    shown,
)
from loom_audit.tools.guard.unread import (
    FETCHERS,
    MARKS,
    copied_to,
    how_made,
    outputs_of,
    place_of,
    unread_in,
)

_SHELLS = SHELLS | {"yash", "fish", "rbash", "csh", "tcsh"}
_INTERPRETER = re.compile(r"(python|pypy|perl|ruby|node|nodejs|php|lua|tclsh|deno|bun)[0-9.]*")
_DANGEROUS = sorted(REMOVERS | MAKERS | FETCHERS | _SHELLS | {"dd", "chmod", "find", "sudo"})
_STDIN = {"-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0"}
# the options that take a separate argument, and how many operands stand before the command
_PREFIXES: dict[str, tuple[str, int]] = {
    "sudo": ("-u -g -h -p -C -D -R -T -U -r -t --user --group --chdir", 0),
    "doas": ("-u -C", 0),
    "pkexec": ("--user", 0),
    "env": ("-u -C --unset --chdir", 0),
    "nice": ("-n --adjustment", 0),
    "ionice": ("-c -n -p --class --classdata", 0),
    "nohup": ("", 0),
    "setsid": ("", 0),
    "timeout": ("-k -s --kill-after --signal", 1),
    "gtimeout": ("-k -s", 1),
    "-p": ("", 0),  # what is left of the keyword `time -p`
    "time": ("-f -o", 0),
    "stdbuf": ("-i -o -e", 0),
    "chrt": ("", 1),
    "taskset": ("", 1),
    "command": ("", 0),
    "builtin": ("", 0),
    "exec": ("-a", 0),
    "busybox": ("", 0),
    "toybox": ("", 0),
    "chroot": ("", 1),
    "strace": ("-e -o -p -s -u", 0),
    "fakeroot": ("", 0),
    "unshare": ("", 0),
    "caffeinate": ("-t -w", 0),
    "flock": ("-w -E --timeout", 1),
    "ssh": ("-b -c -D -E -e -F -I -i -J -L -l -m -O -o -p -Q -R -S -W -w", 1),
    "watch": ("-n --interval", 0),
    "xargs": ("-I -n -P -L -d -s -E -a --max-args --max-procs --delimiter --arg-file", 0),
    "parallel": ("-j --jobs", 0),
}
_JOINING = {"ssh", "watch"}
_EVALUATORS = {"eval", "trap", "alias"}
_SCRIPT_OPTION = {"su", "runuser", "script", "flock"}
Env = dict[str, tuple[str, ...]]
_ENV: Env = {"PWD": (".",)}


def blocked(command: str) -> str | None:
    """Return why the command is refused, for a person to read, or None.

    Never raises; linear in length.
    """
    cleaned = command.translate(CLEAN)
    return _Judge(Budget(8 * len(cleaned) + 200_000)).script(cleaned, Flow(), ".", _ENV)


def check_command(command: str) -> None:
    """Raise BlockedCommand when the blocklist of this module refuses the command."""
    reason = blocked(command)
    if reason is not None:
        unread = "Fetch or decode it in one call, read it, and run it in another"
        inside = "Name only paths inside the workspace"
        raise BlockedCommand(
            f"The command is blocked: it {reason}",
            hint=f"{unread if reason.startswith('runs what') else inside}; a person can run it "
            "in a terminal.",
            details={"reason": reason},
        )


class _Judge:
    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.depth = 0
        self.unread: dict[str, str] = {}
        """The files into which a text goes that nobody has read, with how it came about."""

    def script(self, text: str, stdin: Flow, cwd: str = "", env: Env | None = None) -> str | None:
        script = parse(text, self.budget, env=env, stdin=stdin, cwd=cwd)
        for _ in range(2):  # a group's input may be written behind it
            for command in script.commands:
                self._connect(command, script)
        for command in script.commands:
            reason = self._command(command, script)
            if reason is not None:
                return reason
        return None if script.whole else "holds more commands in commands than can be judged"

    def _command(self, command: Command, script: Script) -> str | None:
        for target in command.writes:
            for each in _resolved([target], script):
                if is_device(each, command.cwd):
                    return f"writes to a device: > {shown([each])}"
        words = _resolved(command.words, script)
        unread, texts = self._input(command, script)
        source = Flow(unread=unread, texts=texts)
        return self.words(words, source, command.cwd, script.env)

    def _connect(self, command: Command, script: Script) -> None:
        """Tells the pipes behind a command, and the files it writes, what it puts into them."""
        unread, texts = self._input(command, script)
        writes = [*_resolved(command.writes, script)]
        if command.inner is not None:
            reads = _resolved(command.reads, script)
            own = unread_in(reads) or self._of_files(reads, command.cwd)
            command.inner.add(own, _resolved(command.texts, script))
            self._note(writes, command.result.unread if command.result else "", command.cwd)
            return
        words = _resolved(command.words, script)
        name, args, _ = _unwrapped(words, Flow())
        copied = self._of_files(args, command.cwd)
        unread = unread or copied or how_made(name, args)
        said: list[str] = []
        if name in ("echo", "printf"):
            unread = unread_in(args)
            while args and args[0] in ("-n", "-e", "-E", "-ne", "-en", "--"):
                args = args[1:]
            said = [" ".join(args).replace("\\n", "\n")]
        elif name in ("cat", "tee"):
            said = texts
            unread = unread or unread_in(args)
            writes += args if name == "tee" else []
        elif name == "find":
            said = [find_start(args, command.cwd)]
        elif name == "ls":
            said = [word for word in args if not word.startswith("-")] or [command.cwd]
        elif name == "pwd":
            said = [command.cwd if command.cwd[:1] in ("/", HOME) else "."]
        elif name == "which" or words[:1] == ["command"]:
            said = words[-1:]
        for flow in (command.output, *command.outs):
            if flow is not None and (unread or said):
                flow.add(unread, said)
        self._note((*writes, *outputs_of(name, args)), unread, command.cwd)
        self._note(copied_to(name, args), copied, command.cwd)

    def _input(self, command: Command, script: Script) -> tuple[str, list[str]]:
        unread, texts = command.input.read()
        reads = _resolved(command.reads, script)
        own = _resolved(command.texts, script, split=False)
        own += [word.removeprefix(PIPE_FILE) for word in reads if PIPE_FILE in word]
        unread = unread or unread_in((*own, *reads)) or self._of_files(reads, command.cwd)
        return unread, own + texts

    def _note(self, paths: Iterable[str], how: str, cwd: str) -> None:
        """Notes that a text goes into files, when nobody has read it."""
        if how:
            places = [place_of(path, cwd) for path in paths]
            self.unread |= {place: how for place in places if place}

    def _of_files(self, paths: Sequence[str], cwd: str) -> str:
        """How the text of a file came about that nobody has read, or ""."""
        found = (self.unread.get(place_of(path, cwd)) for path in paths) if self.unread else ()
        return next(filter(None, found), "")

    def words(self, words: list[str], stdin: Flow, cwd: str, env: Env) -> str | None:
        """Judges one simple command and those in it."""
        if self.depth > DEEPEST:
            return f"hides commands in commands more than {DEEPEST} deep"
        self.depth += 1
        try:
            return self._program(words, stdin, cwd, env)
        finally:
            self.depth -= 1

    def _program(self, words: list[str], stdin: Flow, cwd: str, env: Env) -> str | None:
        """Judges what is behind the prefixes of a command."""
        name, args, prefixes = _unwrapped(words, stdin)
        if prefixes & _SCRIPT_OPTION or name in _SCRIPT_OPTION:
            inner = _option_value(args, "c")
            if inner is not None:
                return self.script(inner, stdin, cwd, env)
        reason = destroys(name, args, cwd)
        if reason is not None:
            return f"{reason}: {shown([name, *args])}"
        if name == "find":
            return self._find(args, stdin, cwd, env)
        if name in _SHELLS:
            return self._shell(args, stdin, cwd, env)
        if name in _EVALUATORS:
            return self._evaluated(name, args, stdin, cwd, env)
        if name in ("source", "."):
            return self._shell(args[:1], stdin, cwd, env) if args else None
        how = unread_in([name])
        if not how and _INTERPRETER.fullmatch(name):
            how = unread_in(args) or self._of_files(_program_file(args), cwd)
            how = how or (stdin.unread if _reads_program(args) else "")
        for word in words if not how else ():
            if "/" in word and _name(word) == name:
                how = how or self._of_files([word], cwd)
        return _runs(how, name, *args)

    def _evaluated(self, name: str, args: list[str], stdin: Flow, cwd: str, env: Env) -> str | None:
        operands = [word for word in args if not word.startswith("-") or name == "eval"]
        if name == "trap":
            operands = operands[:1]
        if name == "alias":
            operands = [word.partition("=")[2] for word in operands]
        text = " ".join(operands)
        if how := unread_in([text]):
            return _runs(how, name, *args)
        return self.script(text, stdin, cwd, env) if text else None

    def _shell(self, args: list[str], stdin: Flow, cwd: str, env: Env) -> str | None:
        takes_script = from_stdin = False
        at = 0
        while at < len(args) and args[at][:1] in ("-", "+") and len(args[at]) > 1:
            word = args[at]
            at += 1
            if word == "--":
                break
            if not word.startswith("--"):
                takes_script |= word[0] == "-" and "c" in word
                from_stdin |= word[0] == "-" and "s" in word
                at += word[-1] in "oO"
            else:
                at += word in ("--rcfile", "--init-file")
        rest = args[at:]
        if how := unread_in(rest[:1]):
            return _runs(how, "sh", *args)
        if takes_script:
            if not rest:
                return None
            names = {str(place): (word,) for place, word in enumerate(rest[1:10])}
            names["@"] = names["*"] = (" ".join(rest[2:10]),)
            return self.script(rest[0], stdin, cwd, env | names)
        if rest and not from_stdin and rest[0] not in _STDIN:
            text = rest[0].removeprefix(PIPE_FILE)
            if text != rest[0]:
                return self.script(text, stdin, cwd, env)
            return _runs(self._of_files(rest[:1], cwd), "sh", *args)
        if stdin.unread:
            return f"runs what it {stdin.unread}: … | {shown(['sh', *args])}"
        for text in stdin.texts:
            reason = self.script(text, Flow(), cwd, env)
            if reason is not None:
                return reason
        return None

    def _find(self, args: list[str], stdin: Flow, cwd: str, env: Env) -> str | None:
        start = find_start(args, cwd)
        if start and "-delete" in args:
            return f"removes everything below {shown([start])}: {shown(['find', *args])}"
        at = 0
        while at < len(args):
            at += 1
            if args[at - 1] not in ("-exec", "-execdir", "-ok", "-okdir"):
                continue
            inner = [*takewhile(lambda word: word not in (";", "+"), args[at:])]
            at += len(inner)
            if start:
                inner = [word.replace("{}", start) for word in inner]
                inner += ["-r"] if _unwrapped(inner, Flow())[0] in REMOVERS else []
            reason = self.words(inner, stdin, cwd, env)
            if reason is not None:
                return reason
        return None


def _resolved(words: list[str], script: Script, *, split: bool = True) -> list[str]:
    """The words with what substitutions are known to give in the place of each."""
    if not any(REF in word for word in words):
        return words
    found: list[str] = []
    for word in words:
        text = REFERENCE.sub(lambda match: _given(script.flows, int(match[2])), word)
        alone = REFERENCE.fullmatch(word) if split else None
        found += text.split() if alone and not alone[1] and text.strip() else [text]
    return found


def _given(flows: list[Flow], number: int) -> str:
    if number >= len(flows):
        return UNKNOWN
    flow = flows[number]
    if flow.unread:
        return MARKS[flow.unread]
    return "\n".join(flow.texts) if flow.texts else UNKNOWN


def _name(word: str) -> str:
    """The program a first word names: no directory, no unknown part, globs as they would match."""
    name = word.replace(UNKNOWN, "").rsplit("/", 1)[-1]
    if any(mark in name for mark in (STAR, ANY, SET)) and len(name) < 40:
        pattern = name.translate(LITERAL)
        return next((each for each in _DANGEROUS if fnmatchcase(each, pattern)), name)
    return name


def _unwrapped(words: list[str], stdin: Flow) -> tuple[str, list[str], set[str]]:
    """The program and its arguments behind `sudo`, `env X=1`, `xargs` and their like."""
    at, prefixes, extra = 0, set[str](), list[str]()
    while at < len(words):
        name = _name(words[at])
        at += 1
        if not name:
            continue
        if name not in _PREFIXES:
            return name, words[at:] + extra, prefixes
        prefixes.add(name)
        options, operands = _PREFIXES[name]
        with_value = options.split()
        placeholder = ""
        while at < len(words):
            word = words[at]
            if name == "env" and word.startswith(("-S", "--split-string")):
                text = word.removeprefix("-S").removeprefix("--split-string").lstrip("=")
                return "eval", [text, *words[at + 1 :]], prefixes
            if word[:1] == "-" and len(word) > 1:
                at += 2 if word in with_value else 1
                if name == "xargs" and word[:2] == "-I":
                    placeholder = word[2:] or "".join(words[at - 1 : at])
            elif name in ("env", "sudo", "doas") and (ASSIGNMENT.match(word) or word == "-"):
                at += 1
            elif operands:
                operands -= 1
                at += 1
            else:
                break
        if name in _JOINING:
            return "eval", words[at:], prefixes
        if name == "command" and words[at - 1] in ("-v", "-V"):
            break
        if name in ("xargs", "parallel"):
            given = [MARKS[stdin.unread]] if stdin.unread else " ".join(stdin.texts).split()
            if placeholder:
                filled = " ".join(given)
                words = [word.replace(placeholder, filled) for word in words[at:]]
                at = 0
            else:
                extra += given
            remover = at < len(words) and _name(words[at]) in REMOVERS
            extra += ["-r"] if given and remover else []
    return "", extra, prefixes


def _option_value(args: list[str], letter: str) -> str | None:
    for place, word in enumerate(args[:-1]):
        if word == "--command" or re.fullmatch(f"-[a-z]*{letter}", word):
            return args[place + 1]
    return None


def _program_file(args: list[str]) -> list[str]:
    """The file in which an interpreter with these arguments finds its program; none of others."""
    for at, word in enumerate(args):
        if not word.startswith("-"):
            return args[at : at + 1]
        if re.match(r"-[a-zA-Z]*[cemEnprR]", word):
            return []
    return []


def _runs(how: str, *words: str) -> str | None:
    return f"runs what it {how}: {shown([*words])}" if how else None


def _reads_program(args: list[str]) -> bool:
    """Whether an interpreter with these arguments takes its program from standard input."""
    for word in args:
        if word in _STDIN:
            return True
        if not word.startswith("-") or re.match(r"-[a-zA-Z]*[cemEnprR]", word):
            return False
    return True
