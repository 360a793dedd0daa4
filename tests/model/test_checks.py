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
        ("make lint", "lint", "make lint", True),
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
    ],
)
def test_what_only_names_such_a_program_is_not_a_check(text: str) -> None:
    assert check_in(text) is None


@pytest.mark.parametrize(
    ("text", "tells"),
    [
        ("pytest", [True, True]),
        ("cd api && pytest", [True, True]),
        ("ruff check && pytest", [True, False]),
        ("false && pytest", [True, False]),
        ("pytest | tail", [False, False]),
    ],
)
def test_a_line_that_failed_before_its_test_is_not_the_test_s_failure(
    text: str, tells: list[bool]
) -> None:
    found = check_in(text)
    assert found is not None and [found.tells(code) for code in (0, 1)] == tells


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
        ("git status && npm test", ""),
        ("echo curl", ""),
        ("", ""),
    ],
)
def test_a_program_of_the_network_is_named(text: str, program: str) -> None:
    assert network_program(text) == program
