"""Hands one call of an agent's hook to the warm process, and prints what that answers.

    python -I -S hook_client.py CLIENT [--strict] [--no-prompts] [--seconds N]

This file lies as `hook.py` in `<data folder>/hooks/`, beside the script that runs it and knows how
each client is told that a call is denied, and beside `daemon`, which says how the warm process is
started: words ended by NUL, the first ones variables of its environment.
Nothing is imported that is not built into the interpreter, but `_socket`: every call of the agent
waits for this.

The hook prints nothing and exits with 0 whatever goes wrong, so that the agent goes on as without
us; `--strict` makes a failure a denial. A call that cannot be handed over is noted in `spool`,
beside this file: a line that says which hook failed, in space that the warm process has reserved. A
session that is held (`<data folder>/held/`) is denied its calls also where no warm process answers.
"""

import _socket
import posix
import sys
import time

SOCKET = b"daemon.sock"
ELSEWHERE = b"?"
AGAIN = b"!"
ANSWER = b"="
ASKED = b"+"
UNANSWERED = b"who was asked whether this call may run went away"
NOT_RECORDED = b"loom-audit could not record this call, and was told to let none run unrecorded"
START_SECONDS = 10.0
FIRST_PAUSE = 0.5
LONGEST_PAUSE = 30.0
SPOOL = b"spool"
LONGEST_LINE = 4096
SECONDS = 600
REASON = b"REASON"


class Unanswered(OSError):
    """A person was asked, and the warm process went away before there was an answer."""


def read_all(descriptor: int) -> bytes:
    """All bytes of a descriptor, to the end of the file or stream."""
    parts = []
    while part := posix.read(descriptor, 1 << 20):
        parts.append(part)
    return b"".join(parts)


def field(data: bytes, name: bytes) -> bytes:
    """The text of a field at the beginning of a JSON object, empty where the text is escaped.

    The first place that has the name is taken: a parser of JSON is not built into the interpreter.
    """
    at = data.find(b'"' + name + b'"')
    if at < 0:
        return b""
    rest = data[at + len(name) + 2 :].lstrip(b" \t\r\n")
    rest = rest[1:].lstrip(b" \t\r\n") if rest[:1] == b":" else b""
    text = rest[1:].split(b'"', 1)[0] if rest[:1] == b'"' else b""
    return b"" if b"\\" in text else text


def sha256(data: bytes) -> str:
    """The SHA-256 in hex; `hashlib` would take longer to load than all else here."""
    try:
        made = __import__("_sha2").sha256(data)
    except ImportError:  # the interpreter is older than 3.12
        made = __import__("_sha256").sha256(data)
    return str(made.hexdigest())


def hold_reason(folder: bytes, session: bytes) -> bytes:
    """Why a session is held; empty when the session is not held."""
    try:
        if not session or not posix.listdir(folder + b"/held"):
            return b""
        name = sha256(session).encode()
        descriptor = posix.open(folder + b"/held/" + name, 0)
    except OSError:
        return b""
    try:
        return read_all(descriptor) or b"this session is held"
    finally:
        posix.close(descriptor)


def denial(form: bytes, reason: bytes) -> bytes:
    """The answer that denies a call: the form of the client, with the reason as JSON text."""
    text = b""
    for byte in reason:
        plain = 32 <= byte != 127 and byte not in b'"\\'
        text += bytes([byte]) if plain else b"\\u%04x" % byte
    return form.replace(REASON, text)


def namespace() -> bytes:
    """A name for the mount namespace of this process: a container has another one."""
    try:
        return posix.readlink(b"/proc/self/ns/mnt").strip(b"mnt:[]")
    except OSError:
        return b"other"


def connect(name: bytes) -> _socket.socket | None:
    """A connection to a warm process of the same user, None where no process answers.

    SO_PEERCRED (unix(7)) says who listens: a socket that another user put here is told nothing.
    """
    found = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
    try:
        found.connect(name)
        if hasattr(_socket, "SO_PEERCRED"):
            seen = found.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
            if int.from_bytes(seen[4:8], sys.byteorder) != posix.geteuid():
                raise OSError
    except OSError:
        found.close()
        return None
    return found


def ask(connection: _socket.socket, header: bytes, here: int, data: bytes, seconds: float) -> bytes:
    """The answer of the warm process to one hook; empty when the process went away.

    The working folder goes along as an open descriptor (SCM_RIGHTS, unix(7)), which means the same
    folder in every mount namespace; the end of the input is said by closing our half.
    """
    connection.settimeout(seconds)
    rights = here.to_bytes(4, sys.byteorder)
    connection.sendmsg([header], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, rights)])
    rest = memoryview(data)
    while rest:
        rest = rest[connection.send(rest) :]
    connection.shutdown(_socket.SHUT_WR)
    told = b""
    try:
        while part := connection.recv(1 << 16):
            told += part
    except OSError:
        if told[:1] != ASKED:
            raise
    return told


def close_all_above(last: int) -> None:
    """Close every descriptor above this one.

    /proc names those that are open: the limit (RLIMIT_NOFILE) may be a thousand million.
    """
    try:
        found = [int(name) for name in posix.listdir(b"/proc/self/fd")]
    except OSError:
        posix.closerange(last + 1, posix.sysconf("SC_OPEN_MAX"))
        return
    for descriptor in found:
        if descriptor > last:
            posix.closerange(descriptor, descriptor + 1)


def check_pause(folder: bytes) -> None:
    """Raise OSError too soon after a start that failed; each failure makes the pause twice as long.

    The file `failed` has a byte for each failure; its time is that of the last one.
    """
    try:
        failed = posix.stat(folder + b"/hooks/failed")
    except OSError:
        return
    pause = min(FIRST_PAUSE * 2.0 ** min(failed.st_size - 1, 10), LONGEST_PAUSE)
    if abs(time.time() - failed.st_mtime) < pause:
        raise OSError


def start(folder: bytes, name: bytes) -> int:
    """Start the warm process, of which only one stays; it inherits nothing of the client."""
    check_pause(folder)
    descriptor = posix.open(folder + b"/hooks/daemon", 0)
    try:
        words = read_all(descriptor).rstrip(b"\0").split(b"\0")
    finally:
        posix.close(descriptor)
    kept = (b"LOOM_AUDIT_", b"PYTHON")
    environment = {k: v for k, v in posix.environ.items() if not k.startswith(kept)}
    while b"=" in words[0]:
        variable, _, value = words.pop(0).partition(b"=")
        environment[variable] = value
    started = posix.fork()
    if started:
        return started
    try:
        posix.setsid()
        null = posix.open(b"/dev/null", posix.O_RDWR)
        for descriptor in (0, 1, 2):
            posix.dup2(null, descriptor)
        close_all_above(2)
        posix.chdir(b"/")
        posix.execve(words[0], [*words, b"--socket", name], environment)
    finally:
        posix._exit(1)


def still_starts(started: int, folder: bytes) -> int:
    """The id of the started process, 0 once it ended as there is another; OSError if it failed."""
    ended, status = posix.waitpid(started, posix.WNOHANG)
    if ended and status:
        flags = posix.O_WRONLY | posix.O_CREAT | posix.O_APPEND
        mark = posix.open(folder + b"/hooks/failed", flags, 0o600)
        posix.write(mark, b".")
        posix.close(mark)
        raise OSError
    return 0 if ended else started


def reach(folder: bytes, name: bytes, deadline: float) -> _socket.socket:
    """A connection to the warm process, which is started where none answers. OSError."""
    posix.chdir(folder + b"/hooks")  # the path of a socket has at most 107 bytes
    found = connect(name)
    if found is None:
        started = start(folder, name)
        until = min(deadline, time.monotonic() + START_SECONDS)
        while found is None and time.monotonic() < until:
            time.sleep(0.01)
            found = connect(name)
            if found is None and started:
                started = still_starts(started, folder)
    if found is None:
        raise OSError
    return found


def given() -> _socket.socket | None:
    """A connection to the process that runs this client for us, None where there is none."""
    path = posix.environ.get(b"LOOM_AUDIT_HOOKS", b"")
    if not path:
        return None
    try:
        posix.chdir(path.rpartition(b"/")[0])
    except OSError:
        return None
    return connect(path.rpartition(b"/")[2])


def hand_on(folder: bytes, header: bytes, data: bytes, seconds: float) -> bytes:
    """What is to be printed, as the warm process says it. OSError when no process answers."""
    deadline = time.monotonic() + seconds
    here = posix.open(b".", posix.O_RDONLY)
    connection, name = given(), SOCKET
    for _ in range(3):
        connection = connection or reach(folder, name, deadline)
        try:
            told = ask(connection, header, here, data, max(0.01, deadline - time.monotonic()))
        except ConnectionError:  # it went away before it took this one up
            told = AGAIN
        finally:
            connection.close()
        connection = None
        if told[:1] == ASKED:
            told = told[1:]
            if not told:
                raise Unanswered
        if told[:1] == ANSWER:
            return told[1:]
        if told[:1] == ELSEWHERE:
            name = b"daemon-" + namespace() + b".sock"
        elif told[:1] != AGAIN:
            break
    raise OSError


def note(folder: bytes, who: bytes, data: bytes) -> None:
    """Note for the next warm process that a hook was not handed over: one line, one write.

    The note begins a line of its own, whatever a write on a full disk left at the end. Where the
    file was moved away or removed meanwhile, the note goes into the file that has its place.
    """
    names = (b"hook_event_name", b"session_id", b"tool_use_id", b"cwd", b"transcript_path")
    told = [who, *(field(data, name) for name in names)]
    told = [bytes(byte for byte in one if byte >= 32) for one in told]
    line = LONGEST_LINE * b" "
    while told and len(line) >= LONGEST_LINE:  # the longest is the path of the transcript, the last
        line = b"\nloom-failed 1 %.3f\t%s\n" % (time.time(), b"\t".join(told))
        told.pop()
    name = folder + b"/hooks/" + SPOOL
    flags = posix.O_WRONLY | posix.O_APPEND | posix.O_CREAT | posix.O_NOFOLLOW
    for _ in range(20):
        spool = posix.open(name, flags | posix.O_NONBLOCK, 0o600)
        seen = posix.fstat(spool)
        # a file of the person's own, which somebody has linked here, is not written
        if seen.st_mode & 0o170000 != 0o100000 or seen.st_nlink > 1:
            raise OSError
        if seen.st_nlink:
            posix.write(spool, line)
        posix.close(spool)
        try:
            now = posix.stat(name, follow_symlinks=False)
        except OSError:
            continue
        if (now.st_dev, now.st_ino) == (seen.st_dev, seen.st_ino):
            return


def main(arguments: list[str], denials: dict[tuple[bytes, bytes], bytes]) -> None:
    """Hand one hook on and print the answer.

    `denials` are the forms of a denial by client and by the name of the hook before a call.
    """
    words = [word.encode("utf-8", "surrogateescape") for word in arguments]
    folder = __file__.encode("utf-8", "surrogateescape").rsplit(b"/", 2)[0]
    client = words[0]
    seconds = int(words[words.index(b"--seconds") + 1]) if b"--seconds" in words else SECONDS
    flags = b"".join(b" " + word[2:] for word in words if word == b"--no-prompts")
    data = read_all(0)
    event = field(data, b"hook_event_name")
    before, reason = (client, event) in denials, b""
    try:
        header = b"loom-hook 1 %s %d%s\n" % (client, seconds, flags)
        answer = hand_on(folder, header, data, seconds * 0.95)
    except Unanswered:
        answer, reason = b"", UNANSWERED
    except Exception:  # noqa: BLE001 - whatever it is, the agent goes on, or is told
        answer = b""
        try:
            note(folder, client + flags, data)
        except OSError:
            answer = b""  # there is nowhere else to say it
        if before and b"--strict" in words:
            reason = NOT_RECORDED
    if before and not answer:  # the warm process puts right what is said of a session it knows
        reason = hold_reason(folder, field(data, b"session_id")) or reason
    if reason and not answer:
        answer = denial(denials[client, event], reason)
    while answer:
        answer = answer[posix.write(1, answer) :]


def run(arguments: list[str], denials: dict[tuple[bytes, bytes], bytes] | None = None) -> None:
    """Be this process to its end; nobody is told that something failed.

    The script that calls this may be of an earlier release, for the moment in which `connect`
    replaces both.
    """
    try:
        main(arguments, denials or {})
    finally:
        posix._exit(0)
