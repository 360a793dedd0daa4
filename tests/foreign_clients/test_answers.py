"""What is printed for each verdict is what the guide says."""

import json

import pytest

from loom_audit.clients.known import CLIENTS
from loom_audit.clients.reports import Hook, Verdict
from tests.oracles.answers_table import answers

VERDICTS = {"nothing": None, "allow": Verdict("allow", "fine"), "deny": Verdict("deny", "no")}


def test_the_guide_has_each_client() -> None:
    assert answers().keys() == CLIENTS.keys()


@pytest.mark.parametrize("verdict", VERDICTS)
@pytest.mark.parametrize("client", CLIENTS)
def test_what_the_guide_says_is_printed(client: str, verdict: str) -> None:
    moments = CLIENTS[client].moments.items()
    hook = Hook(next(name for name, moment in moments if moment == "before"), "before", "s1")
    printed = CLIENTS[client].answer(hook, VERDICTS[verdict])
    said = answers()[client][verdict].partition(";")[0]
    if not printed:
        assert said == "prints nothing"
        return
    told = json.loads(printed)
    found = told.get("decision") or told["hookSpecificOutput"]["permissionDecision"]
    assert said == f"prints {found}"
    assert ("no" if verdict == "deny" else "fine") in printed.decode()
