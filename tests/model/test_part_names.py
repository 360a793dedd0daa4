"""Parts of a change have the same name where they are the same, and another one where not."""

import itertools
from collections.abc import Sequence
from datetime import UTC, datetime

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from loom_audit.model.authorship.net import FileSteps, NetFile, net_file, without_lines
from loom_audit.model.authorship.part_names import with_names
from loom_audit.model.authorship.versions import Version, Writer
from loom_audit.model.authorship.walk import UnreadableLines
from loom_audit.model.files import BlobId, FileState

KEY = b"k" * 32
AT = datetime(2026, 3, 1, tzinfo=UTC)
PATHS = ("a", "a/b", "b", "bytes \udcff", "<b>.html", "a\nb", " ")

texts = st.lists(
    st.sampled_from([b"x\n", b"y\n", b"\n", b"x\r\n", b"<b>\n", b"\xff\n"]), max_size=8
)


class Contents:
    """Contents by their names, as lines."""

    def __init__(self) -> None:
        self.kept: dict[str, bytes] = {}

    def state(self, text: bytes | None, mode: int = 0o644) -> FileState | None:
        if text is None:
            return None
        name = text.hex().ljust(64, "0")[-64:] + str(len(text))
        self.kept[name] = text
        return FileState("file", BlobId(name), mode, len(text))


def changed(
    path: str,
    old: bytes | None,
    new: bytes | None,
    *,
    between: bytes | None = None,
    old_path: str = "",
    modes: tuple[int, int] = (0o644, 0o644),
    call: int = 7,
) -> NetFile:
    """The own net change of a call, or of two with a text between, that made new of old."""
    contents = Contents()
    texts = [old, new] if between is None else [old, between, new]
    states = [
        contents.state(text, modes[n == len(texts) - 1] if old is not None else modes[1])
        for n, text in enumerate(texts)
    ]
    versions = tuple(
        Version(
            seq=call + n,
            path=path,
            after=after,
            old_path=(old_path or path) if n == 0 else path,
            before=before,
            writer=Writer("call", call + n, AT, call=call),
            requested=call,
        )
        for n, (before, after) in enumerate(itertools.pairwise(states))
    )

    def read(state: FileState | None) -> Sequence[bytes] | UnreadableLines:
        text = b"" if state is None else contents.kept[str(state.blob)]
        return UnreadableLines("binary") if b"\0" in text else text.splitlines(keepends=True)

    return with_names(net_file(FileSteps(versions, -1, frozenset(range(len(versions)))), read), KEY)


def runs(file: NetFile) -> list[tuple[bytes, bytes, str]]:
    """The old lines, the new lines and the name of each run."""
    found = []
    for hunk in file.hunks:
        for run in hunk.runs:
            lines = hunk.lines[run.start : run.end]
            old, new = (b"".join(one.content for one in lines if one.kind == kind) for kind in "-+")
            found.append((old, new, run.part))
    return found


@given(texts, texts, texts, st.sampled_from(PATHS))
def test_a_part_has_the_same_name_in_every_scope_where_it_is_the_same(
    above: list[bytes], old: list[bytes], new: list[bytes], path: str
) -> None:
    """The lines above, the calls, and the states between do not matter, nor a scope's end."""
    start = b"".join(old)
    alone = changed(path, start, b"".join(new))
    later = changed(path, start, b"".join(new), between=b"q\n" + start, call=900)
    assert runs(alone) == runs(later) and alone.named == later.named
    shared = b"--\n-\n--\n" * 2
    moved = changed(
        path, b"".join(above) + shared + start, b"".join(above) + shared + b"".join(new)
    )
    first = {one[:2]: one[2] for one in reversed(runs(alone))}
    again = {one[:2]: one[2] for one in reversed(runs(moved))}
    for told in first.keys() & again.keys():
        assert first[told] == again[told]


@given(st.lists(st.tuples(st.sampled_from(PATHS), texts, texts), min_size=2, max_size=4))
def test_parts_differ_where_the_path_or_the_lines_differ(
    made: list[tuple[str, list[bytes], list[bytes]]],
) -> None:
    by_name: dict[str, tuple[object, ...]] = {}
    for path, old, new in made:
        seen: dict[tuple[bytes, bytes], int] = {}
        for one in runs(changed(path, b"".join(old), b"".join(new))):
            ordinal = seen[one[:2]] = seen.get(one[:2], -1) + 1
            told = (path, *one[:2], ordinal)
            assert by_name.setdefault(one[2], told) == told
    assert len({*by_name.values()}) == len(by_name), "one part has one name"


@given(texts, texts)
def test_another_key_gives_other_names(old: list[bytes], new: list[bytes]) -> None:
    file = changed("a", b"".join(old), b"".join(new))
    assume(file.named)
    other = with_names(file, b"other" * 7)
    assert len(other.named) == len(file.named) and not {*other.named} & {*file.named}
    assert with_names(changed("a", b"".join(old), b"".join(new)), b"").named == file.named


def test_without_a_key_nothing_is_named() -> None:
    plain = with_names(changed("a", b"x\n", b"y\n"), b"")
    assert runs(with_names(plain, KEY)) == runs(changed("a", b"x\n", b"y\n"))


@pytest.mark.parametrize(
    ("file", "what"),
    [
        (changed("a", b"\0", b"\0\0"), ["content"]),
        (changed("a", b"x\n", b"x\n", modes=(0o644, 0o755)), ["mode"]),
        (changed("b", b"x\n", b"x\n", old_path="a"), ["move"]),
        (changed("b", b"x\n", b"x\n", old_path="a", modes=(0o644, 0o755)), ["mode", "move"]),
        (changed("a", b"\0", b"\0\0", modes=(0o644, 0o755)), ["mode", "content"]),
        (changed("a", None, b""), ["content"]),
        (changed("a", b"", None), ["content"]),
        (changed("b", b"x\n", b"y\n", old_path="a"), []),
        (changed("a", b"x\n", b"y\n", modes=(0o644, 0o755)), ["mode"]),
    ],
)
def test_what_is_of_no_line_is_a_part_of_its_own(file: NetFile, what: list[str]) -> None:
    assert [one for _, one in file.unlined] == what
    assert file.named == (*(one[2] for one in runs(file)), *(name for name, _ in file.unlined))
    assert len({*file.named}) == len(file.named) > 0


def test_parts_of_no_line_are_told_apart() -> None:
    made = [
        changed("a", b"\0", b"\0\0"),
        changed("a", b"\0", b"\0\0\0"),
        changed("b", b"\0", b"\0\0"),
        changed("a", b"x\n", b"x\n", modes=(0o644, 0o755)),
        changed("a", b"x\n", b"x\n", modes=(0o644, 0o700)),
        changed("b", b"x\n", b"x\n", old_path="a"),
        changed("c", b"x\n", b"x\n", old_path="a"),
        changed("a", None, b""),
        changed("a", b"", None),
    ]
    assert len({file.named for file in made}) == len(made)


def test_permission_bits_that_one_of_several_calls_changed_are_perhaps_anothers() -> None:
    before, after = (FileState("file", BlobId("ab" * 32), mode, 2) for mode in (0o644, 0o755))
    writer = Writer("one of", 9, AT, calls=(5, 7))
    step = Version(9, "a", after, "a", before, writer, candidates=(5, 7))
    file = without_lines(FileSteps((step,), -1, frozenset(), frozenset({0})))
    assert (file.perhaps, file.mode, file.is_changed) == (("mode",), None, True)
