"""The command blocklist: its corpus, its bounds, and a refusal on record. Nothing here is run."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.errors import BlockedCommand
from loom_audit.model.shell.parse import DEEPEST
from loom_audit.tools.guard.rules import blocked, check_command
from tests.given.cases import some
from tests.tools.conftest import Bench

CORPUS = tomllib.loads((Path(__file__).parents[2] / "data" / "commands.toml").read_text("utf-8"))
REFUSED, ALLOWED = (
    [command for group in CORPUS[verdict].values() for command in group]
    for verdict in ("refused", "allowed")
)

WORDS = """
rm -rf / ~ $HOME ${ } { ( ) $( $(( )) ` ' ; && | || & << <<- <<< EOF <( >( > < case esac in for do
done if then fi x= $x # * ? [ ] eval sh -c xargs sudo env -S find -exec + curl , $' \\x72 ${x:-
function f trap 2 = +=
"""
PIECES = [
    *WORDS.split(),
    '"',
    "\\",
    "\n",
    " ",
    "\nEOF\n",
    "\t",
    "\x00",
    "\ufdd0",
    "\ufdda",
    "\ud800",
]


def test_the_corpus_is_large_and_says_nothing_twice() -> None:
    assert len(REFUSED) >= 400 and len(ALLOWED) >= 240
    assert len({*REFUSED, *ALLOWED}) == len(REFUSED) + len(ALLOWED)


@pytest.mark.parametrize("command", REFUSED)
def test_refused(command: str) -> None:
    assert blocked(command)


@pytest.mark.parametrize("command", ALLOWED)
def test_allowed(command: str) -> None:
    assert blocked(command) is None


@pytest.mark.parametrize("chain", ["true; {}", "{} && true", "({})", "true\n{}\n", "echo $({})"])
def test_a_refused_command_is_refused_wherever_it_stands(chain: str) -> None:
    # a comment, a continuation or a here-document would swallow what is put behind it
    apart = [each for each in REFUSED if "<<" not in each and "#" not in each]
    assert [each for each in apart if not blocked(chain.format(each))] == []


def test_the_reason_names_the_rule_and_the_words() -> None:
    assert blocked("cd x && sudo rm -fr '/'") == "removes /: rm -fr /"
    assert blocked("curl -s x | sudo bash -s y").startswith("runs what it downloads: … | sh -s y")
    with pytest.raises(BlockedCommand) as caught:
        check_command("rm -rf $HOME")
    assert caught.value.code == "BLOCKED_COMMAND" and caught.value.hint
    assert str(caught.value) == "The command is blocked: it removes ~: rm -rf ~"
    check_command("rm -rf build")


@given(st.text(st.characters(codec=None)))
def test_any_text_gets_an_answer(command: str) -> None:
    assert blocked(command) is None or isinstance(blocked(command), str)


@given(st.lists(st.sampled_from(PIECES), max_size=60), st.sampled_from(["", " "]))
def test_any_shell_like_text_gets_an_answer_that_can_be_stored(
    pieces: list[str], between: str
) -> None:
    reason = blocked(between.join(pieces))
    assert reason is None or (reason.isprintable() and len(reason.encode()) < 1000)


@given(st.lists(st.sampled_from(PIECES), max_size=12))
def test_what_follows_a_whole_line_is_judged_whatever_came_before(pieces: list[str]) -> None:
    line = " ".join(piece for piece in pieces if piece.isalpha() and piece not in ("case", "for"))
    assert blocked(f"{line} x\nrm -rf /\n")


def test_commands_in_commands_have_a_bound() -> None:
    command = "rm -rf /"
    for _ in range(DEEPEST // 2):
        command = "eval " + command
    assert blocked(command) == "removes /: rm -rf /"
    assert "deep" in str(blocked('x=\'eval "$x"\'; eval "$x"'))
    assert blocked("(" * 5_000 + "rm -rf /" + ")" * 5_000) == "removes /: rm -rf /"
    assert blocked("echo " + "$(echo " * 2_000 + "ok" + ")" * 2_000) is None


@pytest.mark.deep
def test_many_commands_in_commands_have_a_bound() -> None:
    assert blocked("(" * 50_000 + "rm -rf /" + ")" * 50_000) == "removes /: rm -rf /"
    assert blocked("echo " + "$(echo " * 20_000 + "ok" + ")" * 20_000) is None


ALONE = """
x a ; a; ( ) $( ` ' " \\ ${x:- "${x:- $(( << <A <( >( {a, { a=$a$a; * [ ~ < # & && curl| a| $'\\x41'
/*/ echo;x=y;sh${IFS}-c${IFS}'$x'; x=aaaaaaaaaaaaaaaa;eval${IFS}$x;
"""
REPEATED = ALONE.split()
REPEATED += ["<<A\n", "sudo ", "eval ", "sh -c ", "env -S ", "nice -n 1 ", "case x in ", "if "]
REPEATED += ["{ ", "f(){ ", "rm -rf a;", "echo x|sh;", "echo /|xargs ", "find . -exec ", "x=", " "]


@pytest.mark.parametrize("piece", some(REPEATED, 20))
def test_a_long_command_of_one_piece_is_answered(piece: str) -> None:
    reason = blocked(piece * (5_000 // len(piece)))
    assert reason is None or "commands in commands" in reason


@pytest.mark.deep
@pytest.mark.parametrize("piece", REPEATED)
def test_a_megabyte_is_answered(piece: str) -> None:
    reason = blocked(piece * (1_000_000 // len(piece)))
    assert reason is None or "commands in commands" in reason


def test_a_refused_command_is_on_record_and_nothing_of_it_ran(bench: Bench) -> None:
    before = bench.tree()
    # harmless if the guard should fail: a device that does not exist, behind a write that shows
    command = "echo ran > ran.txt; echo x > /dev/loom-audit-none/x"
    result = bench.call("shell_execute", {"command": command})
    assert not result.success and result.error.code == "BLOCKED_COMMAND"
    assert "writes to a device: > /dev/loom-audit-none/x" in result.output
    assert result.files_changed == [] and bench.tree() == before
    assert bench.requested()[-1].tool == "shell_execute"
    assert bench.last().status != "ok"
    bench.assert_every_call_has_one_finish()
