"""Which settings say that a repository's work tree or refs lie elsewhere."""

import pytest

from loom_audit.model.plans.git_settings import is_elsewhere, is_of_long_ids


@pytest.mark.parametrize(
    "config",
    [
        b"[core]\n\tworktree = /x\n",
        b"[core] worktree = /x",
        b"[alias] [Core] WorkTree=/x",
        b"[extensions]\r\n\trefStorage = reftable\r\n",
        b"\xef\xbb\xbf[core]\nworktree = /x",
        b"[core]\neditor = a\\\n[alias]\nworktree = /x",
    ],
)
def test_it_is_elsewhere(config: bytes) -> None:
    assert is_elsewhere(config)


@pytest.mark.parametrize(
    "config",
    [
        b"[core]\n\tbare = false\n[alias]\n\tworktree = log -1\n",
        b"[alias] worktree = log",
        b'[core "x"]\nworktree = /x\n',
        b"[core]\n# worktree = /x\n; worktree = /x",
        b'[remote "[core]"]\nworktree = x',
    ],
)
def test_it_is_not_elsewhere(config: bytes) -> None:
    assert not is_elsewhere(config)


def test_long_ids_are_known_by_the_format() -> None:
    assert is_of_long_ids(b"[core]\n\tbare = true\n[extensions]\n\tobjectFormat = sha256\n")
    assert not is_of_long_ids(b"[x]\n\tobjectformat = sha256\n[extensions]\nobjectformat=sha1")
