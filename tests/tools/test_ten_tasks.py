"""A scripted model works in a real project through the registry alone, ten tasks to their end.

It sees the answers as messages and nothing else: whatever it needs next, a path, a line, an offset,
the words to replace, it takes from there. What the files must be is worked out beside it.
"""

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import anyio
import pytest

from loom_audit.api.face import Session
from tests.given.python import lay_python
from tests.tapes.releases import PROJECTS, unpack_releases
from tests.tools.conftest import Bench

PACKAGE, TESTS = "src/itsdangerous", "tests/test_itsdangerous"
TRIED = [f"{TESTS}/test_encoding.py", f"{TESTS}/test_signer.py"]
TABLE = "{" + ",".join(f'"key{n}":{n * n}' for n in range(9_000)) + "}"
BUILD = "for n in range(5000): print('warning: unused 417' if n == 2500 else f'step {n}')\n"
NINE = (
    '\n\ndef test_nine_bytes():\n    with pytest.raises(BadData):\n        bytes_to_int(b"x" * 9)\n'
)
REFUSED = '    if len(bytestr) > 8:\n        raise BadData("more than 64 bits")\n\n'
NOTE = "    # what is not ASCII is not of the alphabet"


class Model:
    """Asks for one call at a time, in the form of OpenAI's chat completions."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._known = {schema["function"]["name"] for schema in session.registry.all_schemas()}
        self.calls = 0

    def ask(self, tool: str, **arguments: Any) -> str:
        assert tool in self._known
        self.calls += 1
        call = {"id": f"c{self.calls}", "name": tool, "arguments": arguments}

        async def answered() -> Any:
            return (await self._session.batch([call]).run()).messages()

        [message] = anyio.run(answered)
        content: str = message["content"]
        return content

    def places(self, pattern: str, **where: str) -> list[tuple[str, int]]:
        """Path and line of everything that matches, as the answer says."""
        told = self.ask("search_files", pattern=pattern, **where)
        return [(path, int(line)) for path, line in re.findall(r"^(\S+?):(\d+): ", told, re.M)]

    def line(self, path: str, number: int) -> str:
        shown = self.ask("read_file", path=path, line_range=[number, number])
        return shown.partition("\t")[2].rstrip("\n")

    def tests_pass(self) -> bool:
        return self.ask("run_tests", paths=TRIED).splitlines()[0].endswith("passed")


def taken(pattern: str, answer: str) -> str:
    """What the model takes from an answer; that it can be taken is what this is about."""
    match = re.search(pattern, answer)
    assert match is not None, f"{pattern} is not in:\n{answer}"
    return match[1]


def start_the_tests(model: Model) -> None:
    assert taken(r"No module named '(\w+)'", model.ask("run_tests", paths=TRIED)) in PACKAGE
    [(path, line)] = model.places(r"pytest\.ini_options", path="pyproject.toml")
    head = model.line(path, line)
    model.ask("edit_file", path=path, old_str=head, new_str=f'{head}\npythonpath = ["src"]')


def mend_what_fails(model: Model) -> None:
    told = model.ask("run_tests", paths=TRIED)
    path, line = taken(r"(\S+:\d+): in test_", told).split(":")
    function = taken(r"= (\w+)\(", model.line(path, int(line) - 1))
    [(path, number)] = model.places(f"def {function}", path=PACKAGE)
    wrong = model.line(path, number + 1)
    model.ask("edit_file", path=path, old_str=wrong, new_str=wrong.replace("rstrip", "lstrip"))
    assert model.tests_pass()


def rename_a_function(model: Model) -> None:
    places = [*model.places(r"\bwant_bytes\b", path="src"), *model.places("want_bytes", path=TESTS)]
    for path in sorted({path for path, _ in places}):
        model.ask(
            "edit_file", path=path, old_str="want_bytes", new_str="as_bytes", replace_all=True
        )
    assert model.ask("search_files", pattern="want_bytes", path="src").startswith("[no matches in ")
    assert model.tests_pass()


def refuse_nine_bytes(model: Model) -> None:
    model.ask("edit_file", path=TRIED[0], old_str="", new_str=NINE)
    assert taken(r"test_(nine)_bytes", model.ask("run_tests", paths=TRIED))
    [(path, line)] = model.places("def bytes_to_int", path=PACKAGE)
    body = model.line(path, line + 1)
    model.ask("edit_file", path=path, old_str=body, new_str=REFUSED + body)
    assert model.tests_pass()


def move_a_module(model: Model) -> None:
    model.ask("move_file", **{"from": f"{PACKAGE}/_json.py", "to": f"{PACKAGE}/_compact.py"})
    for path, line in model.places(r"from \._json import", path=PACKAGE):
        old = model.line(path, line)
        model.ask("edit_file", path=path, old_str=old, new_str=old.replace("_json ", "_compact "))
    told = model.ask("shell_execute", command="PYTHONPATH=src python3 -B -c 'import itsdangerous'")
    assert told == "[no output]"


def find_a_key_in_one_long_line(model: Model) -> None:
    told = model.ask("read_file", path="table.json")
    offset = int(taken(r"offset (\d+) goes on", told))
    while '"key4567":' not in (told := model.ask("read_file", path="table.json", offset=offset)):
        offset = int(taken(r"offset (\d+) goes on", told))
    pair = taken(r'("key4567":\d+),', told)
    model.ask("edit_file", path="table.json", old_str=f"{pair},", new_str='"key4567":0,')


def learn_from_a_miss(model: Model) -> None:
    path, guess = (
        f"{PACKAGE}/encoding.py",
        "  string = as_bytes(string, encoding='ascii', errors='ignore')",
    )
    told = model.ask("edit_file", path=path, old_str=guess, new_str="")
    right = taken(r"(?m)^ +\d+ \| (.*)$", told)
    model.ask("edit_file", path=path, old_str=right, new_str=f"{NOTE}\n{right}")


def find_a_warning_in_a_long_log(model: Model) -> None:
    told = model.ask("shell_execute", command="python3 build.py")
    log = taken(r"all of it is (scratch://\S+),", told)
    [(_, line)] = model.places("^warning", path=log)
    model.ask("write_file", path="NOTES.md", content=f"line {line}: {model.line(log, line)}\n")


def delete_an_old_release(model: Model) -> None:
    found = taken(r"(itsdangerous-0\S+)/", model.ask("list_directory", path="old"))
    assert "not empty" in model.ask("delete_file", path=f"old/{found}")
    model.ask("delete_file", path=f"old/{found}", recursive=True)
    assert found not in model.ask("list_directory", path="old", recursive=False)


def commit_it(model: Model) -> None:
    paths = re.findall(r"(?m)^(?:modified|untracked|deleted): (\S+)$", model.ask("git_status"))
    told = model.ask("git_commit", message="what ten tasks changed", paths=paths)
    assert taken(r"committed (\w+)", told) in model.ask("git_log", max_count=1)
    assert model.ask("git_status").endswith("clean")


def lay_project(root: Path, folder: Path) -> None:
    """itsdangerous with a flaw, all older releases of three projects beside it, in a repository."""
    for project in PROJECTS:
        (folder / project).mkdir()
        *older, newest = unpack_releases(project, folder / project)
        if project == "itsdangerous":
            newest.rename(root)
        else:
            older.append(newest)
        (root.parent / "old").mkdir(exist_ok=True)
        for one in older:
            one.rename(root.parent / "old" / one.name)
    (root.parent / "old").rename(root / "old")
    encoding = root / PACKAGE / "encoding.py"
    encoding.write_text(encoding.read_text().replace(".lstrip(", ".rstrip("))
    (root / "table.json").write_text(TABLE)
    (root / "build.py").write_text(BUILD)
    for words in (
        "init -q",
        "config user.name Ann",
        "config user.email a@b",
        "add -A",
        "commit -qm first",
    ):
        subprocess.run(["git", *words.split()], cwd=root, check=True)


def wanted(before: dict[str, str]) -> dict[str, str]:
    """What the files must be after all tasks, worked out with Python's own replace."""
    after = {path: text for path, text in before.items() if "itsdangerous-0." not in path}
    for path in after:
        if path.startswith(("src/", f"{TESTS}/")):
            after[path] = after[path].replace("want_bytes", "as_bytes")

    def change(path: str, old: str, new: str) -> None:
        assert after[path].count(old) >= 1, (path, old)
        after[path] = after[path].replace(old, new, 1)

    head = "[tool.pytest.ini_options]\n"
    change("pyproject.toml", head, head + 'pythonpath = ["src"]\n')
    encoding = f"{PACKAGE}/encoding.py"
    change(encoding, "(num).rstrip(", "(num).lstrip(")
    line = '    string = as_bytes(string, encoding="ascii", errors="ignore")'
    change(encoding, line, f"{NOTE}\n{line}")
    body = "    return _bytes_to_int("
    change(encoding, body, REFUSED + body)
    after[TRIED[0]] += NINE
    after[f"{PACKAGE}/_compact.py"] = after.pop(f"{PACKAGE}/_json.py")
    change(f"{PACKAGE}/url_safe.py", "from ._json import", "from ._compact import")
    change("table.json", f'"key4567":{4567**2},', '"key4567":0,')
    after["NOTES.md"] = "line 2501: warning: unused 417\n"
    return after


def files(root: Path) -> dict[str, str]:
    found = [path for path in root.rglob("*") if path.is_file() and ".git" not in path.parts]
    return {
        str(path.relative_to(root)): path.read_text("utf-8", "surrogateescape") for path in found
    }


TASKS = (
    start_the_tests,
    mend_what_fails,
    rename_a_function,
    refuse_nine_bytes,
    move_a_module,
    find_a_key_in_one_long_line,
    learn_from_a_miss,
    find_a_warning_in_a_long_log,
    delete_an_old_release,
    commit_it,
)


@pytest.mark.few(0)
def test_a_model_finishes_ten_tasks_by_what_the_answers_say(
    bench: Bench, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{lay_python(tmp_path / 'programs')}:{os.environ['PATH']}")
    root = tmp_path / "project"
    lay_project(root, tmp_path)
    before = files(root)
    assert len(before) >= 200
    workspace = bench.store.attach(root)
    quick = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    with workspace.session("scripted", environment=quick) as session:
        model = Model(session)
        for task in TASKS:
            task(model)
    assert files(root) == wanted(before)
    assert not workspace.status().drift and workspace.verify().findings == ()
    workspace.carry_out(workspace.plan_rollback(f"session:{session.id}"))
    assert files(root) == before
