"""What rules and people decide holds in each real client, as the guide's table says."""

from collections.abc import Sequence

import pytest

from tests.oracles.answers_table import answers
from tests.real_clients.clients import CLIENTS
from tests.real_clients.runs import Run, running
from tests.real_clients.script import Step
from tests.real_clients.sessions import Hands

pytestmark = pytest.mark.timeout(300)

DENIED = '[[rule]]\ntool = "*"\naction = "deny"\nreason = "not today"\n'
NOBODY = 'timeout = 2\n[[rule]]\ntool = "*"\naction = "ask"\nreason = "is it right?"\n'
ALLOWED = '[[rule]]\ntool = "*"\naction = "allow"\n'


def one_command(hands: Hands) -> Sequence[Step]:
    return [Step("shell", (hands.shell("call_01", "touch made.txt"),)), Step("end", text="done")]


def decide(run: Run, rules: str) -> None:
    file = run.home / ".config" / "loom-audit" / "approvals.toml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(rules)


@pytest.mark.parametrize(
    ("rules", "why"), [(DENIED, "not today"), (NOBODY, "nobody answered")], ids=["rule", "nobody"]
)
@pytest.mark.parametrize("name", CLIENTS)
def test_what_is_denied_does_not_run_and_the_model_is_told_why(
    name: str, rules: str, why: str
) -> None:
    client = CLIENTS[name]
    assert "does not run, the model is told why" in answers()[name]["deny"]
    with running(client, one_command) as run:
        run.ours("connect", name)
        decide(run, rules)
        run.work(client.once("please"))
        assert not (run.workspace / "made.txt").exists()
        (told,) = run.model.told.values()
        assert why in told.text
        (call,) = run.calls().values()
        assert (call["status"], call["coverage"]) == ("denied", "full")


@pytest.mark.parametrize("rules", ["", ALLOWED], ids=["nothing", "allow"])
def test_claude_code_runs_unasked_only_what_somebody_allowed(rules: str) -> None:
    client = CLIENTS["claude-code"]
    with running(client, one_command) as run:
        run.ours("connect", "claude-code")
        if rules:
            decide(run, rules)
        run.work(client.careful("please"))
        assert (run.workspace / "made.txt").exists() == bool(rules)
