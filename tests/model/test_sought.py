"""Where sought words stand in a text, and the stretch that shows them."""

import pytest

from loom_audit.model.text.sought import best_snippets, snippet, sought_words, words_of


def shown(text: str, words: str, width: int = 60) -> str | None:
    found = snippet("", text, sought_words(words), width)
    if found is None:
        return None
    return "".join(f"[{piece}]" if marked else piece for piece, marked in found.pieces)


def test_words_are_without_case_and_accents() -> None:
    assert words_of("Größe_1 ÜBER-all") == ["grosse_1", "uber", "all"]
    assert sought_words("b a b") == ("b", "a")


@pytest.mark.parametrize(
    ("words", "marked"),
    [
        ("parser", "the [Parser] parses [parser] files"),
        ("pars", "the [Parser] [parses] [parser] files"),
        ("parser fil", "the [Parser] parses [parser] [files]"),
        ("absent", None),
        ("", None),
    ],
)
def test_the_last_word_may_be_begun(words: str, marked: str | None) -> None:
    assert shown("the Parser parses parser files", words) == marked


def test_a_word_with_an_accent_is_marked_as_it_stands() -> None:
    assert shown("im Café drinnen", "cafe") == "im [Café] drinnen"
    assert shown("Übergröße 42", "übergröße") == "[Übergröße] 42"


def test_a_stretch_is_cut_between_words_and_shown_on_one_line() -> None:
    text = "before " * 30 + "\n\n\tthe needle\there " + "after " * 30
    found = shown(text, "needle")
    assert found is not None
    assert found.startswith("… before") and found.endswith(" …")
    assert "the [needle] here" in found and "\n" not in found


def test_the_stretch_with_most_of_the_words_is_shown() -> None:
    text = "one " + "x " * 50 + "one two " + "y " * 200 + "two"
    assert "[one] [two]" in (shown(text, "one two x", 40) or "")


def test_a_second_stretch_is_there_for_other_words_only() -> None:
    texts = [("command", "make all"), ("output", "all is made"), ("error", "make failed")]
    found = best_snippets(texts, sought_words("failed make all"))
    assert [one.label for one in found] == ["command", "error"]
    assert [one.label for one in best_snippets(texts, sought_words("all"))] == ["command"]
    assert best_snippets(texts, sought_words("absent")) == ()


def test_only_the_beginning_of_a_long_text_is_looked_at() -> None:
    assert shown("a" * 100_000 + " needle", "needle") is None


def test_the_first_text_with_all_words_is_shown_alone_with_every_mark_in_it() -> None:
    texts = [("a", "one value"), ("b", "value one value"), ("c", "one value"), ("d", "one")]
    [shown] = best_snippets(texts, ("one", "value"))
    assert (shown.label, shown.pieces) == ("a", (("one", True), (" ", False), ("value", True)))
    [shown] = best_snippets(texts[1:], ("one", "value"))
    assert (shown.label, [text for text, said in shown.pieces if said]) == (
        "b",
        ["value", "one", "value"],
    )
    assert [one.label for one in best_snippets(texts, ("zwei", "one"))] == ["a"]
