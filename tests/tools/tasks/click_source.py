"""The sources of click 8.1.8 with a flaw, a long log and a picture; ten tasks in them."""

import re
import struct
import zlib
from pathlib import Path

from tests.tapes.releases import DATA, unpack_release
from tests.tools.tasks.model import Model
from tests.tools.tasks.project import Project, Task, lay_repository

TESTS = ("tests/test_utils.py", "tests/test_formatting.py")
UTILS = "src/click/utils.py"
ADDS = "        total_length += len(word) + (i > 0)\n"
UNCOLLECTED = """from click.version import __version__


def test_version_is_a_number():
    assert __version__.split(".")[0] == "8"
"""
LOGGED = (
    *(f"[{n:06}] reading sources... {n % 100}% docs/api.rst" for n in range(30_000)),
    "[030000] docs/quickstart.rst:114: while looking for a target",
    *(
        f"[{n:06}] ERROR: unknown target name: setuptools-integration"
        for n in range(30_001, 33_000)
    ),
    "[033000] build failed: what is wrong stands above the first ERROR",
)
RED, BLUE = b"\xd0\x20\x20", b"\x20\x20\xd0"
SMALLER = """
import struct, sys, zlib

source, target = sys.argv[1:]
data = open(source, "rb").read()
at, width, height, packed = 8, 0, 0, b""
while at < len(data):
    size, kind = struct.unpack(">I4s", data[at : at + 8])
    body, at = data[at + 8 : at + 8 + size], at + 12 + size
    if kind == b"IHDR":
        width, height = struct.unpack(">II", body[:8])
    packed += body if kind == b"IDAT" else b""
raw, step = zlib.decompress(packed), 100
rows = b""
for y in range(0, height, step):
    row = raw[y * (3 * width + 1) :][1 : 3 * width + 1]
    rows += b"\\0" + b"".join(row[3 * x : 3 * x + 3] for x in range(0, width, step))

def chunk(kind, body):
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

head = struct.pack(">IIBBBBB", -(-width // step), -(-height // step), 8, 2, 0, 0, 0)
with open(target, "wb") as file:
    file.write(b"\\x89PNG\\r\\n\\x1a\\n" + chunk(b"IHDR", head))
    file.write(chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))
"""


def lay_click(root: Path, python: Path) -> Project:
    """click as it was released, and what the tasks are about, in a repository without a name."""
    unpack_release(DATA / "click/click-8.1.8.tar.gz", root.parent)
    (root.parent / "click-8.1.8").rename(root)
    utils = root / UTILS
    source = utils.read_text()
    assert source.count(ADDS) == 1
    utils.write_text(source.replace(ADDS, ADDS.replace(" + (i > 0)", "")))
    (root / "tests/test_version.py").write_text(UNCOLLECTED)
    (root / "build.log").write_text("".join(f"{line}\n" for line in LOGGED))
    (root / "artwork").mkdir()
    (root / "artwork/banner.png").write_bytes(picture(1300, 1000))
    lay_repository(root)
    return Project(root, python)


def picture(width: int, height: int) -> bytes:
    """A PNG that nobody compressed: its left half is red, the right one blue."""
    row = b"\0" + RED * (width // 2) + BLUE * (width // 2)

    def chunk(kind: bytes, body: bytes) -> bytes:
        return (
            struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))
        )

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(row * height, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def first_pixel(png: bytes) -> bytes:
    """The colour at the left end of a picture's first row, as an eye would see it."""
    begin = png.index(b"IDAT") + 4
    [size] = struct.unpack(">I", png[begin - 8 : begin - 4])
    return zlib.decompress(png[begin : begin + size])[1:4]


def start_the_tests(model: Model) -> None:
    """tests/test_utils.py does not even begin. Have it run: pyproject.toml says how."""
    model.ask("run_tests", paths=["tests/test_utils.py"])
    name = model.find(r"No module named '(\w+)'")
    model.ask("list_files", path=".", glob=f"**/{name}/__init__.py")
    source = model.find(rf"^ *\d+ +(\S+)/{name}/__init__.py$")
    [(path, _)] = model.places(r"^\[tool\.pytest", "pyproject.toml")
    head = model.find(r"\[tool\.pytest.*\]")
    model.replace(path, f"{head}\n", f'{head}\npythonpath = ["{source}"]\n')
    model.ask("run_tests", paths=["tests/test_utils.py"])
    model.find(r"\d+ passed")


def tests_begin(project: Project) -> None:
    project.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only", TESTS[0])


def mend_what_fails(model: Model) -> None:
    """tests/test_utils.py and tests/test_formatting.py do not pass. Mend click, not the tests."""
    model.ask("run_tests", paths=[*TESTS])
    where, line = model.find(r"^(tests/\S+):(\d+): in test_")
    model.lines(where, int(line) - 3, int(line))
    function = model.find(r"= click\.\w+\.(\w+)\(")
    [(path, begin)] = model.places(rf"def {function}\(")
    model.lines(path, begin, begin + 50)
    wrong = model.find(r"^ *\d+\t( *total_length \+= len\(word\).*)$")
    less = model.find(r"total_length -= len\(words\[i\]\)(.*)$")
    model.replace(path, f"{wrong}\n", f"{wrong}{less}\n")
    model.ask("run_tests", paths=[*TESTS])
    model.find(r"^pytest: \d+ passed")


def what_failed_is_mended(project: Project) -> None:
    assert project.text(UTILS).count(ADDS) == 1
    project.test(*TESTS)


def rename_a_function(model: Model) -> None:
    """click's strip_ansi shall be called without_ansi everywhere in src.

    tests/test_utils.py and tests/test_formatting.py pass before and after.
    """
    model.ask("search_files", pattern=r"\bstrip_ansi\b", path="src", count=True)
    for path in model.find_all(r"^(\S+): \d+$"):
        model.places(r"\bstrip_ansi\b", path)
        edits = [
            {"old_str": line, "new_str": line.replace("strip_ansi", "without_ansi")}
            | {"replace_all": True}
            for line in dict.fromkeys(model.find_all(r"^\S+?:\d+:\s+(.*)$"))
        ]
        model.ask("edit_file", path=path, edits=edits)
        model.find("^Edited ")
    model.ask("run_tests", paths=[*TESTS])
    model.find(r"^pytest: \d+ passed")


def function_is_renamed(project: Project) -> None:
    texts = [path.read_text() for path in (project.root / "src").rglob("*.py")]
    assert sum(text.count("without_ansi") for text in texts) == 11
    assert not any(re.search(r"\bstrip_ansi\b", text) for text in texts)
    assert "def should_strip_ansi" in project.text("src/click/_compat.py")
    project.test(*TESTS)


def collect_a_test(model: Model) -> None:
    """tests/test_version.py cannot be collected. Have it run, and leave click as it is."""
    model.ask("run_tests", paths=["tests/test_version.py"])
    package = model.find(r"No module named '(\w+)\.\w+'")
    name = model.find(r"import (\w+)$")
    line = model.find(r"from .* import .*")
    model.places(rf"^{name} = ")
    model.find(rf"^src/{package}/__init__.py:\d+:")
    model.replace("tests/test_version.py", line, f"from {package} import {name}")
    model.ask("run_tests", paths=["tests/test_version.py"])
    model.find("^pytest: 1 passed$")


def module_is_collected(project: Project) -> None:
    project.test("tests/test_version.py")
    assert (
        project.git("status", "--porcelain", "src/click/__init__.py", "src/click/version.py") == ""
    )


def read_a_long_log(model: Model) -> None:
    """build.log has 2 MB. Write to NOTES.md which file and line the build failed at."""
    model.ask("read_file", path="build.log")
    word = model.find(r"above the first (\w+)$")
    [(path, first), *_] = model.places(word, "build.log")
    model.ask("read_file", path=path, line_offset=first - 1, line_limit=2)
    place = model.find(r"(\S+:\d+): while looking for a target")
    model.ask("write_file", path="NOTES.md", content=f"The build failed at {place}.\n")


def log_is_read(project: Project) -> None:
    assert "failed at docs/quickstart.rst:114." in project.text("NOTES.md")


def look_at_a_picture(model: Model) -> None:
    """Write below NOTES.md whether artwork/banner.png begins red or blue at its left."""
    model.ask("read_file", path="artwork/banner.png")
    model.find("too large to be shown, .*: make a smaller copy of it")
    small = {"args": ["artwork/banner.png", "artwork/small.png"]}
    model.ask("run_code", language="python", code=SMALLER, **small)
    copy = model.find(r"\[changed: (\S+)\]")
    model.ask("read_file", path=copy)
    model.find("it goes with this answer")
    seen = {RED: "red", BLUE: "blue"}[first_pixel(model.told.picture)]
    model.ask("delete_file", path=copy)
    model.ask("edit_file", path="NOTES.md", old_str="", new_str=f"The banner begins {seen}.\n")


def picture_was_seen(project: Project) -> None:
    assert "The banner begins red." in project.text("NOTES.md")
    assert not (project.root / "artwork/small.png").exists()


def ask_a_server(model: Model) -> None:
    """Serve docs with Python's own server; write its status for quickstart.rst below NOTES.md."""
    model.ask("bash", command="python3 -u -m http_server 8000 -d docs", background=True)
    model.wait_for(model.find(r"^bg\d+"), r"No module named http_server(?s:.*) has ended")
    model.ask("bash", command="python3 -u -m http.server 8000 -d docs", background=True)
    id = model.find(r"^bg\d+")
    port = model.wait_for(id, r"port (\d+)")
    page = f"http://localhost:{port}/quickstart.rst"
    code = f"from urllib.request import urlopen; print('status', urlopen('{page}').status)"
    model.ask("bash", command=f'python3 -c "{code}"')  # where nobody listens
    beside = model.find(r'with in="(\w+)" a command reaches its localhost')
    model.ask("bash", command=f'python3 -c "{code}"', in_=beside)
    status = model.find(r"^status (\d+)$")
    model.ask("bash_stop", id=id)
    model.ask("edit_file", path="NOTES.md", old_str="", new_str=f"The page gives {status}.\n")


def server_was_asked(project: Project) -> None:
    assert "The page gives 200." in project.text("NOTES.md")


def take_back_a_mistake(model: Model) -> None:
    """All comments `# type: ignore` in src/click shall go, and nothing else.

    tests/test_utils.py and tests/test_formatting.py pass before and after.
    """
    model.ask("bash", command="sed -i 's/ *#.*//' src/click/*.py")
    model.find(r"\[changed: src/click/")
    model.ask("run_tests", paths=[*TESTS])
    assert not model.sees("^pytest: \\d+ passed$")
    model.ask("history", limit=5)
    call = int(model.find(r"^#(\d+) .* bash ok changed"))
    model.ask("undo", call=call)
    model.find(rf"^Took back call {call} \(bash\): \d+ paths changed")
    model.ask("bash", command="sed -i 's/ *# type: ignore.*//' src/click/*.py")
    model.ask("run_tests", paths=[*TESTS])
    model.find("^pytest: \\d+ passed")


def mistake_is_taken_back(project: Project) -> None:
    text = project.text("src/click/core.py")
    assert "# type: ignore" not in text and "\n    # " in text
    changed = project.git("diff", "--numstat", "HEAD", "src/click/types.py").split()
    assert changed[0] == changed[1] != "0"
    project.test(*TESTS)


def find_by_words(model: Model) -> None:
    """Below src a function condenses a help text; its docstring shall begin `Shorten a help`."""
    model.ask("search_code", query="condensed version of help text", path="src")
    path, line = model.find(r"^(src/\S+?):(\d+): .*condensed")
    model.ask("read_file", path=path, line_range=[int(line), int(line)])
    shown = model.find(r"^ *\d+\t.*condensed.*$")
    model.ask("edit_file", path=path, old_str=shown, new_str='    """Shorten a help text."""')
    model.find("bears the line numbers")
    text = shown.partition("\t")[2]
    model.replace(path, text, '    """Shorten a help text."""')


def docstring_is_changed(project: Project) -> None:
    code = "from click.utils import make_default_short_help as f; print(f.__doc__)"
    words = f"import sys; sys.path.insert(0, 'src'); {code}"
    assert project.run("-c", words).startswith("Shorten a help")


def commit_it(model: Model) -> None:
    """Commit everything, as `what ten tasks changed`."""
    model.ask("bash", command="git add -A && git commit -qm 'what ten tasks changed'")
    commit = model.find(r"\[HEAD: (\w+) on main\]")
    model.ask("bash", command="git log -1 --format='%H %an <%ae>'")
    model.find(rf"^{commit}\w* Ann <ann@example.org>$")


def all_is_committed(project: Project) -> None:
    who = project.git("log", "-1", "--format=%an <%ae>, %cn <%ce>: %s")
    assert who == "Ann <ann@example.org>, Ann <ann@example.org>: what ten tasks changed"
    assert project.git("status", "--porcelain") == ""


PICTURE = Task(look_at_a_picture, picture_was_seen)
TASKS = (
    Task(start_the_tests, tests_begin),
    Task(mend_what_fails, what_failed_is_mended),
    Task(rename_a_function, function_is_renamed),
    Task(collect_a_test, module_is_collected),
    Task(read_a_long_log, log_is_read),
    PICTURE,
    Task(ask_a_server, server_was_asked),
    Task(take_back_a_mistake, mistake_is_taken_back),
    Task(find_by_words, docstring_is_changed),
    Task(commit_it, all_is_committed),
)
