"""`scope`: the rules in force, and accepting them."""

from tests.cli.shells import Shell


def test_scope_shows_the_rules_in_force(audited: Shell) -> None:
    assert "node_modules" in audited("scope").text
    (found,) = audited.records("scope")
    assert (found["ignore"], found["accepted"]) == ("", False)
    assert "unknown action" in audited("scope", "nope", code=2).errors


def test_accepting_the_scope_says_that_it_is_accepted(audited: Shell) -> None:
    assert "accepted" not in audited("scope").text.splitlines()[0]
    assert audited("scope", "accept").text.startswith("accepted; from now on this holds\n")
