"""What a shell would be asked to run: the simple commands of a POSIX or bash text.

One pass with a stack of its own, so that any text is read in linear time and at any depth, and
nothing is an error: other text is read as the words that are there. Variables assigned in
the same text are expanded. Not a library, because bashlex is GPL, and tree-sitter-bash and shfmt
leave quote removal and expansion to the caller.
"""

import re
from collections.abc import Mapping

from loom_audit.model.shell.words import (
    ASSIGNMENT,
    BRACES,
    GLOBS,
    HOME,
    LITERAL,
    LONGEST_VALUE,
    MOST_ALTERNATIVES,
    PIPE_FILE,
    REF,
    UNKNOWN,
    Budget,
    Command,
    Flow,
    Frame,
    Script,
    alternatives,
    unescaped,
)

DEEPEST = 12
"""Texts inside texts (`sh -c "sh -c …"`, backticks) that are looked into."""
_PLAIN = re.compile(r"[^ \t\n\\'\"`$<>|&;()#*?\[{},~]+")
_QUOTED = {'"': re.compile(r"[^\"\\$`]+"), "body": re.compile(r"[^\\$`]+")}
_BRACED = re.compile(r"[^\"'\\$`}]+")
_BACKTICKS = re.compile(r"`((?:[^`\\]++|\\.)*+)`", re.DOTALL)
_NUMBER = re.compile(f"[0-9]+|{BRACES['{']}[a-z]+{BRACES['}']}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*|[0-9@*#?$!-]")
_PARAMETER = re.compile(r"\{([#!]?)([A-Za-z0-9_]+|[@*#?$-])(?:\[[^]}]{0,99}\])?(:?[-=](?!\d))?")
_ANSI = re.compile(r"\$'((?:[^'\\]++|\\.)*+)'", re.DOTALL)
_REDIRECT = re.compile(r"<<<|<<-|<<|<>|<&|<|>>|>\||>&|>")
_DESCRIPTOR = re.compile(r"[0-9]+-?|-")
_TILDE = re.compile(r"~[A-Za-z0-9_.-]*(?=[/\s;|&<>()]|$)")
_OPENING = {"{", "if", "while", "until", "for", "select", "case"}
_GROUPS = {"group", "for", "case"}
_CLOSING = {"}", "fi", "done", "esac"}
_BETWEEN = {"then", "do", "else", "elif", "!", "time", "coproc"}
_DECLARING = {"export", "declare", "local", "readonly", "typeset"}


def parse(
    text: str,
    budget: Budget,
    *,
    env: Mapping[str, tuple[str, ...]] | None = None,
    stdin: Flow | None = None,
    cwd: str = "",
) -> Script:
    """Return the commands of a text; `env` maps variables to their possible values. No errors."""
    script = Script(env=dict(env or {}))
    _Reader(text, script, budget, stdin or Flow(), Flow(), cwd).run()
    return script


class _Reader:
    """Reads one text; substitutions push a frame and go on in the word they stand in."""

    def __init__(
        self, text: str, script: Script, budget: Budget, stdin: Flow, stdout: Flow, cwd: str
    ) -> None:
        self.text, self.script, self.budget = text, script, budget
        self.at = 0
        self.frames = [Frame("top", stdin, stdout, Command(stdin, cwd))]
        self.parens = 0
        self.pending: list[tuple[Command, str, bool, bool]] = []
        self.depth = 0

    def run(self, *, body: bool = False) -> None:
        if self.depth > DEEPEST or not self.budget.spend(len(self.text)):
            self.script.whole = False
            return None
        if body:
            self.frames[0].word, self.frames[0].inside = [], ["body"]
        while self.at < len(self.text):
            frame = self.frames[-1]
            if frame.inside:
                self._quoted(frame, frame.inside[-1])
            else:
                self._bare(frame)
        while True:
            self.frames[-1].inside.clear()
            frame = self._end_word(self.frames[-1])
            if len(self.frames) == 1:
                return self._end(frame)
            self._close()

    def _nested(self, text: str, stdout: Flow, *, body: bool = False) -> None:
        command = self.frames[-1].command
        stdin = Flow(origin=command.input)
        inner = _Reader(text, self.script, self.budget, stdin, stdout, command.cwd)
        inner.depth = self.depth + 1
        inner.run(body=body)

    def _add(self, frame: Frame, text: str, *, plain: bool = False) -> None:
        if frame.word is None:
            frame.word, frame.plain = [], True
        frame.plain &= plain
        frame.word.append(text)

    def _bare(self, frame: Frame) -> None:
        text, at = self.text, self.at
        run = _PLAIN.match(text, at)
        if run:
            self.at = run.end()
            return self._add(frame, run[0], plain=True)
        char = text[at]
        self.at += 1
        if char in " \t":
            self._end_word(frame)
            return None
        if char in "|&;\n()":
            return self._operator(frame, char)
        if char in "<>":
            return self._redirection(frame)
        if char in "$`":
            return self._expansion(frame, char, quoted=False)
        if char == "\\":
            self.at += 1
            if text[at + 1 : at + 2] != "\n":
                self._add(frame, text[at + 1 : at + 2] or "\\")
        elif char == '"':
            self._add(frame, "")
            frame.inside.append('"')
        elif char == "'":
            self._single(frame)
        elif char == "#" and frame.word is None and not frame.arithmetic:
            end = text.find("\n", at)
            self.at = len(text) if end < 0 else end
        elif char == "~":
            tilde = _TILDE.match(text, at)
            if tilde and (frame.word is None or frame.word[-1].endswith(("=", ":"))):
                self.at = tilde.end()
                char = HOME
            self._add(frame, char)
        else:
            self._add(frame, GLOBS.get(char) or BRACES.get(char, char), plain=True)
        return None

    def _single(self, frame: Frame) -> None:
        end = self.text.find("'", self.at)
        if end < 0:
            return self._add(frame, "'")
        self._add(frame, self.text[self.at : end])
        self.at = end + 1
        return None

    def _quoted(self, frame: Frame, inside: str | int) -> None:
        text = self.text
        pattern = _BRACED if isinstance(inside, int) else _QUOTED[inside]
        run = pattern.match(text, self.at)
        if run:
            self.at = run.end()
            return self._add(frame, run[0])
        char = text[self.at]
        self.at += 1
        if char in "$`":
            within = isinstance(inside, str) or frame.inside[-2:-1] in (['"'], ["body"])
            return self._expansion(frame, char, quoted=within)
        if char == "\\":
            following = text[self.at : self.at + 1]
            self.at += 1
            kept = "" if isinstance(inside, int) or following in '$`"\\\n' else "\\"
            self._add(frame, kept + (following if following != "\n" else ""))
        elif char == '"' and inside == '"':
            frame.inside.pop()
        elif char == '"':
            frame.inside.append('"')
        elif char == "'":
            self._single(frame)
        elif isinstance(inside, int):
            frame.inside.pop()
            if inside >= 0 and frame.word is not None:
                del frame.word[inside:]
        return None

    def _end_word(self, frame: Frame) -> Frame:
        """Puts the word read just now where it belongs; gives the frame that is open then."""
        if frame.word is None:
            return frame
        text, plain, command = "".join(frame.word), frame.plain, frame.command
        frame.word = None
        if frame.redirect:
            operator, frame.redirect = frame.redirect, ""
            self._redirected(command, operator, text, plain)
        elif not command.words and plain and self._keyword(text.translate(LITERAL)):
            return self.frames[-1]
        elif not command.words and frame.kind not in ("for", "case") and ASSIGNMENT.match(text):
            self.script.assign(text)
        elif command.words == ["function"]:
            command.words.clear()
        elif text or not plain:
            command.words += alternatives(text) if frame.kind != "case" else [text]
        return frame

    def _expansion(self, frame: Frame, char: str, *, quoted: bool) -> None:
        text, at = self.text, self.at
        if char == "`":
            return self._backticks(frame)
        following = text[at : at + 1]
        if following == "(":
            arithmetic = text[at + 1 : at + 2] == "("
            self.at += 2 if arithmetic else 1
            self._add(frame, "")
            return self._open("((" if arithmetic else "$(")
        if following == "{":
            return self._parameter(frame, quoted)
        ansi = None if quoted else _ANSI.match(text, at - 1)
        if ansi:
            self.at = ansi.end()
            return self._add(frame, unescaped(ansi[1]))
        name = _NAME.match(text, at)
        if name:
            self.at = name.end()
            return self._add(frame, self.script.value(name[0], self.budget, quoted=quoted))
        if following != '"' or quoted:
            self._add(frame, "$")
        return None

    def _backticks(self, frame: Frame) -> None:
        found = _BACKTICKS.match(self.text, self.at - 1)
        if found is None:
            return self._add(frame, "`")
        self.at = found.end()
        flow = Flow()
        self.script.flows.append(flow)
        self._refer(frame, len(self.script.flows) - 1)
        return self._nested(re.sub(r"\\([`$\\])", r"\1", found[1]), flow)

    def _parameter(self, frame: Frame, quoted: bool) -> None:
        found = _PARAMETER.match(self.text, self.at)
        if found is None:
            return self._add(frame, "$")
        self.at = found.end()
        value = UNKNOWN if found[1] else self.script.value(found[2], self.budget, quoted=quoted)
        if found[3] and value in (UNKNOWN, ""):
            self._add(frame, "")
            frame.inside.append(-1)
        else:
            self._add(frame, value)
            frame.inside.append(len(frame.word or ()))
        return None

    def _operator(self, frame: Frame, char: str) -> None:
        if char == "(":
            return self._parenthesis(frame)
        frame = self._end_word(frame)
        if char == ")":
            if frame.kind == "case":
                frame.command.words.clear()
            elif self.parens:
                while self.frames[-1].kind in _GROUPS:
                    self._close()
                self._close()
            else:
                self._end(frame)
            return None
        following = self.text[self.at : self.at + 1]
        if char == "&" and following == ">":
            self.at += 2 if self.text[self.at + 1 : self.at + 2] == ">" else 1
            frame.redirect = ">"
            return None
        piped = char == "|" and following != "|"
        if (following == char and char in "|&") or (char == "|" and following == "&"):
            self.at += 1
        waiting = char == "\n" and not frame.command.words and frame.command.input.link
        if not waiting or frame.command.inner is not None:
            self._end(frame, piped=piped)
        if char == "\n":
            self._here_documents()
        return None

    def _parenthesis(self, frame: Frame) -> None:
        if frame.word is not None and frame.plain and "".join(frame.word).endswith("="):
            frame.word = None
        frame = self._end_word(frame)
        if frame.command.words and self.text[self.at : self.at + 1] == ")":
            self.at += 1
            frame.command.words.clear()
            return
        if frame.command.words:
            self._end(frame)
        self._open("(", arithmetic=frame.arithmetic or self.text.startswith("(", self.at))

    def _open(self, kind: str, *, arithmetic: bool = False) -> None:
        frame = self.frames[-1]
        command, number = frame.command, -1
        stdin, stdout = Flow(origin=command.input), Flow()
        if kind == ">(":
            stdin = Flow()
            command.outs.append(stdin)
        if kind in ("$(", "((", "<(", ">("):
            self.script.flows.append(stdout)
            number = len(self.script.flows) - 1
        inner = Command(stdin, command.cwd)
        arithmetic |= kind == "(("
        self.frames.append(Frame(kind, stdin, stdout, inner, arithmetic=arithmetic, flow=number))
        self.parens += kind not in _GROUPS

    def _close(self) -> None:
        frame = self.frames[-1]
        self._end(frame)
        self.frames.pop()
        outer = self.frames[-1]
        self.parens -= frame.kind not in _GROUPS
        if frame.kind == "((" and self.text[self.at : self.at + 1] == ")":
            self.at += 1
        if frame.flow >= 0:
            return self._refer(outer, frame.flow, PIPE_FILE if frame.kind in ("<(", ">(") else "")
        outer.command.inner, outer.command.result = frame.stdin, frame.stdout
        if frame.kind in _GROUPS:
            outer.command.cwd = frame.command.cwd
        return None

    def _refer(self, frame: Frame, flow: int, place: str = "") -> None:
        quoted = "q" if frame.inside[-1:] == ['"'] else ""
        self._add(frame, f"{place}{REF}{quoted}{flow}{REF}")

    def _keyword(self, word: str) -> bool:
        frame = self.frames[-1]
        if word in _OPENING:
            kinds = {"for": "for", "select": "for", "case": "case"}
            self._open(kinds.get(word, "group"))
        elif word in _CLOSING and frame.kind in _GROUPS:
            self._close()
        return word in _OPENING or word in _CLOSING or word in _BETWEEN

    def _end(self, frame: Frame, *, piped: bool = False) -> None:
        command = frame.command
        frame.redirect = ""
        command.output = Flow(link=True) if piped else frame.stdout
        if command.result is not None:
            command.result.into = command.output
        words = command.words
        cwd = command.cwd
        if frame.kind == "for" and command.inner is not None:
            frame.kind = "group"  # for ((…))
        elif frame.kind == "for" and words:
            frame.kind = "group"
            self.script.env[words[0]] = tuple(words[2 : 2 + MOST_ALTERNATIVES]) or (UNKNOWN,)
            words.clear()
        elif words and words[0] in _DECLARING:
            for word in words[1:]:
                self.script.assign(word)
        elif words and words[0] in ("cd", "pushd"):
            places = [word for word in words[1:] if not word.startswith("-")] or [HOME]
            cwd = places[0] if places[0][:1] in ("/", HOME) else f"{cwd}/{places[0]}" if cwd else ""
            cwd = cwd if len(cwd) <= LONGEST_VALUE else ""
        if words or command.writes or command.inner is not None or command.outs:
            self.script.commands.append(command)
        frame.command = Command(command.output if piped else frame.stdin, cwd)

    def _redirection(self, frame: Frame) -> None:
        at = self.at - 1
        if frame.arithmetic:
            return self._add(frame, self.text[at])
        if self.text[at + 1 : at + 2] == "(":
            self.at += 1
            self._add(frame, "")
            return self._open(self.text[at] + "(")
        if frame.word and frame.plain and _NUMBER.fullmatch("".join(frame.word[:3])):
            frame.word = None
        frame = self._end_word(frame)
        frame.redirect = (_REDIRECT.match(self.text, at) or ">")[0]
        self.at = at + len(frame.redirect)
        return None

    def _redirected(self, command: Command, operator: str, word: str, plain: bool) -> None:
        if operator == "<<<":
            command.texts.append(word)
        elif operator in ("<<", "<<-"):
            literal = word.translate(LITERAL)
            self.pending.append((command, literal, operator == "<<-", plain))
        elif operator in ("<", "<&"):
            command.reads.append(word)
        elif operator != ">&" or not _DESCRIPTOR.fullmatch(word):
            command.writes.append(word)

    def _here_documents(self) -> None:
        pending, self.pending = self.pending, []
        for command, word, tabs, expanded in pending:
            if self.budget.remaining <= 0:
                return
            last = ("\t*" if tabs else "") + re.escape(word)
            end = re.compile(f"(?m)^{last}$\n?").search(self.text, self.at)
            body = self.text[self.at : end.start() if end else None]
            self.budget.spend(len(body))
            command.texts.append(re.sub(r"(?m)^\t+", "", body) if tabs else body)
            if end:
                self.at = end.end()
                if expanded and ("$(" in body or "`" in body):
                    self._nested(body, Flow(), body=True)
