"""What of git goes back together, and what keeps it from that: on plain changes."""

from loom_audit.model.git.record import GitChanged, GitName
from loom_audit.model.git.ways import GitStep
from loom_audit.model.plans.git_things import DOUBTFUL, MOVED_SINCE, git_verdicts

A, B, C = ("a" * 40, "b" * 40, "c" * 40)


def moved(name: str, before: str | None, after: str | None, head: str = "main") -> GitChanged:
    """A change of one name in a repository on a branch."""
    names = (GitName(name, before, after),)
    return GitChanged("id", names, (), "command", f"ref: refs/heads/{head}", "c")


def step(seq: int, fact: GitChanged, *, taken: bool = True, doubtful: bool = False) -> GitStep:
    return GitStep(fact, taken, seq, doubtful)


def test_a_branch_goes_back_to_before_the_first_change() -> None:
    found = git_verdicts(
        [step(1, moved("refs/heads/x", A, B)), step(2, moved("refs/heads/x", B, None))]
    )
    [thing] = found.things
    assert thing.names == (GitName("refs/heads/x", None, A),)
    assert found.blocked == ()


def test_what_was_moved_since_blocks_and_names_who_moved_it() -> None:
    later = step(2, moved("refs/heads/x", B, C), taken=False)
    [note] = git_verdicts([step(1, moved("refs/heads/x", A, B)), later]).blocked
    assert note.calls == (2,)
    assert note.reason.endswith(MOVED_SINCE)


def test_what_came_back_to_where_it_was_does_not_block() -> None:
    away, home = moved("refs/heads/x", B, C), moved("refs/heads/x", C, B)
    found = git_verdicts(
        [
            step(1, moved("refs/heads/x", A, B)),
            step(2, away, taken=False),
            step(3, home, taken=False),
        ]
    )
    assert [one.names for one in found.things] == [(GitName("refs/heads/x", B, A),)]


def test_the_branch_of_head_and_the_index_are_one_thing() -> None:
    commit = moved("refs/heads/main", A, B)
    add = moved("index", "1", "2")
    by_a_person = step(3, moved("index", "2", "3"), taken=False)
    assert len(git_verdicts([step(1, commit), step(2, add)]).things) == 1
    found = git_verdicts([step(1, commit), step(2, add), by_a_person])
    assert found.things == ()
    assert [note.calls for note in found.blocked] == [(3,)]


def test_a_change_of_which_nobody_saw_whose_it_is_blocks_by_itself_and_beside_others() -> None:
    unseen = step(2, moved("refs/heads/y", A, None), taken=False, doubtful=True)
    for steps in ([unseen], [step(1, moved("refs/heads/x", A, B)), unseen]):
        [note] = git_verdicts(steps).blocked
        assert note.reason.endswith(DOUBTFUL)
        assert "refs/heads/y" in note.reason


def test_a_repository_that_came_or_went_is_named_and_nothing_else_of_it_goes_back() -> None:
    gone = GitChanged(
        "id", (GitName("HEAD", "ref: refs/heads/main", None),), (), "command", "", "c"
    )
    found = git_verdicts([step(1, moved("refs/heads/x", A, B)), step(2, gone)])
    assert (found.things, found.blocked, len(found.stays)) == ((), (), 1)


def test_remote_branches_stay_and_are_named() -> None:
    found = git_verdicts([step(1, moved("refs/remotes/origin/main", A, B))])
    assert (found.things, found.blocked, len(found.stays)) == ((), (), 1)
