"""Names and docstrings keep to the words of docs/architecture.md."""

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TypeGuard

import loom_audit.errors

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "loom_audit"
SECTION = (ROOT / "docs" / "architecture.md").read_text("utf-8").split("## Words")[1]

ALONE = ("migrations/", "__main__.py", "__init__.py")
"""What nothing imports: Alembic names its functions."""

OF_TOOLS = {"execute", "preview", "requires_approval", "limit", "effects", "paths", "decide"}
"""Methods that `Tool` and `ApprovalGate` describe; the errors of each tool are in docs/tools.md."""

OF_OTHERS = re.compile(
    r"pytest_\w+|add(Success|Failure|Error|SubTest|Skip|\w+(Failure|Success))"
    r"|list_commands|get_command|resolve_command|shell_complete|format_commands"
)
"""Methods that pytest, unittest and click name and describe."""

FIELDS = {"Arguments", "Fields", "Output"}
"""Classes whose fields have descriptions, and whose docstrings would go into a tool's schema."""

ERRORS = {
    name
    for name, value in vars(loom_audit.errors).items()
    if isinstance(value, type) and issubclass(value, loom_audit.errors.AuditError)
}


Named = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def rows(head: str) -> list[list[str]]:
    """The rows of a table of the section on words, by the head of its first column."""
    _, table = SECTION.split(f"| {head} |", 1)
    lines = table.split("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in lines]


def quoted(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


ONE_MEANING = {quoted(word)[0]: quoted(places) for word, _, places in rows("name")}
NEVER = {quoted(word)[0]: quoted(places) for word, _, places in rows("never in a name")}


def is_read(path: str) -> bool:
    return not path.endswith(ALONE) and "migrations/" not in path


MODULES = sorted(
    name for path in PACKAGE.rglob("*.py") if is_read(name := path.relative_to(PACKAGE).as_posix())
)


@cache
def parsed(module: str) -> ast.Module:
    return ast.parse((PACKAGE / module).read_text("utf-8"), module)


@cache
def names(module: str) -> frozenset[str]:
    """The names that others read: of the module, its classes, functions, parameters and fields."""
    return frozenset(_names(module))


def _names(module: str) -> Iterator[str]:
    yield Path(module).stem
    tree = parsed(module)
    for statement in tree.body:
        if isinstance(statement, ast.Assign | ast.AnnAssign):
            yield from (one.id for one in ast.walk(statement) if is_stored(one))
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            yield node.name
            fields = [one.target for one in node.body if isinstance(one, ast.AnnAssign)]
            yield from (one.id for one in fields if isinstance(one, ast.Name))
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node.name
            given = node.args
            yield from (one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs))
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            yield node.attr


def is_stored(node: ast.AST) -> TypeGuard[ast.Name]:
    return isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)


@cache
def words(name: str) -> list[str]:
    """The words of a name, small: of `left_out` and of `LeftOut` left and out."""
    return [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]


@cache
def holds(name: str, phrase: str) -> bool:
    wanted, found = words(phrase), words(name)
    return any(found[n : n + len(wanted)] == wanted for n in range(len(found)))


def is_allowed(name: str, module: str, places: Sequence[str]) -> bool:
    """Whether one of the places is this name, this module or a room of it."""
    return any(module.startswith(p) if p.endswith(("/", ".py")) else holds(name, p) for p in places)


def test_the_tables_name_each_word_once() -> None:
    assert len(ONE_MEANING) >= 7 and len(NEVER) >= 10
    assert len({*ONE_MEANING, *NEVER}) == len(ONE_MEANING) + len(NEVER)


def test_a_word_of_one_meaning_stands_where_the_table_says() -> None:
    assert misplaced(ONE_MEANING) == set()


def test_no_name_is_a_riddle() -> None:
    assert misplaced(NEVER) == set()


def misplaced(table: dict[str, list[str]]) -> set[tuple[str, str]]:
    """The names that hold a word of a table outside the places which the table allows it."""
    return {
        (module, name)
        for module in MODULES
        for name in names(module)
        for word, places in table.items()
        if holds(name, word) and not is_allowed(name, module, places)
    }


def public(tree: ast.Module) -> Iterator[tuple[Named, str]]:
    """The public classes and functions, and the methods of the classes, each with its name."""
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
            if not {one.id for one in node.bases if isinstance(one, ast.Name)} & FIELDS:
                yield node, node.name
            for inner in node.body:
                if not isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef):
                    continue
                overload = "overload" in {ast.unparse(mark) for mark in inner.decorator_list}
                if not (inner.name.startswith("_") or inner.name in OF_TOOLS or overload):
                    yield inner, f"{node.name}.{inner.name}"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            marks = [mark.id for mark in node.decorator_list if isinstance(mark, ast.Name)]
            if not node.name.startswith("_") and "overload" not in marks:
                yield node, node.name


def test_what_is_public_has_a_sentence() -> None:
    assert [
        (module, name)
        for module in MODULES
        for node, name in public(parsed(module))
        if not ast.get_docstring(node) and not OF_OTHERS.fullmatch(node.name)
    ] == []


def test_a_function_names_the_errors_it_raises() -> None:
    assert [
        (module, name, error)
        for module in MODULES
        for node, name in public(parsed(module))
        if not (isinstance(node, ast.ClassDef) or is_command(node))
        for error in sorted(raised(node))
        if not re.search(rf"\b{error}\b", ast.get_docstring(node) or "")
    ] == []


def is_command(node: Named) -> bool:
    """Whether click makes a command of it: its docstring is the help, which says exit codes."""
    calls = (mark for mark in node.decorator_list if isinstance(mark, ast.Call))
    return any(isinstance(call.func, ast.Name) and call.func.id == "command" for call in calls)


def raised(function: ast.AST) -> set[str]:
    """The errors of ours that a function raises itself."""
    calls = (
        node.exc.func
        for node in ast.walk(function)
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call)
    )
    return {call.id for call in calls if isinstance(call, ast.Name) and call.id in ERRORS}
