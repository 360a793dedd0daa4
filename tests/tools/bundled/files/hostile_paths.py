"""Paths that try to get out, that are malformed, or that only look so: what each must come to.

`{root}`, `{outside}` and `{name}` (the workspace's folder) are filled in. Kinds:

- `out`: leads outside; every tool refuses it with INVALID_PATH
- `none`: no path, or no file; every tool refuses it with a clear code
- `link`: a symlink that leads out or nowhere; refused by what follows it, while deleting and
  moving take the link itself
- `kept`: inside, and not to be changed
- `odd`: inside, however it looks; whatever comes of it happens inside
"""

UPS = [
    "..", "../", "../.", "./..", "../..", "../../..", "..//..", "../../../../../../../../..",
    "dir/../..", "dir/../../", "./dir/./../..", "dir//..//..", "a/b/../../..",
    "no/such/../../../x", "../outside", "../outside/", "../outside/known.txt",
    "dir/../../outside/known.txt", "./../outside/known.txt", "..//outside//known.txt",
    ".././outside/./known.txt", "../{name}/../outside/known.txt", "../{name}/../../etc/passwd",
    "../outside/new.txt", "../outside/new/deep/file.txt", "../outside/dir",
    "../outside/dir/deep.txt", "../../../etc/passwd", "dir/file/../../../outside/known.txt",
    "inside.txt/../../outside/known.txt", "../new-sibling", "../{name}x", "../{name}/../{name}x/f",
    "x/../../outside/.hidden", "../.", "..\n/../..", "../~", "/..", "/../", "/../../etc/passwd",
    "{root}/..", "{root}/../", "{root}/../outside/known.txt", "{root}/dir/../../outside/known.txt",
    "{root}/./../outside", "{root}//..//outside/new.txt", "{root}x", "{root}x/f",
    "{root}../outside", "{root}/../{name}x", "{root}/../../..",
]  # fmt: skip

ABSOLUTE = [
    "/", "//", "///", "/.", "/./", "//.", "/etc", "/etc/", "/etc/passwd", "//etc/passwd",
    "///etc///passwd", "/./etc/passwd", "/etc/./passwd", "/etc/../etc/passwd", "/etc/shadow",
    "/etc/hostname", "/tmp", "/tmp/", "/tmp/loom-hostile-new", "/tmp/../etc/passwd",
    "/var/../etc/passwd", "/" "root/.ssh/id_rsa", "/" "root/.bashrc", "/home", "/dev/null",
    "/dev/zero",
    "/dev/stdin", "/dev/stdout", "/dev/fd/0", "/dev/tty", "/dev/mem", "/dev/shm",
    "/dev/shm/loom-hostile-new", "/bin/sh", "/usr/bin/env", "/proc", "/proc/self",
    "/proc/self/root", "/proc/self/root/etc/passwd", "/proc/self/root{root}/inside.txt",
    "/proc/self/cwd", "/proc/self/cwd/README.md", "/proc/self/fd", "/proc/self/fd/0",
    "/proc/self/fd/3", "/proc/self/environ", "/proc/self/cmdline", "/proc/self/maps",
    "/proc/self/mem", "/proc/self/exe", "/proc/self/task", "/proc/thread-self/root",
    "/proc/1/root/etc/passwd", "/proc/1/environ", "/proc/sys/kernel/core_pattern", "/sys",
    "/sys/kernel", "/run", "/boot", "/loom-hostile-new", "/loom-hostile-new/x", "{outside}",
    "{outside}/", "{outside}/known.txt", "/{outside}/known.txt", "{outside}/new.txt",
    "{outside}/dir/../known.txt", "{outside}/../{name}x", "{outside}/dir/deep.txt",
]  # fmt: skip

# a folder on the way is a symlink that leads out
THROUGH = [
    *(
        f"{link}{rest}"
        for link in ("out", "absolute", "chain1", "dir/out", "slash{outside}")
        for rest in ("/known.txt", "/new.txt", "/dir/deep.txt", "//known.txt", "/./new/x")
    ),
    "up/outside/known.txt", "up/outside/new.txt", "dir/up/outside/known.txt",
    "in/up/outside/known.txt", "in/out/known.txt", "in/../out/known.txt", "chain2/known.txt",
    "etc/passwd", "etc/loom-hostile-new", "etc/../etc/passwd", "slash/etc/passwd",
    "slash/tmp/loom-hostile-new", "process/environ", "process/root/etc/passwd",
    "process/cwd/README.md", "process/fd/0", "working/README.md", "working/loom-hostile-new",
    "descriptors/0", "descriptors/3/x", "{root}/out/known.txt", "{root}/absolute/new.txt",
    "{root}/dir/out/known.txt", "{root}/up/outside/new.txt",
]  # fmt: skip

LINKS = [
    "out", "outfile", "absolute", "chain1", "chain2", "up", "dir/up", "dir/out", "in/out", "etc",
    "slash", "process", "working", "descriptors", "./out", "dir/../out", "{root}/out",
    "{root}/outfile", "dangling-out", "dangling-tmp", "loop1", "loop2", "itself",
]  # fmt: skip

NONE = [
    "", "\0", "a\0b", "inside.txt\0.png", "\0/etc/passwd", "../outside/known.txt\0", "/\0",
    "dir/\0/x", "{root}/\0", "/etc/passwd\0",
    "n" * 256, "n" * 300, "dir/" + "n" * 300, "é" * 150, "🙂" * 64,
    "n/" * 2500 + "n",
    "x" * 5000, "{root}/" + "n" * 300, "{root}/" + "y/" * 2200, "\ud800", "a\ud800b",
    "dir/\udbff", "\udfff/x", "\ud83d", "{root}/\ud800", "fifo", "socket", "device", "./fifo",
    "in/../fifo", "{root}/fifo", "{root}/socket", "fifo/x", "socket/x", "loop1/x", "loop2/x/y",
    "itself/x", "itself/itself", "inside.txt/x", "inside.txt/x/y", "dir/file/x", "linked-fifo/x",
    ".", "./", "./.", "dir/..", "{root}", "{root}/", "{root}/.", "/{root}", "{root}/dir/..",
    "a/b/../..", "no/../", "././././.", ".//",
]  # fmt: skip
WHOLE = frozenset({
    ".", "./", "./.", "dir/..", "{root}", "{root}/", "{root}/.", "/{root}", "{root}/dir/..",
    "a/b/../..", "no/../", "././././.", ".//",
})  # fmt: skip
"""Of NONE, those that name the workspace itself: to be listed and searched, and nothing else."""

KEPT = [
    ".git", ".git/", ".git/config", ".git/hooks/post-commit", ".git/new", "./.git/config",
    "dir/../.git/config", ".git//config", ".git/./config", "{root}/.git/config", "sub/.git/config",
    "sub/.git/hooks/pre-push", "sub/.git", "link-to-git/config", "link-to-git/hooks/new",
    ".loom-audit-tmp-1", "dir/.loom-audit-tmp-2",
]  # fmt: skip

ODD = [
    "..x", "x..", "...", "....", ".../x", "dir./file", "dir../file", "file.", "file ", " file",
    " ", "dir /x", ".. ", " ..", ".. /..x", "..;/x", "%2e%2e", "%2e%2e/outside/known.txt",
    "..%2foutside%2fknown.txt", "%2e%2e%2foutside", "%252e%252e/x", "..%c0%af..%c0%afetc", "%00",
    "a%00b", "\u2024\u2024/outside/known.txt", "\uff0e\uff0e/outside/known.txt",
    "..\uff0foutside\uff0fknown.txt", "..\u2215outside", "..\u2044outside",
    "\u2025/outside/known.txt", "\u2026", "..\\outside\\known.txt", "..\\..\\etc\\passwd",
    "dir\\..\\..\\x", "C:\\Windows\\win.ini", "C:/Windows/win.ini", "C:", "c:x",
    "\\\\server\\share\\x", "\\\\?\\C:\\x", "\\\\.\\pipe\\x", "CON", "NUL", "aux.txt", "LPT1",
    "COM1.log", "file::$DATA", "file.txt:stream", "~", "~/x", "~root/x", "$HOME/x", "${{HOME}}/x",
    "$(id)", "`id`", "*", "?", "[a]", "-rf", "--help", "-", "|id", ";id", "&", ">x", "a\nb", "\n",
    "a\rb", "\r\n", "a\tb", "\x1b[31mred\x1b[0m", "\x1b]0;title\x07", "\x7f", "\x01", "\b\b\b",
    "\u202egpj.exe", "\u2066x\u2069", "\u200b", "a\u200bb", "\ufeffx", "\u00a0", "\u2028", "é",
    "e\u0301", "ﬁle", "\u212a", "İ", "ß", "🙂", "\udcff", "\udcc3\udc28", "caf\udce9",
    "\udce2\udc80", "\udcc0\udcae\udcc0\udcae/x", "file:///etc/passwd",
    "file://{outside}/known.txt", "http://localhost/x", "data:,x", "Scratch://x", "SCRATCH://x",
    " scratch://x", "scratch:/x", "scratch:x", "./scratch://x", "dir/scratch://x", "INSIDE.TXT",
    "Dir/File", "inside.TXT", "dir//file", "dir///file", "dir/./file", "./dir/file",
    "./././dir/file", "dir/../dir/file", "in/file", "in/../inside.txt", "infile",
    "{root}/dir/file", "{root}//dir/file", "{root}/./dir/../inside.txt", "/{root}/inside.txt",
    "{root}/../{name}/inside.txt", "hard", "dir/hard", "in/hard", "new/../inside.txt", "dangling",
    "dangling/x", "linked-fifo", "inside.txt/", "inside.txt/.", "dir/file/", "n" * 255, "é" * 127,
    "a/" * 60 + "b", ".hidden", ".env", ".gitx", ".gitignore", ".git.", "git", ".loomignore",
    "dir/.hidden/x", "con/", "a" * 200 + "/" + "b" * 200,
    "__proto__", "None", "null", "{{}}", "{{root}}",
    "%s%n", "0",
]  # fmt: skip

SCRATCH = [
    "scratch://..", "scratch://../", "scratch://../x", "scratch://../../etc/passwd",
    "scratch://a/../../x", "scratch:///../x", "scratch:////etc/../../passwd", "scratch://./..",
    "scratch://a\0b", "scratch://\ud800", "scratch://../outside/known.txt",
]  # fmt: skip


def corpus() -> list[tuple[str, str]]:
    """Each path with its kind."""
    kinds = {
        "out": [*UPS, *ABSOLUTE, *THROUGH],
        "link": LINKS,
        "none": [*NONE, *SCRATCH],
        "kept": KEPT,
        "odd": ODD,
    }
    return [(path, kind) for kind, paths in kinds.items() for path in dict.fromkeys(paths)]
