"""Which objects the entries of an index name."""

from loom_audit.history.look.git.kept_objects import wanted_objects
from loom_audit.ports import GitSeen

A, B = "a" * 40, "b" * 64


def test_the_path_of_an_entry_is_not_read_as_another_entry() -> None:
    hidden = f"H 100644 {'c' * 40} 0"
    entries = [
        f"H 100644 {A} 0\t{hidden}\tx",
        f"intended H 100644 {'d' * 40} 0\ty",
        f"H 160000 {'e' * 40} 0\tmodule",
        f"H 160000 {'e' * 40} 0\t\n{hidden}\tz",
        f"S 120000 {B} 2\tlink",
    ]
    seen = GitSeen({}, {}, "".join(f"{one}\0" for one in entries).encode())
    assert [*wanted_objects(seen)] == [A, B]
