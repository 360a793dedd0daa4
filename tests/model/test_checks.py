"""Which commands are tests, lints or builds, whose exit code that is, and what needs a network."""

import pytest

from loom_audit.model.shell.checks import PROGRAMS, Check, check_in, network_program


@pytest.mark.parametrize(
    ("text", "kind", "program", "exits"),
    [
        ("pytest -q", "test", "pytest", True),
        ("cd api && python3 -m pytest -q 2>&1", "test", "pytest", True),
        ("PYTHONHASHSEED=0 timeout 60 uv run pytest tests", "test", "pytest", True),
        ("poetry run -q coverage run -m pytest", "test", "pytest", True),
        ("npm run test:unit", "test", "npm test", True),
        ("npx jest", "test", "jest", True),
        ("go test ./...", "test", "go test", True),
        ("make", "build", "make", True),
        ("make all", "build", "make all", True),
        ("make -j 4 -C web", "build", "make", True),
        ("make lint", "lint", "make lint", True),
        ("make test-unit", "test", "make test", True),
        ("make tests", "test", "make test", True),
        ("make CC=gcc clean test", "test", "make test", True),
        ("npm run test-unit", "test", "npm test", True),
        ("mvn -q clean verify", "test", "mvn verify", True),
        # a module of Python, after any options
        ("python -u -m pytest", "test", "pytest", True),
        ("/usr/bin/python3.11 -B -m unittest tests/test_words.py", "test", "unittest", True),
        ("python -W error -X dev -m pytest -q", "test", "pytest", True),
        ("python -Werror -Im pytest", "test", "pytest", True),
        ("python -mpytest", "test", "pytest", True),
        ("python --check-hash-based-pycs always -m mypy .", "lint", "mypy", True),
        ("uv run python -X dev -m pytest", "test", "pytest", True),
        # the text that a shell is given
        ("sh -c pytest", "test", "pytest", True),
        ("bash -lc 'pytest -q'", "test", "pytest", True),
        ("bash -euo pipefail -c 'cd api && pytest -q'", "test", "pytest", True),
        ("cd api && ksh -c 'ruff check && pytest'", "test", "pytest", True),
        ("bash -lc 'pytest | tail -5'", "test", "pytest", False),
        ("bash -lc 'pytest; echo done'", "test", "pytest", False),
        ("bash -c 'exit 0 && pytest'", "test", "pytest", False),
        ("sh -c pytest || true", "test", "pytest", False),
        ("sh -c 'sh -c \"pytest -q\"'", "test", "pytest", True),
        ("cmake --build out", "build", "cmake --build", True),
        ("ruff check . && mypy", "lint", "mypy", True),
        ("npm run build && npm test", "test", "npm test", True),
        # the test is not what the line ends with, or something else decides how it ends
        ("pytest && echo done", "test", "pytest", False),
        ("pytest | tail -5", "test", "pytest", False),
        ("pytest || true", "test", "pytest", False),
        ("pytest; echo $?", "test", "pytest", False),
        ("pytest\necho", "test", "pytest", False),
        ("pytest &", "test", "pytest", False),
        ("! pytest", "test", "pytest", False),
        ("if pytest; then echo; fi", "test", "pytest", False),
        ("(pytest)", "test", "pytest", False),
        ("echo $(pytest)", "test", "pytest", False),
        ("exit 0 && pytest", "test", "pytest", False),
        ("trap 'exit 0' EXIT && pytest", "test", "pytest", False),
        ("set -n && pytest", "test", "pytest", False),
        ("setsid -f pytest", "test", "pytest", False),
        ("ruff check --exit-zero", "lint", "ruff", False),
        ("make -i test", "test", "make test", False),
    ],
)
def test_a_command_that_checks_is_known_by_its_program(
    text: str, kind: str, program: str, exits: bool
) -> None:
    found = check_in(text)
    assert isinstance(found, Check)
    assert (found.kind, found.program, found.exits) == (kind, program, exits)


@pytest.mark.parametrize(
    "text",
    [
        "echo pytest",
        "cat pytest.ini",
        "pip install pytest",
        "git commit -m 'run pytest'",
        "",
        "go",
        "command -v pytest",
        "pytest --version",
        "pytest --collect-only -q",
        "cargo test --no-run",
        "make -n test",
        "uv run --with pytest python x.py",
        "npx -p jest other",
        "python -c 'import pytest' -m pytest",
        "python -W pytest x.py",
        "python x.py -m pytest",
        "sh run.sh -c pytest",
        "sh -c 'echo pytest'",
        "make clean",
        "make install",
        "make -C test clean",
        "npm install test",
        "npm run start",
    ],
)
def test_what_only_names_such_a_program_is_not_a_check(text: str) -> None:
    assert check_in(text) is None


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("pytest", [0, 1]),
        ("cd api && pytest", [0, 1]),
        ("sh -c 'cd api && pytest'", [0, 1]),
        # something else may have ended the line before the test ran
        ("ruff check && pytest", [0]),
        ("false && pytest", [0]),
        ("false && sh -c pytest", [0]),
        ("sh -c 'false && pytest'", [0]),
        ("pytest | tail", []),
        # what was to run the test may have refused to
        ("sudo pytest", [0]),
        ("env X=1 sudo -u ada sh -c pytest", [0]),
        ("uv run pytest", [0]),
        ("npx jest", [0]),
        # 124 is of timeout, 125 to 127 of nice, env and the shell, 137 of what killed it
        ("timeout 60 pytest", [0, 1]),
        ("nice -n 5 python -m pytest", [0, 1]),
    ],
)
def test_an_exit_code_is_the_test_s_only_where_nothing_else_can_have_given_it(
    text: str, told: list[int]
) -> None:
    found = check_in(text)
    codes = (0, 1, 124, 125, 126, 127, 137)
    assert found is not None and [code for code in codes if found.tells(code)] == told


def test_every_program_of_the_table_is_one() -> None:
    for program, operands in PROGRAMS.items():
        for operand, kind in operands.items():
            found = check_in(f"{program} {operand}".strip())
            assert found is not None and found.kind == kind, (program, operand)


@pytest.mark.parametrize(
    ("text", "program"),
    [
        ("curl -s https://example.org | sh", "curl"),
        ("cd x\nwget y", "wget"),
        ("git -q push origin main", "git push"),
        ("python -m pip install x", "pip install"),
        ("npm ci", "npm ci"),
        ("git -C there -c a.b=c push", "git push"),
        ("bash -lc 'cd x && curl y'", "curl"),
        ("python3 -I -m pip download x", "pip download"),
        ("ash -o pipefail -c 'curl y | sh'", "curl"),
        ("git status && npm test", ""),
        ("echo curl", ""),
        ("", ""),
    ],
)
def test_a_program_of_the_network_is_named(text: str, program: str) -> None:
    assert network_program(text) == program
