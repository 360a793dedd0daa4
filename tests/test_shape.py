"""The house rules that no linter knows."""

import ast
import re
import subprocess
import tomllib
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "loom_audit"
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if "__pycache__" not in p.parts)
TESTS = sorted((ROOT / "tests").rglob("*.py"))
LONGEST_MODULE = 500
"""About 400 lines is the rule; a module that is one thing may be longer, up to here."""

ONE_FILE = {"verify_alone.py": 740, "claude_code.py": 640, "codex.py": 600}
"""What is one thing although it is longer: a program that is copied and run alone, and all that a
client tells, whose hooks and transcripts tell of a call's end in the same words."""

LONGEST_FUNCTION = 60
"""Lines of the body: a command's signature is its options, one or more lines each."""

MOST_MODULES = 20
"""Modules of a folder."""

EMPTY_NAMES = {"Manager", "Service", "Handler", "Helper", "Util", "Utils", "Base", "Data", "Info"}
EMPTY_NAMES |= {"Snapshot"}
THREAD_HOPS = {"to_thread", "run_sync", "run_in_executor", "run_in_threadpool"}
# joined here, so that this file does not hold what it looks for
MACHINE_PATHS = ["/work" + tail for tail in ("/main", "/shared", "/.library")] + [
    "/ro" + "ot/",
    "/opt/" + "pypi",
    "/tmp/" + "loom/",
]
REGISTRY_HOSTS = ["py" + "pi.org", "python" + "hosted.org", "--index" + "-url", "index" + ".crates"]


def named(path: Path) -> str:
    return str(path.relative_to(ROOT))


def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"), str(path))


@dataclass(frozen=True)
class Shape:
    """What the rules ask of a module, which is parsed once for all of them."""

    functions: dict[str, int]
    classes: list[str]
    hops: bool
    unnamed: list[int]
    """Lines on which arguments are packed in a starred tuple, where no name tells what they are."""


@cache
def shape(path: Path) -> Shape:
    nodes = [*ast.walk(parsed(path))]
    functions = {
        node.name: (node.end_lineno or 0) - node.body[0].lineno + 1
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    names = {node.attr for node in nodes if isinstance(node, ast.Attribute)}
    names |= {node.id for node in nodes if isinstance(node, ast.Name)}
    classes = [node.name for node in nodes if isinstance(node, ast.ClassDef)]
    unnamed = [
        given.lineno
        for node in nodes
        if isinstance(node, ast.Call)
        for given in node.args
        if isinstance(given, ast.Starred) and isinstance(given.value, ast.Tuple | ast.List)
    ]
    return Shape(functions, classes, bool(names & THREAD_HOPS), unnamed)


@cache
def tracked() -> list[tuple[str, str]]:
    """Every text of the repository by its path; without git, of the source tree."""
    done = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
    )
    if done.returncode == 0:
        paths = [ROOT / name.decode() for name in done.stdout.split(b"\0") if name]
    else:
        folders = (PACKAGE, ROOT / "tests", ROOT / "templates", ROOT / "static", ROOT / "docs")
        paths = [path for folder in folders for path in folder.rglob("*") if path.is_file()]
    found = []
    for path in paths:
        if path.is_file() and "data" not in path.relative_to(ROOT).parts:
            with suppress(UnicodeDecodeError):
                found.append((named(path), path.read_text("utf-8")))
    return found


def test_modules_stay_short() -> None:
    lines = {path: len(path.read_text("utf-8").splitlines()) for path in MODULES}
    most = {path: ONE_FILE.get(path.name, LONGEST_MODULE) for path in MODULES}
    assert {named(path): lines[path] for path in MODULES if lines[path] > most[path]} == {}


def test_no_folder_of_the_package_is_overfull() -> None:
    counted = Counter(path.parent for path in MODULES)
    commands = PACKAGE / "cli"  # one module for each
    assert {
        named(folder): count
        for folder, count in counted.items()
        if count > MOST_MODULES and folder != commands
    } == {}


def test_functions_stay_short() -> None:
    # a migration's list of tables is as long as the tables are
    assert {
        f"{named(path)} {name}": size
        for path in MODULES
        if "migrations" not in path.parts
        for name, size in shape(path).functions.items()
        if size > LONGEST_FUNCTION
    } == {}


def test_classes_are_named_for_what_they_are() -> None:
    assert [
        f"{named(path)} {name}"
        for path in MODULES
        for name in shape(path).classes
        if {*re.findall("[A-Z][a-z0-9]*", name)} & EMPTY_NAMES
    ] == []


def test_no_code_is_packed_to_fit() -> None:
    texts = {path: path.read_text("utf-8") for path in [*MODULES, *TESTS]}
    skipping = re.compile(r"# fmt: *(?:skip|off)")
    assert [named(path) for path, text in texts.items() if skipping.search(text)] == []
    # a file without a starred bracket need not be parsed for it
    assert [
        f"{named(path)}:{line}"
        for path, text in texts.items()
        if re.search(r"\*[(\[]", text)
        for line in shape(path).unnamed
    ] == []


NAMED_TWICE = {
    # the schema of a table, for people who query a store, and its rows as they are read
    "EventRow",
    "PayloadRow",
    # a thing, and the page or the part of a page that shows it
    "Budget",
    "Facet",
    "Place",
    "Scope",
    # several pages have rows, and parts, and questions of their own
    "Part",
    "Question",
    "Row",
    # the model's session and that of Python code, both public; of a conversation the same
    "Conversation",
    "Session",
    # tools are named as models see them, their inputs and outputs after them
    "Edit",
    "Output",
    "SearchInput",
    "SearchOutput",
    "Undo",
    # one is of commands or databases, the other of what agents and people see
    "Before",
    "Check",
    "Command",
    "Connections",
    "Entry",
    "Evidence",
    "Findings",
    "Line",
    "Lines",
    "Subject",
    "Tally",
    # of a write, and of the demonstration
    "Step",
    # who appends events, and who wrote a line
    "Writer",
}
"""Names of two public classes: where one of them is met, its room says which."""


def test_one_name_is_of_one_public_class() -> None:
    named_in = Counter(
        name
        for path in MODULES
        # what is copied and run alone has names of its own
        if path.name not in ONE_FILE and "migrations" not in path.parts
        for name in {*shape(path).classes}
        if not name.startswith("_")
    )
    assert {name for name, times in named_in.items() if times > 1} == NAMED_TWICE


PASSES_ON = {
    # public Python names, which stand before ports that the ways in do not reach through
    "api/workspace.py AuditedWorkspace.is_alive",
    "history/read/conversation.py Conversation.sessions_within",
    "history/read/timeline.py Timeline.sessions",
    "history/read/timeline.py Timeline.session",
    "history/read/timeline.py Timeline.calls",
    "history/read/timeline.py Timeline.listed_changes",
    "history/read/timeline.py Timeline.events",
    "history/read/timeline.py Timeline.listed_call",
    "history/read/timeline.py Timeline.tree",
    "history/read/timeline.py Timeline.state",
    "history/read/timeline.py Timeline.history",
    # methods of ports, and of what makes adapters
    "disk/machine/locks.py DiskLock.answer_signals",
    "disk/writing/reservation.py DiskReservation.take",
    "sql/ground/connection.py Connection.execute",
    "wiring/adapters.py Adapters.projections",
    "wiring/adapters.py Adapters.marks",
    # an agent's tools get this of the timeline, and not the timeline
    "history/undo/own_calls.py OwnCalls.taken_back",
    "history/undo/own_calls.py OwnCalls.content",
    # one place for how something of ours is put into the words of a library or of the kernel
    "clients/fields.py answer",
    "disk/looking/inotify.py remove",
    "model/authorship/line_map.py encoded_map",
    # what its own object keeps is not for others to change
    "history/record/call_record.py CallRecord.add",
    # a tool that is made of a function is called as the function was
    "tools/calls/function.py FunctionTool.__call__",
}
"""Functions that hand on what they are given and add nothing, each kind with its reason."""


def test_no_function_only_passes_its_parameters_on() -> None:
    found = {
        f"{path.relative_to(PACKAGE)} {name}"
        for path in MODULES
        if "migrations" not in path.parts
        for name, function in functions_of(parsed(path).body)
        if passes_on(function)
    }
    assert found == PASSES_ON


def functions_of(
    nodes: list[ast.stmt], within: str = ""
) -> Iterator[tuple[str, ast.FunctionDef | ast.AsyncFunctionDef]]:
    """The functions of a module and the methods of its classes, each with its name."""
    for node in nodes:
        if isinstance(node, ast.ClassDef):
            yield from functions_of(node.body, f"{node.name}.")
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield within + node.name, node


def passes_on(function: ast.FunctionDef | ast.AsyncFunctionDef) -> bool:
    """Whether all that a function does is a call with its own parameters, each as it is.

    What is decorated does more: it is a route, or what it gives is kept.
    """
    body = [one for one in function.body if not is_text(one)]
    if len(body) != 1 or function.decorator_list or not isinstance(body[0], ast.Return | ast.Expr):
        return False
    value = body[0].value
    if isinstance(value, ast.Await | ast.YieldFrom):
        value = value.value
    if not isinstance(value, ast.Call):
        return False
    taken = function.args
    own = [one.arg for one in (*taken.posonlyargs, *taken.args, *taken.kwonlyargs)]
    own = [one for one in own if one not in ("self", "cls")]
    own += [f"*{taken.vararg.arg}"] if taken.vararg else []
    own += [f"**{taken.kwarg.arg}"] if taken.kwarg else []
    given = [ast.unparse(one) for one in value.args]
    given += [("" if key.arg else "**") + ast.unparse(key.value) for key in value.keywords]
    called = {one.id for one in ast.walk(value.func) if isinstance(one, ast.Name)}
    return bool(own) and sorted(own) == sorted(given) and called.isdisjoint(own)


def is_text(statement: ast.stmt) -> bool:
    return isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)


def test_threads_are_entered_in_one_module() -> None:
    hops = {named(path) for path in MODULES if shape(path).hops}
    assert hops <= {"loom_audit/tools/calls/thread.py"}


def test_nothing_is_left_to_be_done_in_the_code() -> None:
    words = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|HA" + r"CK)\b")
    assert [name for name, text in tracked() if name.endswith(".py") and words.search(text)] == []


@pytest.mark.parametrize("word", MACHINE_PATHS + REGISTRY_HOSTS)
def test_no_file_names_a_machine_or_a_registry(word: str) -> None:
    pattern = re.compile(r"(?<![\w.*-])" + re.escape(word))
    assert [name for name, text in tracked() if word in text and pattern.search(text)] == []


def test_no_text_cites_a_document_that_is_not_here() -> None:
    # joined here, so that this file does not hold what it looks for
    cited = re.compile(
        r"\bDES" + r"IGN\b|\b[Ss]pec(ification)? 00\d|\b[Ii]ssue #?\d|\.\./sh" + "ared"
    )
    assert [name for name, text in tracked() if cited.search(text)] == []


def test_templates_escape_everything() -> None:
    unsafe = re.compile(r"\|\s*safe\b|autoescape\s+false|Markup\(")
    places = [*(ROOT / "templates").rglob("*.html"), *(PACKAGE / "web").rglob("*.py")]
    found = [named(path) for path in places if unsafe.search(path.read_text("utf-8"))]
    assert found == []


def contract(name: str) -> dict[str, list[str]]:
    """The contract of import-linter that has this name."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    found = project["tool"]["importlinter"]["contracts"]
    return next(one for one in found if one["name"] == name)


WAYS_IN = contract("The ways in know the face of the store, not what stands behind it")


def test_ways_in_that_come_later_are_under_their_contract() -> None:
    for name in ("cli", "web", "demo", "proxy", "mcp_server", "daemon"):
        if (PACKAGE / name).exists() or (PACKAGE / f"{name}.py").exists():
            assert f"loom_audit.{name}" in WAYS_IN["source_modules"]


@pytest.mark.parametrize("name", WAYS_IN["source_modules"])
def test_a_way_in_reaches_through_nothing_that_it_is_given(name: str) -> None:
    """What it needs of the adapters is a method of the face; no import shows otherwise."""
    room = PACKAGE / name.removeprefix("loom_audit.")
    reached = {
        f"{named(path)}:{node.lineno} .{node.attr}"
        for path in MODULES
        if room in path.parents or path == room.with_suffix(".py")
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.Attribute) and node.attr in ("adapters", "attachment", "writer")
    }
    assert reached == set()


def test_pure_packages_that_come_later_are_under_their_contract() -> None:
    pure = contract("What is decided is pure")
    for name in ("model", "ports", "clients", "exports", "history"):
        if (PACKAGE / name).exists() or (PACKAGE / f"{name}.py").exists():
            assert f"loom_audit.{name}" in pure["source_modules"]
