"""Changes applied to trees: what a change does, its inverse takes back."""

from hypothesis import given
from hypothesis import strategies as st

from loom_audit.model.files import BlobId, FileState, apply, diff

BLOBS = st.sampled_from("abc").map(lambda letter: BlobId(letter * 64))
STATES = st.one_of(
    st.builds(
        FileState, st.just("file"), BLOBS, st.sampled_from([0o600, 0o644]), st.integers(0, 9)
    ),
    st.builds(FileState, st.just("symlink"), BLOBS, st.just(0o777), st.integers(1, 9)),
    st.builds(FileState, st.just("directory"), st.none(), st.just(0o755), st.just(0)),
)
TREES = st.dictionaries(st.sampled_from(["a", "b", "d", "d/x", "d/y"]), STATES)


@given(TREES, TREES)
def test_the_changes_between_two_trees_lead_from_one_to_the_other(
    old: dict[str, FileState], new: dict[str, FileState]
) -> None:
    assert apply(old, diff(old, new)) == new
