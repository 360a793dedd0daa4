"""The names of the package itself: all there, and loaded only when one of them is used."""

import subprocess
import sys

import pytest

import loom_audit
from loom_audit import AuditError, errors, public


def output_of(program: str) -> str:
    """What a Python of its own prints, in which nothing of ours is loaded yet."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_importing_the_package_loads_none_of_its_modules() -> None:
    program = "import sys, loom_audit; print([m for m in sys.modules if 'loom_audit.' in m])"
    assert output_of(program) == "[]"


def test_a_star_import_gives_every_public_name() -> None:
    program = "from loom_audit import *; print(sorted(n for n in dir() if n[0] != '_'))"
    assert output_of(program) == str(sorted(loom_audit.__all__))


def test_every_line_of_the_list_is_a_name() -> None:
    found = {name for name in vars(public) if not name.startswith("_")}
    assert found and found == set(loom_audit.__all__)
    assert all(getattr(loom_audit, name) is getattr(public, name) for name in found)


def test_every_error_is_public() -> None:
    found = vars(errors).items()
    kinds = {n for n, one in found if isinstance(one, type) and issubclass(one, AuditError)}
    assert kinds and kinds <= set(loom_audit.__all__)


@pytest.mark.parametrize("name", ["no_such_name", "_private", "import_errors"])
def test_a_name_that_is_not_public_is_not_there(name: str) -> None:
    with pytest.raises(AttributeError, match=name):
        getattr(loom_audit, name)
