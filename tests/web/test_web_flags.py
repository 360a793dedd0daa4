"""What a rollback is asked with reaches the plan from every way in, and is in it to the end."""

import inspect
import os
from typing import Any

import pytest
from fastapi.testclient import TestClient

from loom_audit.api.control import holding
from loom_audit.cli.redo import redo
from loom_audit.cli.revert import revert
from loom_audit.cli.rollback import rollback
from loom_audit.cli.shared.parameters import parameters_of
from loom_audit.cli.undo import undo
from loom_audit.model.plans.request import FLAGS, Flag, PlanRequest
from tests.web.conftest import Recorded
from tests.web.test_web_undo import carry_out, fields, plan

EACH = pytest.mark.parametrize(
    "flag", [one for one in FLAGS if "rollback" in one.verbs], ids=lambda flag: flag.name
)


def test_each_yes_or_no_of_a_request_is_declared_once_and_is_an_option() -> None:
    wanted = [
        name
        for name, given in inspect.signature(PlanRequest).parameters.items()
        if given.default is False
    ]
    assert [flag.field for flag in FLAGS] == wanted
    commands = {"undo": undo, "redo": redo, "revert": revert, "rollback": rollback}
    for flag in FLAGS:
        for verb in flag.verbs:
            options = parameters_of(commands[verb].body)
            helps = {option.opts[-1]: getattr(option, "help", "") for option in options}
            assert helps[f"--{flag.name}"] == flag.help


@EACH
def test_a_flag_is_in_the_request_of_a_plan_and_of_one_made_anew(
    recorded: Recorded, flag: Flag
) -> None:
    flags: Any = {flag.field: True}
    made = recorded.workspace.plan_rollback("head~1", **flags)
    assert made.request.flags == [flag]
    again = holding._plan_again(recorded.workspace, made, {"notes.txt"})
    assert again.request.flags == [flag]
    assert again.request.choices == {"notes.txt": "current"}


@pytest.mark.few(1)
@EACH
def test_a_flag_in_an_address_is_offered_kept_and_on_record(
    recorded: Recorded, client: TestClient, flag: Flag
) -> None:
    (recorded.root / "mine.txt").write_text("by hand\n")
    point = str(recorded.workspace.log.head())
    recorded.call("more", "write_file", {"path": "more.txt", "content": "more\n"})
    text = plan(client, recorded, f"verb=rollback&target={point}&{flag.name}=1&choice:mine.txt=old")
    assert fields(text)[flag.name] == "1"
    choices = text[text.index('class="choices"') :]
    choices = choices[: choices.index("</form>")]
    assert choices.count(f'name="{flag.name}" value="1"') == 1
    answer = carry_out(client, recorded, fields(text))
    assert answer.status_code == 303, answer.text
    number = int(answer.headers["location"].rsplit("/", 1)[1])
    assert recorded.workspace.timeline.call(number).arguments[flag.field] is True


def test_outside_is_in_a_held_rollback_that_is_made_anew(recorded: Recorded) -> None:
    agent = recorded.workspace.start_foreign_session("codex", id="agent-1", pid=os.getpid())
    (recorded.root / "mine.txt").write_text("by hand\n")
    agent.begin_call("c1", "Bash", {"command": "make"})
    holding.hold_all(recorded.workspace, "going back")
    point = recorded.workspace.timeline.session("agent-1").started - 1
    asked = recorded.workspace.plan_rollback(point, outside=True, running=True)
    (recorded.root / "made").write_text("by the agent\n")
    done = holding.carry_out(recorded.workspace, asked)
    assert {"mine.txt", "made"} <= {*done.changed}
    assert done.plan.request.outside
