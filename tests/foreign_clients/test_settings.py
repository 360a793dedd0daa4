"""Our hook in a client's settings: merged, once, and taken out again."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.clients.known import CLIENTS
from loom_audit.clients.settings import connected, disconnected
from loom_audit.errors import InvalidArguments
from tests.foreign_clients.test_jsonc import BLANK, commented

WORDS = ("/usr/bin/python3", "-I", "-S", "/home/a b/loom/hooks/hook_client.py", "codex")
HOOKED = [client for client, known in CLIENTS.items() if not known.place.plugin]

OTHER = st.fixed_dictionaries(
    {"hooks": st.just([{"type": "command", "command": "fmt"}])},
    optional={"matcher": st.sampled_from(["*", "Edit|Write"])},
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "model": st.text(max_size=5),
        "hooks": st.dictionaries(
            st.sampled_from(["PreToolUse", "Stop", "BeforeTool", "Own"]),
            st.lists(OTHER, min_size=1, max_size=2),
            max_size=3,
        ),
    },
)


def hooks_of(text: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(text)["hooks"]
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("client", HOOKED)
@given(SETTINGS, st.sampled_from([None, 2, "\t"]))
def test_what_others_wrote_stays_and_ours_is_there_once(
    client: str, settings: dict[str, Any], indent: int | str | None
) -> None:
    text = json.dumps(settings, indent=indent)
    more = connected(CLIENTS[client], text, WORDS)
    assert connected(CLIENTS[client], more, WORDS) == more
    for event, listed in settings.get("hooks", {}).items():
        assert hooks_of(more)[event][: len(listed)] == listed
    for event in CLIENTS[client].events:
        [entry] = [one for one in hooks_of(more)[event] if "hook_client" in json.dumps(one)]
        assert entry["hooks"][0]["command"].endswith("'/home/a b/loom/hooks/hook_client.py' codex")
        assert ("matcher" in entry) == ("Tool" in event)
    assert {**json.loads(more), "hooks": 0} == {**settings, "hooks": 0}
    less = disconnected(more)
    assert (json.loads(less) if less else {}) == {
        name: told for name, told in settings.items() if told or name != "hooks"
    }


@given(SETTINGS.filter(lambda told: told and told.get("hooks") != {}), st.data())
def test_ours_taken_out_again_leaves_every_byte_and_comment(
    settings: dict[str, Any], data: st.DataObject
) -> None:
    text = data.draw(BLANK) + data.draw(commented(settings)) + data.draw(BLANK)
    assert disconnected(connected(CLIENTS["gemini"], text, WORDS)) == text


@pytest.mark.parametrize("client", HOOKED)
def test_other_words_replace_ours_and_nothing_else(client: str) -> None:
    first = connected(CLIENTS[client], "", WORDS)
    other = connected(CLIENTS[client], first, [*WORDS, "--strict"])
    assert other.count("--strict") == len(CLIENTS[client].events) == other.count("hook_client.py")
    assert disconnected(other) == ""


def test_a_hook_of_somebody_else_beside_ours_in_one_entry_stays() -> None:
    text = connected(CLIENTS["codex"], "", WORDS)
    entry = json.loads(text)
    entry["hooks"]["Stop"][0]["hooks"].append({"type": "command", "command": "theirs"})
    less = disconnected(json.dumps(entry))
    assert json.loads(less) == {
        "hooks": {"Stop": [{"hooks": [{"type": "command", "command": "theirs"}]}]}
    }


def test_comments_and_line_ends_stay() -> None:
    text = '{\r\n\t// mine\r\n\t"model": "x", /* and */\r\n\t"hooks": {}, // none\r\n}\r\n'
    more = connected(CLIENTS["gemini"], text, WORDS)
    assert "\n" not in more.replace("\r\n", "")
    for kept in ("// mine", "/* and */", "// none", '\r\n\t"model": "x",'):
        assert kept in more
    assert '"timeout": 600000' in more


@pytest.mark.parametrize(
    "text", ["[]", '{"hooks": []}', '{"hooks": {"Stop": {}}}', "{,}", '{"a": 1', "nonsense"]
)
def test_settings_that_cannot_be_understood_are_refused(text: str) -> None:
    with pytest.raises(InvalidArguments):
        connected(CLIENTS["claude-code"], text, WORDS)
    with pytest.raises(InvalidArguments):
        disconnected(text)


def test_gemini_shows_our_name_and_no_path_of_ours_while_a_hook_runs() -> None:
    for entries in json.loads(connected(CLIENTS["gemini"], "", WORDS))["hooks"].values():
        assert [hook["name"] for entry in entries for hook in entry["hooks"]] == ["loom-audit"]
