"""What a confined command must not reach, tried from inside, as root and as an ordinary user.

Every target lies in the test's own temporary folder, and nothing here runs unconfined. Where a
backend does not stop something, that is a test too: docs/confinement.md says it.
"""

import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sandbox.conftest import SOMEBODY, Confined

CALL = """
import ctypes, errno, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def call(number, *values):
    ctypes.set_errno(0)
    result = libc.syscall(number, *values)
    return errno.errorcode.get(ctypes.get_errno(), "OK") if result < 0 else "OK"
"""
ATTEMPT = """
import os, sys
def attempt(step, *values):
    try:
        step(*values)
    except OSError:
        return
    print("DONE", step.__name__, *values)
"""


def state(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_mode, path.read_bytes())
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def test_nothing_outside_can_be_read_or_listed(confined: Confined) -> None:
    (confined.root / "way").symlink_to(confined.outside)
    places = f"{confined.outside} {confined.home} {confined.home}/.ssh way/ .. /root /home"
    done = confined.shell(
        f"cat {confined.outside}/secret {confined.home}/.ssh/key way/secret ../outside/secret"
        f" /proc/1/root{confined.outside}/secret /etc/shadow /etc/ssl/private/*;"
        f" for p in {places}; do ls -A $p; done; cat /proc/*/root{confined.outside}/secret; true"
    )
    assert done.code == 0
    assert "kept-apart" not in done.said and "secret\n" not in done.stdout
    assert "key" not in done.stdout.split() and "root:" not in done.stdout


def test_nothing_outside_can_be_changed(confined: Confined) -> None:
    before = state(confined.outside), state(confined.home)
    text = f"""{ATTEMPT}
out = {str(confined.outside)!r}
def write(path, flags): os.write(os.open(path, flags), b"changed")
os.symlink(out, "way")
open("mine", "w").write("x")
for flags in (os.O_WRONLY, os.O_WRONLY | os.O_TRUNC, os.O_WRONLY | os.O_APPEND, os.O_RDWR):
    attempt(write, out + "/secret", flags)
    attempt(write, "way/secret", flags)
attempt(os.truncate, out + "/secret", 0)
attempt(os.unlink, out + "/secret")
attempt(os.rename, out + "/secret", "stolen")
attempt(os.rename, "mine", out + "/mine")
attempt(os.link, out + "/secret", "linked")
attempt(os.mkdir, out + "/new")
attempt(os.symlink, "x", out + "/link")
attempt(os.mknod, out + "/pipe", 0o10600)
for path in ("/usr/bin/x", "/etc/x", "/dev/x", {str(confined.home)!r} + "/x"):
    attempt(write, path, os.O_WRONLY | os.O_CREAT)
"""
    done = confined.python(text)
    assert (done.code, done.stderr) == (0, "")
    assert "DONE" not in done.stdout
    assert (state(confined.outside), state(confined.home)) == before
    assert sorted(os.listdir(confined.outside)) == ["secret"]


def test_one_that_is_read_only_changes_nothing_in_the_workspace(confined: Confined) -> None:
    (confined.root / "kept").write_text("1")
    confined.own()
    done = confined.run("sh", "-c", "cat kept; echo 2 > kept; rm kept; touch new", read_only=True)
    assert done.stdout == "1" and (confined.root / "kept").read_text() == "1"
    assert not (confined.root / "new").exists()


def test_modes_and_times_outside_are_out_of_reach_of_bubblewrap_only(confined: Confined) -> None:
    """Landlock has no say in chmod, chown, utime and extended attributes: docs/confinement.md."""
    secret = confined.outside / "secret"
    secret.chmod(0o600)
    text = f"import os; os.utime({str(secret)!r}, (1, 1)); os.chmod({str(secret)!r}, 0o640)"
    done = confined.python(text)
    changed = (secret.stat().st_mtime, secret.stat().st_mode & 0o777) == (1, 0o640)
    assert changed == (confined.backend == "landlock") == (done.code == 0)


def test_a_hard_link_that_was_there_before_leads_outside(confined: Confined) -> None:
    """No backend can tell its names apart: docs/confinement.md. A new one cannot be made."""
    os.link(confined.outside / "secret", confined.root / "linked")
    assert confined.shell("cat linked").stdout == "kept-apart"


def test_mounts_cannot_be_changed(confined: Confined) -> None:
    """Trap: with its capabilities user 0 remounts the root writable, or uncovers what is below."""
    done = confined.shell(
        f"mount -o remount,bind,rw /; mount -o remount,rw /usr; umount -l /tmp; umount /;"
        f" mount --bind {confined.root} /usr; cat {confined.outside}/secret; true > /usr/zz"
    )
    assert "kept-apart" not in done.stdout
    assert not Path("/usr/zz").exists()


def test_no_capability_is_left(confined: Confined) -> None:
    lines = confined.shell("cat /proc/self/status").stdout.splitlines()
    found = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    sets = {name: int(found[f"Cap{name}"], 16) for name in ("Prm", "Eff", "Amb", "Inh", "Bnd")}
    if confined.uid:
        del sets["Bnd"]  # what might be had is out of reach by NoNewPrivs
    assert set(sets.values()) == {0}
    assert found["NoNewPrivs"] == "1"


def test_the_kernels_files_cannot_be_opened_for_writing(confined: Confined) -> None:
    """Trap: user 0 owns /proc/sys and needs no capability. Opened only, nothing is written."""
    text = f"""{ATTEMPT}
def opened(path): os.close(os.open(path, os.O_WRONLY))
for folder, _, names in os.walk("/proc"):
    parts = folder.split("/")
    if len(parts) > 2 and (parts[2].isdigit() or parts[2] in ("self", "thread-self")):
        continue
    for name in names:
        attempt(opened, folder + "/" + name)
"""
    done = confined.python(text)
    allowed = {"/proc/self", "/proc/thread-self"}
    opened = {line.split()[2] for line in done.stdout.splitlines()} - allowed
    assert (done.code, done.stderr, opened) == (0, "", set())


@pytest.mark.parametrize("way", ["unshare", "clone", "clone3", "setns"])
def test_no_namespace_can_be_made_inside(confined: Confined, way: str) -> None:
    calls = {
        "unshare": "call({unshare}, 0x10000000)",
        "clone": "call({clone}, 0x10000000 | 17, None, None, None, None)",
        "clone3": "call(435, bytes(88), 88)",
        "setns": "call({setns}, os.open('/proc/self/ns/net', 0), 0)",
    }
    numbers = {"x86_64": (272, 56, 308), "aarch64": (97, 220, 268)}[os.uname().machine]
    named = dict(zip(("unshare", "clone", "setns"), numbers, strict=True))
    done = confined.python(CALL + f"print({calls[way].format(**named)})")
    assert done.stdout.strip() == ("ENOSYS" if way == "clone3" else "EPERM")


def test_doors_of_the_kernel_are_closed(confined: Confined) -> None:
    """io_uring opens sockets past a filter, keys and BPF belong to no namespace."""
    numbers = {
        "x86_64": {
            "io_uring_setup": 425,
            "bpf": 321,
            "keyctl": 250,
            "ptrace": 101,
            "userfaultfd": 323,
            "mount": 165,
            "open_by_handle_at": 304,
            "perf_event_open": 298,
            "process_vm_readv": 310,
        },
        "aarch64": {
            "io_uring_setup": 425,
            "bpf": 280,
            "keyctl": 219,
            "ptrace": 117,
            "userfaultfd": 282,
            "mount": 40,
            "open_by_handle_at": 265,
            "perf_event_open": 241,
            "process_vm_readv": 270,
        },
    }[os.uname().machine]
    text = CALL + f"for n, c in {numbers}.items(): print(n, call(c, 0, None, 0, 0, 0))"
    lines = confined.python(text).stdout.splitlines()
    assert lines == [f"{name} EPERM" for name in numbers]


def test_input_cannot_be_pushed_into_a_terminal(confined: Confined) -> None:
    text = """
import fcntl, os, pty
a, b = pty.openpty()
try:
    fcntl.ioctl(b, 0x5412, b"x")
except OSError as error:
    print(error.errno)
"""
    done = confined.python(text)
    # without a way to terminals there is none to push into either
    assert done.stdout.strip() == "1" or "pty devices" in done.stderr, done.said


@pytest.fixture
def listening(confined: Confined) -> Iterator[tuple[str, socket.socket]]:
    """A program that tries sockets of ours of every kind, and the UDP one of them."""
    kinds: dict[str, socket.socket] = {
        "path": socket.socket(socket.AF_UNIX),
        "abstract": socket.socket(socket.AF_UNIX),
        "tcp": socket.socket(socket.AF_INET),
        "udp": socket.socket(socket.AF_INET, socket.SOCK_DGRAM),
    }
    path, name = str(confined.outside / "socket"), f"loom-audit-{os.getpid()}"
    kinds["path"].bind(path)
    kinds["abstract"].bind("\0" + name)
    kinds["tcp"].bind(("127.0.0.1", 0))
    kinds["udp"].bind(("127.0.0.1", 0))
    Path(path).chmod(0o777)
    for kind in ("path", "abstract", "tcp"):
        kinds[kind].listen()
    kinds["udp"].setblocking(False)
    text = f"""
import socket
def tried(kind, family, address, what=socket.SOCK_STREAM):
    try:
        s = socket.socket(family, what)
        s.connect(address)
        s.send(b"out")
        print("REACHED", kind)
    except OSError:
        pass
tried("path", socket.AF_UNIX, {path!r})
tried("abstract", socket.AF_UNIX, "\\0{name}")
tried("tcp", socket.AF_INET, {kinds["tcp"].getsockname()!r})
tried("udp", socket.AF_INET, {kinds["udp"].getsockname()!r}, socket.SOCK_DGRAM)
tried("raw", socket.AF_INET, ("127.0.0.1", 0), socket.SOCK_RAW)
tried("packet", socket.AF_PACKET, ("lo", 0), socket.SOCK_RAW)
"""
    yield text, kinds["udp"]
    for open_socket in kinds.values():
        open_socket.close()


def test_without_network_nobody_is_reached(
    confined: Confined, listening: tuple[str, socket.socket]
) -> None:
    """Traps: a read-only mount stops no connect, and Landlock no UDP and no unix socket."""
    done = confined.python(listening[0])
    reached = {line.split()[1] for line in done.stdout.splitlines()}
    # into its own empty network a packet may be sent, and is lost there
    assert reached <= ({"udp"} if confined.backend == "bubblewrap" else set())
    with pytest.raises(BlockingIOError):
        listening[1].recv(10)


def test_with_network_the_network_is_reached_and_no_service_by_path(
    confined: Confined, listening: tuple[str, socket.socket]
) -> None:
    done = confined.python(listening[0], network=True)
    reached = {line.split()[1] for line in done.stdout.splitlines()}
    # abstract names belong to the network that is shared then: docs/confinement.md
    assert reached == {"tcp", "udp"} | ({"abstract"} & reached)
    assert "abstract" not in reached or confined.backend == "bubblewrap"


def test_own_servers_are_reached_in_bubblewrap(confined: Confined) -> None:
    if confined.backend == "landlock":
        pytest.skip("without network a command under Landlock can make no socket at all")
    text = """
import socket
s = socket.create_server(("127.0.0.1", 0))
c = socket.create_connection(s.getsockname())
a, _ = s.accept()
c.sendall(b"hello")
print(a.recv(5).decode())
"""
    assert confined.python(text).stdout == "hello\n"


def test_processes_outside_are_out_of_reach(confined: Confined) -> None:
    """Trap: as root the environment of others was readable under Landlock."""
    marker = "kept-apart-in-memory"
    sleeper = subprocess.Popen(
        ["sleep", "60"],
        env={"MARKER": marker},
        user=confined.uid if confined.uid == SOMEBODY else None,
    )
    try:
        text = f"""{ATTEMPT}
pid = {sleeper.pid}
for name in ("environ", "maps", "mem", "cwd", "exe", "fd", "root"):
    for folder in os.listdir("/proc"):
        if folder.isdigit():
            try:
                print(open(f"/proc/{{folder}}/{{name}}", "rb").read(100000))
            except OSError:
                pass
attempt(os.kill, pid, {int(signal.SIGTERM)})
attempt(os.pidfd_open, pid)
"""
        done = confined.python(text)
        assert marker not in done.stdout and done.code == 0
        assert f"DONE kill {sleeper.pid}" not in done.stdout
        assert sleeper.poll() is None
    finally:
        sleeper.kill()
        sleeper.wait()


def test_no_descriptor_is_inherited(confined: Confined) -> None:
    """Trap: an inheritable one, opened on a secret before, is readable in any sandbox."""
    text = """
import os
for fd in range(3, 64):
    try:
        print(fd, os.readlink(f"/proc/self/fd/{fd}"), os.read(fd, 100))
    except OSError:
        pass
"""
    done = confined.python(text, leaks=(str(confined.outside / "secret"),))
    assert (done.stdout, done.code) == ("", 0)


def test_keys_tokens_and_agents_of_ours_are_not_passed_on(confined: Confined) -> None:
    ours = {
        "SSH_AUTH_SOCK": "/run/kept-apart",
        "MY_API_KEY": "kept-apart",
        "DBUS_SESSION_BUS_ADDRESS": "unix:kept-apart",
        "LOOM_AUDIT_HOME": "/kept-apart",
        "LC_TIME": "C.UTF-8",
    }
    done = confined.shell("env; cat /proc/[0-9]*/environ | tr '\\0' '\\n'", ours=ours)
    assert "kept-apart" not in done.stdout and "LC_TIME=C.UTF-8" in done.stdout
    given = confined.run("sh", "-c", "echo $MY_API_KEY", variables={"MY_API_KEY": "given"})
    assert given.stdout == "given\n"


def test_its_home_is_a_folder_of_its_own_that_is_gone_afterwards(confined: Confined) -> None:
    text = "echo x > ~/a && mktemp > /dev/null && mkdir -m 0 $HOME/shut && echo $HOME"
    done = confined.shell(text)
    assert (done.code, done.stderr) == (0, "")
    home = Path(done.stdout.strip())
    assert home != confined.home and not home.exists()
    assert sorted(os.listdir(confined.home)) == [".ssh"]


def test_programs_in_the_home_are_found_and_the_home_is_not(confined: Confined) -> None:
    for name in ("tools/bin", "tools/lib", "tools/share", "bin"):
        (confined.home / name).mkdir(parents=True)
    for folder in ("tools/bin", "bin"):
        program = confined.home / folder / f"greet-{folder[0]}"
        program.write_text(f"#!/bin/sh\ncat {confined.home}/tools/lib/words\n")
        program.chmod(0o755)
    (confined.home / "tools/lib/words").write_text("hello\n")
    (confined.home / "tools/share/words").write_text("kept-apart\n")
    confined.own()
    ours = {"PATH": f"{confined.home}/tools/bin:{confined.home}/bin:/usr/bin:/bin"}
    done = confined.shell(f"greet-t; greet-b; cat {confined.home}/tools/share/words", ours=ours)
    assert done.stdout == "hello\nhello\n"
    assert "kept-apart" not in done.said
    assert "kept-apart" not in confined.shell(f"cat {confined.home}/.ssh/key", ours=ours).said


def test_a_call_cannot_show_itself_a_folder_by_its_own_path_variable(confined: Confined) -> None:
    """What a model gives as `env` chooses nothing: PATH of ours does."""
    folders = f"{confined.home}/.ssh:{confined.outside}:/usr/bin:/bin"
    done = confined.shell(
        f"/bin/cat {confined.home}/.ssh/key {confined.outside}/secret", variables={"PATH": folders}
    )
    assert done.code == 1 and "kept-apart" not in done.said


@pytest.mark.few(6)
@pytest.mark.parametrize("folder", [".venv/bin", "env/bin", "tools"])
@pytest.mark.parametrize("name", ["python", "key"])
def test_a_link_in_the_workspace_shows_no_folder_outside(
    confined: Confined, folder: str, name: str
) -> None:
    """A workspace's own environment leads to its interpreter, and an agent can make such links."""
    (confined.root / folder).mkdir(parents=True)
    for link in ("python", "python3", "node"):
        (confined.root / folder / link).symlink_to(confined.home / ".ssh" / name)
    confined.own()
    ours = {"PATH": f"{confined.root}/tools:/usr/bin:/bin"}
    said = confined.shell(f"cat {confined.home}/.ssh/key; ls {confined.home}/.ssh", ours=ours).said
    assert "kept-apart" not in said and "key\n" not in said


def test_a_folder_of_path_reached_through_the_workspace_is_not_followed_out(
    confined: Confined,
) -> None:
    """PATH names the workspace by another way, and the agent has put a link in its place."""
    (confined.folder / "way").symlink_to(confined.root)
    (confined.root / "bin").symlink_to(confined.home / ".ssh")
    ours = {"PATH": f"{confined.folder}/way/bin:/usr/bin:/bin"}
    said = confined.shell(f"cat {confined.folder}/way/bin/key", ours=ours).said
    assert "kept-apart" not in said


def test_what_the_settings_name_can_be_read_and_not_written(confined: Confined) -> None:
    secret = confined.outside / "secret"
    done = confined.shell(f"cat {secret}; echo x >> {secret}", readable=[str(confined.outside)])
    assert done.stdout == "kept-apart" and done.code != 0
    assert secret.read_text() == "kept-apart"


def test_a_further_writable_folder_is_writable(confined: Confined) -> None:
    done = confined.shell(f"echo x > {confined.outside}/new", writable=[str(confined.outside)])
    assert (done.code, (confined.outside / "new").read_text()) == (0, "x\n")


@pytest.mark.few(1)
def test_any_number_of_folders_can_be_shown(confined: Confined) -> None:
    """Trap: bubblewrap's options were written to a pipe, which holds 64 KiB, before it ran."""
    folders = [confined.outside / f"{number:03}{'x' * 200}" for number in range(400)]
    for folder in folders:
        folder.mkdir()
        (folder / "f").write_text(folder.name[:3])
    text = f"cat {folders[0]}/f {folders[-1]}/f; ls -l /proc/[0-9]*/fd 2>&1 | grep memfd"
    done = confined.shell(text, readable=tuple(map(str, folders)))
    assert done.stdout == "000399"


@pytest.mark.few(2)
def test_a_hidden_folder_is_not_shown_within_a_readable_one(confined: Confined) -> None:
    store = confined.outside / "store"
    store.mkdir()
    (store / "audit.db").write_text("kept-apart")
    confined.own()
    for readable in (confined.outside, store, store / "audit.db"):
        done = confined.shell(
            f"cat {store}/audit.db; ls {store}", readable=[str(readable)], hidden=(str(store),)
        )
        assert "kept-apart" not in done.said and "audit.db\n" not in done.stdout


def test_ordinary_work_goes_on(confined: Confined) -> None:
    done = confined.shell(
        "mkdir -p a/b && echo 1 > a/b/c && mv a/b/c a/d && ln -s d a/e && chmod 755 a/d &&"
        " cp -p a/d a/f && rm -r a/b && touch -d @1 a/f && test -x a/f && cat a/e &&"
        " /usr/bin/python3 -c 'import json, ssl, sqlite3, subprocess;"
        ' print(subprocess.check_output(["echo", "2"]).decode().strip())\' && cat < /dev/null &&'
        " date > /dev/null && head -c 4 /dev/urandom | wc -c"
    )
    assert (done.code, done.stdout, done.stderr) == (0, "1\n2\n4\n", "")


def test_git_commits_with_the_identity_of_the_environment(confined: Confined) -> None:
    names = {
        f"GIT_{who}_{what}": "a@b" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")
    }
    text = "git init -q . && echo 1 > f && git add f && git commit -q -m one && git log --format=%s"
    done = confined.shell(text, variables=names)
    assert (done.code, done.stdout) == (0, "one\n"), done.stderr


@pytest.mark.few(2)
def test_many_at_once_do_not_disturb_each_other(confined: Confined) -> None:
    said: list[str] = []
    threads = [
        threading.Thread(target=lambda n=n: said.append(confined.shell(f"echo {n}").stdout))
        for n in range(6)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == [f"{n}\n" for n in range(6)]


def test_what_is_where_is_seen_under_landlock_only(confined: Confined) -> None:
    """Landlock closes contents and lists, not stat; and shares the machine's processes."""
    marker = f"loom-audit-{os.getpid()}-argument"
    sleeper = subprocess.Popen(["/usr/bin/python3", "-c", "input()", marker], stdin=subprocess.PIPE)
    try:
        text = f"stat -c %s {confined.outside}/secret; cat /proc/*/cmdline | tr '\\0' '\\n'"
        done = confined.shell(text)
    finally:
        sleeper.kill()
        sleeper.communicate()
    seen = (done.stdout.startswith("10\n"), marker in done.stdout)
    assert seen == ((True, True) if confined.backend == "landlock" else (False, False))


def test_temporary_and_shared_memory_are_its_own_in_bubblewrap(confined: Confined) -> None:
    name = f"loom-audit-test-{os.getpid()}"
    text = f"echo x > /tmp/{name}; echo x > /dev/shm/{name}; cat /tmp/{name} /dev/shm/{name}"
    done = confined.shell(text)
    assert done.stdout == ("x\nx\n" if confined.backend == "bubblewrap" else "")
    assert not Path("/tmp", name).exists() and not Path("/dev/shm", name).exists()


def test_files_of_other_users_are_read_and_not_changed(confined: Confined) -> None:
    """Without capabilities root is a user like others: docs/confinement.md."""
    if os.geteuid() != 0:
        pytest.skip("only root can make files of other users")
    theirs = confined.root / "theirs"
    theirs.write_text("theirs")
    os.chown(theirs, SOMEBODY + 1, SOMEBODY + 1)
    theirs.chmod(0o644)
    done = confined.shell("cat theirs; echo x > theirs")
    assert done.stdout == "theirs" and done.code != 0
    assert theirs.read_text() == "theirs"
