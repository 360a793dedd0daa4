"""A page as text: what is kept, what is left out, and markup that was made to do harm."""

import pytest

from loom_audit.tools.bundled.web.readable import MAX_LINKS, MAX_TAGS, Page, readable

ADDRESS = "https://example.org/a/b"


def text(markup: str) -> str:
    return readable(markup, ADDRESS).text


@pytest.mark.parametrize(
    ("markup", "shown"),
    [
        ("", ""),
        ("plain < text & more", "plain < text & more"),
        ("<p>one\n  two<p>three", "one two\n\nthree"),
        ("a<br>b<div>c<div>d</div>e</div>f", "a\nb\nc\nd\ne\nf"),
        ("<ul><li>one<li>two <i>x</i></ul>", "- one\n- two x"),
        ("<h3>Head</h3>text", "### Head\n\ntext"),
        ("<table><tr><th>a<th>b<tr><td>1<td>2</table>", "a | b\n1 | 2"),
        ("<pre>if a:\n    b\n</pre>after", "if a:\n    b\n\nafter"),
        ("say <code>x &lt; y</code>&nbsp;now", "say x < y now"),
        ("<img src=a.png alt='a cat'> <img src=b.png>", "[a cat]"),
        ("<style>p{}</style>x<script>y</script><noscript>z</noscript><!-- c -->", "x"),
        ("<svg><title>t</title><text>x</text></svg><template>y</template>z", "z"),
        ("a\0b\ud800c\ufffe", "a\ufffdb\ufffdc\ufffd"),
    ],
)
def test_a_page_is_read_as_text(markup: str, shown: str) -> None:
    assert readable(markup, ADDRESS) == Page("", shown, [], False)


def test_links_are_whole_once_and_of_the_web() -> None:
    markup = (
        "<a href='../c#d'>up <b>there</b></a><a href='../c#d'>up there</a><a href='#x'>here</a>"
        "<a href='mailto:a@b'>mail</a><a href='javascript:x()'>x</a><a href='http://['>bad</a>"
        "<a href='//other.example/'><img alt='pic'></a><a name=n>no</a>"
    )
    assert readable(markup, ADDRESS).links == [
        ("up there", "https://example.org/c#d"),
        ("[pic]", "https://other.example/"),
    ]


def test_the_first_title_is_the_title() -> None:
    page = readable("<title> A\n&amp; B </title><p>x<title>second</title>", ADDRESS)
    assert page.title == "A & B" and page.text.startswith("x")


def test_more_links_than_are_named_and_more_tags_than_are_read_are_said() -> None:
    links = "".join(f"<a href=/{n}>{n}</a>" for n in range(MAX_LINKS + 1))
    page = readable(links, ADDRESS)
    assert len(page.links) == MAX_LINKS and page.truncated
    page = readable("<b>x" * MAX_TAGS + "<p>never", ADDRESS)
    assert page.text == "x" * MAX_TAGS and page.truncated
    assert not readable("<b>x" * MAX_TAGS, ADDRESS).truncated


@pytest.mark.few(2)
@pytest.mark.parametrize(
    "markup",
    [
        "<div>" * 100_000,
        "<b>" * 20_000 + "</i>" * 100_000,
        "<a " + " ".join(f"a{n}=1" for n in range(100_000)) + ">",
        "<" * 500_000,
        "<table><tr><td>" * 30_000,
        "<pre>" + "<b>x" * 100_000,
        "<script>" + "</scrip" * 70_000,
        "<a b='" * 100_000,
    ],
    ids=["nested", "closes nothing", "attributes", "signs", "tables", "exact", "script", "quotes"],
)
def test_markup_that_was_made_to_take_long_is_read_and_left(markup: str) -> None:
    readable(markup, ADDRESS)  # without a bound of ours some of these take minutes
