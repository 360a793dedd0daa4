"""Which paths a shell command names as what it writes, deletes or moves."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.model.shell.named import Named, named_by, named_in

NAMING = {
    "echo x > a": ["/w/a"],
    "echo x >> 'a b'": ["/w/a b"],
    "make 2> err.log >&2": ["/w/err.log"],
    "make &> all.log": ["/w/all.log"],
    "cat < in > out": ["/w/out"],
    "rm -f -- -a b": ["/w/-a", "/w/b"],
    "rm -rf d": ["/w/d/"],
    "mv a b": ["/w/a/", "/w/b/ (a)"],
    "mv a b d": ["/w/a/", "/w/b/", "/w/d/a/", "/w/d/b/"],
    "mv -t d a": ["/w/a/", "/w/d/a/"],
    "cp -p x/a y": ["/w/y/ (a)"],
    "touch -d yesterday a": ["/w/a"],
    "printf x | tee -a log | cat": ["/w/log"],
    "mkdir -p a/b": ["/w/a", "/w/a/b"],
    "sed -i s/a/b/ one two": ["/w/one", "/w/two"],
    "sed -ie s/a/b/ one": ["/w/one"],
    "dd if=a of=b": ["/w/b"],
    "cd sub && rm a": ["/w/sub/a"],
    "(cd sub; rm a); rm b": ["/w/sub/a", "/w/b"],
    "sudo -u root env X=1 rm a": ["/w/a"],
    "timeout -k 3 5 touch a": ["/w/a"],
    "bash -lc 'rm a; echo > b'": ["/w/a", "/w/b"],
    "F=a; rm $F": ["/w/a"],
    "for f in a b; do rm $f; done": ["/w/a", "/w/b"],
    "rm {a,b}.txt": ["/w/a.txt", "/w/b.txt"],
    "curl -so page.html http://x": ["/w/page.html"],
    "gcc -O2 -c a.c -o out/a.o": ["/w/out/a.o"],
    "chmod 600 a": ["/w/a"],
    "rm /etc/passwd": ["/etc/passwd"],
}

NOTHING = [
    "cat precious.txt",
    "grep -r rm precious.txt",
    "python make.py out.txt",
    "rm *.txt",
    "rm $1",
    "rm $(cat list)",
    'echo "> a"',
    "echo rm a",
    "cd $X && rm a",
    "cd - ; rm a",
    "pushd a; popd; rm b",
    "sed s/a/b/ one",
    "ls >&2",
    "true # > a",
    "",
]


def shown(found: Named) -> str:
    names = f" ({' '.join(found.into)})" if found.into else ""
    return found.path + ("/" if found.below else "") + names


@pytest.mark.parametrize("command", NAMING)
def test_a_command_names_what_it_writes_deletes_or_moves(command: str) -> None:
    assert sorted({shown(one) for one in named_in(command, "/w")}) == sorted(NAMING[command])


@pytest.mark.parametrize("command", NOTHING)
def test_a_command_that_is_not_certain_to_write_a_path_names_nothing(command: str) -> None:
    assert [*named_in(command, "/w")] == []


def test_words_that_no_shell_reads_are_not_text() -> None:
    assert [shown(one) for one in named_by(["rm", "a; rm b", "$c"], "/w")] == [
        "/w/a; rm b",
        "/w/$c",
    ]
    assert [shown(one) for one in named_by(["sh", "-c", "rm a"], "/w")] == ["/w/a"]


@given(st.text("rm -f'\"$(){}<>|&; \n\\`ab*~=", max_size=60))
def test_any_text_can_be_asked(text: str) -> None:
    for one in named_in(text, "/w"):
        assert one.path and "\ufdd0" not in one.path
