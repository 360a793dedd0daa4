"""What tests draw: the same examples on every machine, and others where a seed asks for them."""

import os
import random
import secrets
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, is_hypothesis_test, settings
from hypothesis.internal.conjecture.providers import HypothesisProvider
from hypothesis.internal.constants_ast import Constants

FIXED = "0"
"""The seed of what tests draw themselves where none is given."""

RULE = """\
Seed {seed}. The same examples again:
    PYTHONHASHSEED={order} .venv/bin/python -m pytest -m "" --seed {seed} TEST
Make a regression test of a find before you mend it: a test of its own whose name states the
situation, with the values above or the calls that the state machine printed; or one more
@example(...) above @given. @reproduce_failure(...) is for the search only: the next release of
hypothesis does not read it."""


# Hypothesis also draws numbers and strings that stand in our own modules. Which ones it knows
# depends on what was imported so far, and so on the order of the tests.
HypothesisProvider._local_constants = Constants()  # type: ignore[method-assign,assignment] # a cached property

settings.register_profile(
    "fixed",
    max_examples=30,  # that are the same every time; of a new seed there are a hundred
    database=None,
    deadline=None,  # a slow machine is not a failure
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "drawn", settings.get_profile("fixed"), max_examples=100, derandomize=False
)
settings.load_profile("fixed")


def examples(few: int, many: int) -> settings:
    """The examples of a property: `make test` draws the few, the others of new seeds the many."""
    drawn = settings.get_current_profile_name() == "drawn"
    return settings(max_examples=many if drawn else few)


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("loom-audit")
    group.addoption("--seed", help="draw other examples, from this seed; `new` chooses one")
    group.addoption("--sample", type=int, default=0, help="run only that many of the tests")
    group.addoption("--until", type=float, help="begin no test after that time of the epoch")


def seed_of(config: pytest.Config) -> str | None:
    """The seed that was given or chosen; None where the fixed examples are drawn."""
    seed = config.getoption("--seed")
    return None if seed is None else str(seed)


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    """Before hypothesis reads its own options."""
    if seed_of(config) == "new":
        given = getattr(config, "workerinput", {})
        config.option.seed = given.get("seed") or str(secrets.randbelow(2**32))
    if seed := seed_of(config):
        settings.load_profile("drawn")
        config.option.hypothesis_seed = seed


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """A worker of xdist draws from the seed that was chosen for all."""
    node.workerinput["seed"] = seed_of(node.config)


def pytest_report_header(config: pytest.Config) -> str | None:
    seed = seed_of(config)
    return f"seed: {seed}" if seed else None


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    seed = seed_of(terminalreporter.config)
    if seed and terminalreporter.stats.keys() & {"failed", "error"}:
        terminalreporter.section("what was drawn")
        order = os.environ.get("PYTHONHASHSEED", "random")
        terminalreporter.write_line(RULE.format(seed=seed, order=order))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> bool | None:
    until = item.config.getoption("--until")
    return True if until is not None and time.time() > until else None


def pytest_itemcollected(item: pytest.Item) -> None:
    """Marks what draws with a seed, so that `-m drawn` finds it."""
    if isinstance(item, pytest.Function) and (
        is_hypothesis_test(item.obj) or "seed" in item.fixturenames
    ):
        item.add_marker("drawn")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """`--sample 16 --seed COMMIT`: few of the slow tests and of those that draw, the same again.

    Runs after pytest's own `-m` and `-k`, so the sample is taken from the tests they leave.
    """
    size = config.getoption("--sample")
    deep = [one for one in items if any(map(one.get_closest_marker, ("deep", "drawn")))]
    if not size or len(deep) <= size:
        return
    chosen = random.Random(seed_of(config) or FIXED).sample(
        sorted(deep, key=lambda item: item.nodeid), size
    )
    left_out = [item for item in items if item not in chosen]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item in chosen]


@pytest.fixture
def seed(pytestconfig: pytest.Config) -> str:
    """For a `random.Random` of the test's own."""
    return seed_of(pytestconfig) or FIXED
