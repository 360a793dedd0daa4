"""A shop whose files end their lines with CRLF and which has a `.venv`; ten tasks in it."""

import re
import tomllib
from pathlib import Path

from tests.tools.bundled.project.test_install_package import wheel
from tests.tools.tasks.model import Model
from tests.tools.tasks.project import Project, Task, lay_environment, lay_repository

FILES = {
    ".gitignore": ".venv\n",
    "pyproject.toml": '[project]\nname = "shop"\nversion = "1.0"\ndependencies = []\n',
    "pytest.ini": "[pytest]\naddopts = --strict-market\npythonpath = .\n",
    "shop/__init__.py": "",
    "shop/prices.py": '''"""What things cost."""

RATE = 0.2


def total(items):
    return sum(item.price for item in items)


def with_tax(amount):
    """Add the tax of 19 %."""
    return amount + amount * RATE


def label(amount):
    return f"{amount:.2f} EUR"
''',
    "shop/cart.py": '''"""What is bought."""

from shop.prices import total, with_tax


class Item:
    def __init__(self, name, price):
        self.name, self.price = name, price


class Cart:
    def __init__(self, items=()):
        self.items = [*items]

    def add(self, item):
        self.items.append(item)

    def pay(self):
        return with_tax(total(self.items))
''',
    "shop/server.py": '''"""Serves what a cart costs: python -m shop.server PORT"""

import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

from shop.cart import Cart, Item
from shop.prices import label

CART = Cart([Item("lamp", 100), Item("desk", 250)])


class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        body = label(CART.pay()).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, form, *words):
        with open("logs/access.log", "a") as log:
            log.write(form % words + "\\n")


if __name__ == "__main__":
    server = HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler)
    print(f"listening on {server.server_port}", flush=True)
    server.serve_forever()
''',
    "tools/wizard.py": '''"""Asks how the shop is called, and writes settings.ini."""

name = input("Name of the shop: ")
currency = input("Currency (EUR, USD): ")
with open("settings.ini", "w") as settings:
    settings.write(f"[shop]\\nname = {name}\\ncurrency = {currency}\\n")
''',
    "tools/check_stock.py": '''"""Tells of each item where it lies."""

for n in range(45_000):
    where = "MISSING" if n == 31_415 else f"shelf {n % 97:02}"
    print(f"item {n:05}: {where}, as counted at the year's end")
''',
    "tests/test_prices.py": """from shop.prices import label, with_tax


def test_tax():
    assert with_tax(100) == 119


def test_label():
    assert label(1) == "1.00 EUR"
""",
    "tests/test_cart.py": """from shop.cart import Cart, Item
from shop.prices import with_tax


def test_pay():
    cart = Cart()
    cart.add(Item("lamp", 200))
    assert cart.pay() == with_tax(200)
""",
}
MIXED = b"Changes\r\n\r\n2.0\n- tax is added\n1.0\r\n- first release\r\n"
MONEYTEXT = '''"""Money as text."""


def money(amount, currency):
    """Return an amount as text: money(1, "EUR") is "1,00 EUR"."""
    return f"{amount:.2f} {currency}".replace(".", ",")
'''


def lay_shop(root: Path) -> Project:
    """The shop in a repository that has a name of its own for who commits."""
    for name, text in FILES.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_bytes(text.replace("\n", "\r\n").encode())
    (root / "CHANGES.txt").write_bytes(MIXED)
    (root / "vendor").mkdir()
    wheel(root / "vendor", "moneytext", "1.2", text=MONEYTEXT)
    lay_repository(root)
    project = Project(root, lay_environment(root / ".venv"))
    project.git("config", "user.name", "Shop Team")
    project.git("config", "user.email", "shop@example.org")
    return project


def all_crlf(project: Project, *paths: str) -> None:
    """Every line of the files still ends with CRLF."""
    for path in paths:
        text = project.text(path)
        assert text.count("\n") == text.count("\r\n") > 0, path


def start_the_tests(model: Model) -> None:
    """The tests do not even begin. Have them run."""
    model.ask("run_tests")
    option = model.find(r"unrecognized arguments: (\S+)")
    model.ask("search_files", pattern=option)
    path = model.find(r"^(\S+?):\d+: ")
    model.replace(path, option, "--strict-markers")
    model.ask("run_tests")
    model.find(r"\d+ passed")


def tests_begin(project: Project) -> None:
    project.run("-m", "pytest", "-q", "-p", "no:cacheprovider", "--collect-only")
    all_crlf(project, "pytest.ini")


def mend_the_tax(model: Model) -> None:
    """A test fails. Find out why, and mend the program, not the test."""
    model.ask("run_tests")
    right = int(model.find(r"assert \d+\.\d+ == (\d+)"))
    function = model.find(r"where \S+ = (\w+)\(100\)")
    [(path, line)] = model.places(f"def {function}")
    body = model.lines(path, line, line + 2)
    rate = model.find(r"amount \* (\w+)")
    model.places(f"^{rate} =", path)
    model.replace(path, model.find(r": (\w+ = .*)"), f"{rate} = {right / 100 - 1:.2f}")
    model.find(r"^-RATE = 0.2\n\+RATE = 0.19")
    model.replace(path, body, body.replace("19 %", f"{right - 100} percent"))
    model.ask("run_tests")
    model.find(r"pytest: \d+ passed$")


def tax_is_right(project: Project) -> None:
    project.test()
    all_crlf(project, "shop/prices.py")
    assert project.git("diff", "--numstat", "HEAD", "shop/prices.py").startswith("2\t2\t")


def rename_a_function(model: Model) -> None:
    """with_tax shall be called gross everywhere, in tests too."""
    model.ask("search_files", pattern=r"\bwith_tax\b", files_only=True)
    for path in model.find_all(r"^\S+$"):
        model.replace(path, "with_tax", "gross", replace_all=True)
    model.ask("search_files", pattern=r"\bwith_tax\b")
    model.find(r"^\[no matches")
    model.ask("run_tests")
    model.find(r"pytest: \d+ passed$")


def function_is_renamed(project: Project) -> None:
    project.test()
    found = [path for path in project.root.glob("*/*.py") if b"with_tax" in path.read_bytes()]
    assert not found
    all_crlf(project, "shop/prices.py", "shop/cart.py", "tests/test_cart.py")


def use_a_package(model: Model) -> None:
    """Prices shall be written by the package moneytext, as `1,00 EUR`; its wheel is in vendor.

    Make it a dependency of the project, install it, and have label use it.
    """
    model.ask("install_package", manager="pip", packages=["moneytext>=2"])
    version = model.find(r"from versions: ([\d.]+)\)")
    model.ask("install_package", manager="pip", packages=[f"moneytext>={version}"])
    model.find(r"installed into \.venv: moneytext 1\.2")
    [(path, _)] = model.places("^dependencies = ")
    old = model.find("dependencies = .*")
    model.replace(path, old, f'dependencies = ["moneytext>={version}"]')
    model.ask("bash", command='python -c "import moneytext; help(moneytext)"')
    name = model.find(r"^ *(\w+)\(amount, currency\)")
    [(path, line)] = model.places("def label")
    body = model.lines(path, line, line + 1)
    new = f'def label(amount):\n    return {name}(amount, "EUR")\n'
    first = model.lines(path, 1, 2)
    edits = [
        {"old_str": body, "new_str": new},
        {"old_str": first, "new_str": f"{first}from moneytext import {name}\n\n"},
    ]
    model.ask("edit_file", path=path, edits=edits)
    model.ask("run_tests")
    where = model.find(r"^(\S+):\d+: in test_label")
    model.replace(where, '"1.00 EUR"', '"1,00 EUR"')
    model.ask("run_tests")
    model.find(r"pytest: \d+ passed$")


def package_is_used(project: Project) -> None:
    project.test()
    wanted = tomllib.loads(project.text("pyproject.toml"))["project"]["dependencies"]
    assert wanted == ["moneytext>=1.2"]
    code = "import moneytext, shop.prices; print(moneytext.__file__, shop.prices.label(2.5))"
    place, text = project.run("-c", code).split(maxsplit=1)
    assert (text, place.startswith(f"{project.root}/.venv/")) == ("2,50 EUR\n", True)
    all_crlf(project, "pyproject.toml", "shop/prices.py", "tests/test_prices.py")


def note_the_changes(model: Model) -> None:
    """In CHANGES.txt a line `- prices by moneytext` is missing below each `- `."""
    model.ask("read_file", path="CHANGES.txt")
    model.find(r"\[some lines end with CRLF, some with LF\]")
    for line in model.find_all(r"^ *\d+\t(- .*)$"):
        model.replace("CHANGES.txt", f"{line}\n", f"{line}\n- prices by moneytext\n")


def changes_are_noted(project: Project) -> None:
    more = b"- prices by moneytext"
    assert (project.root / "CHANGES.txt").read_bytes() == (
        b"Changes\r\n\r\n2.0\n- tax is added\n"
        + more
        + b"\n1.0\r\n- first release\r\n"
        + more
        + b"\r\n"
    )


def find_what_is_missing(model: Model) -> None:
    """python tools/check_stock.py prints where each item lies; one is MISSING.

    Write the number of that line of its output, and the line, to NOTES.md.
    """
    model.ask("bash", command="python tools/check_stock.py")
    way, out = model.find(r"`COMMAND (> \S+)` keeps all, which read_file gives as (\S+)]")
    model.ask("bash", command=f"python tools/check_stock.py {way}")
    [(_, line)] = model.places("MISSING", out)
    text = model.find(r":\d+: (.*)")
    model.ask("write_file", path="NOTES.md", content=f"{line}: {text}\n")


def missing_is_found(project: Project) -> None:
    found = project.text("NOTES.md").splitlines()
    assert "31416: item 31415: MISSING, as counted at the year's end" in found


def answer_the_wizard(model: Model) -> None:
    """Let tools/wizard.py write settings.ini: the shop is Nord, it takes EUR."""
    answers = {"Name of the shop": "Nord", "Currency": "EUR"}
    typed = ""
    model.ask("bash", command="python tools/wizard.py")
    while model.sees("EOFError"):
        typed += answers[model.find(r'input\("([\w ]*\w)')] + "\\n"
        model.ask("bash", command=f"printf '{typed}' | python tools/wizard.py")
    model.find(r"\[changed: settings.ini\]")


def wizard_was_answered(project: Project) -> None:
    assert project.text("settings.ini") == "[shop]\nname = Nord\ncurrency = EUR\n"


def ask_the_server(model: Model) -> None:
    """Start the server, python -m shop.server, and write what it answers below NOTES.md."""
    start = {"command": "python -m shop.server 8000", "background": True, "writes": ["logs"]}
    model.ask("bash", **start)
    make = model.find(r"Make it first: `(.*)`")
    model.ask("bash", command=make)
    model.ask("bash", **start)
    id = model.find(r"^(bg\d+) runs in the background")
    port = model.wait_for(id, r"listening on (\d+)")
    code = f"from urllib.request import urlopen; print(urlopen('http://localhost:{port}').read())"
    model.ask("bash", command=f'python -c "{code}"', in_=id)
    price = model.find(r"b'(.*)'")
    model.ask("bash_stop", id=id)
    model.find(f"{id} was stopped")
    model.ask("edit_file", path="NOTES.md", old_str="", new_str=f"a cart costs {price}\n")


def server_was_asked(project: Project) -> None:
    assert re.search(r"a cart costs 416[.,]50 EUR", project.text("NOTES.md"))
    assert '"GET / HTTP/1.1" 200' in project.text("logs/access.log")


def take_back_a_mistake(model: Model) -> None:
    """Beside shop/cart.py there shall be shop/basket.py, with a class Basket."""
    basket = "class Basket:\n    pass\n"
    model.ask("write_file", path="shop/cart.py", content=basket)  # its mistake
    path = model.find(r"^Wrote (\S+): ")  # so that there was something before
    model.ask("undo")
    model.find(rf"^restored {path}$")
    model.ask("write_file", path="shop/basket.py", content=basket)
    model.find("^Created shop/basket.py")


def mistake_is_taken_back(project: Project) -> None:
    assert project.text("shop/basket.py").startswith("class Basket")
    all_crlf(project, "shop/cart.py")
    project.test()


def commit_it(model: Model) -> None:
    """Commit all that was changed."""
    model.ask("git_status")
    paths = model.find_all(r"^(?:modified|untracked|deleted): (\S+)$")
    model.ask("git_commit", message="what ten tasks changed", paths=paths)
    commit = model.find(r"^committed (\w+) on main")
    model.ask("git_log", max_count=1)
    model.find(rf"^{commit}.*Shop Team <shop@example.org>: what ten tasks")
    model.ask("git_status")
    model.find("^clean$")


def all_is_committed(project: Project) -> None:
    assert (
        project.git("log", "-1", "--format=%an %ae %cn") == "Shop Team shop@example.org Shop Team"
    )
    assert project.git("status", "--porcelain") == ""
    assert ".venv" not in project.git("ls-files")


TASKS = (
    Task(start_the_tests, tests_begin),
    Task(mend_the_tax, tax_is_right),
    Task(rename_a_function, function_is_renamed),
    Task(use_a_package, package_is_used),
    Task(note_the_changes, changes_are_noted),
    Task(find_what_is_missing, missing_is_found),
    Task(answer_the_wizard, wizard_was_answered),
    Task(ask_the_server, server_was_asked),
    Task(take_back_a_mistake, mistake_is_taken_back),
    Task(commit_it, all_is_committed),
)
OVER_MCP = tuple(
    task
    for task in TASKS
    if task.do in (start_the_tests, mend_the_tax, ask_the_server, take_back_a_mistake, commit_it)
)
