"""The Merkle tree against RFC 9162's recursive definitions, written a second, naive way."""

from collections.abc import Callable
from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.model.stored import merkle

SIZES = range(131)
LEAVES = [f"leaf {n}".encode() * (n % 5) for n in SIZES]
HASHES = [merkle.leaf_hash(leaf) for leaf in LEAVES]


def naive_root(leaves: list[bytes]) -> bytes:
    """MTH, RFC 9162 §2.1.1."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    k = naive_split(len(leaves))
    return sha256(b"\x01" + naive_root(leaves[:k]) + naive_root(leaves[k:])).digest()


def naive_split(n: int) -> int:
    k = 1
    while k * 2 < n:
        k *= 2
    return k


ROOTS = [naive_root(LEAVES[:n]) for n in SIZES]


@pytest.fixture(scope="module")
def node() -> Callable[[int, int], bytes]:
    """The complete nodes as a store keeps them: what `Frontier.append` said was completed."""
    nodes = {(0, n): hashed for n, hashed in enumerate(HASHES)}
    frontier = merkle.Frontier()
    for hashed in HASHES:
        for completed in frontier.append(hashed):
            key = completed.level, completed.index
            assert key not in nodes
            nodes[key] = completed.hash
    return lambda level, index: nodes[level, index]


def test_known_roots_of_the_certificate_transparency_test_tree() -> None:
    inputs = [
        bytes.fromhex(text)
        for text in (
            "",
            "00",
            "10",
            "2021",
            "3031",
            "40414243",
            "5051525354555657",
            "606162636465666768696a6b6c6d6e6f",
        )
    ]
    roots = [merkle.root(map(merkle.leaf_hash, inputs[:n])).hex() for n in (0, 1, 2, 3, 8)]
    assert roots == [
        "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
        "6e340b9cffb37a989ca544e6bb780a2c78901d3fb33738768511a30617afa01d",
        "fac54203e7cc696cf0dfcb42c92a1d9dbaf70ad9e621f4bd8d98662f00e3c125",
        "aeb6bcfe274b70a14fb067a5e5578264db0fa9b51af5e0ba159158f329e06e77",
        "5dc9da79a70659a9ad559cb701ded9a2ab9d823aad2f4960cfe370eff4604328",
    ]


def test_the_root_of_every_size_is_that_of_the_recursive_definition(
    node: Callable[[int, int], bytes],
) -> None:
    frontier = merkle.Frontier()
    for size in SIZES:
        assert merkle.root(HASHES[:size]) == ROOTS[size]
        assert merkle.root_at(size, node) == ROOTS[size]
        assert merkle.frontier_at(size, node) == frontier
        assert frontier.root() == ROOTS[size]
        assert len(frontier.hashes) == size.bit_count()
        frontier.append(HASHES[size])


@given(st.integers(0, 400), st.integers(0, 400))
def test_a_frontier_read_back_goes_on_as_the_one_kept(first: int, more: int) -> None:
    kept, nodes = merkle.Frontier(), {}
    for n in range(first + more):
        hashed = merkle.leaf_hash(n.to_bytes(4, "big"))
        nodes[0, n] = hashed
        if n == first:
            assert merkle.frontier_at(first, lambda *at: nodes[at]) == kept
        nodes.update({(level, index): found for level, index, found in kept.append(hashed)})
    assert merkle.root_at(first + more, lambda *at: nodes[at]) == kept.root()


@pytest.mark.parametrize("level", [0, 1, 3])
def test_whole_subtrees_appended_give_the_same_tree_as_their_leaves(level: int) -> None:
    width = 1 << level
    one_by_one, by_subtree = merkle.Frontier(), merkle.Frontier()
    for start in range(0, 128, width):
        part = HASHES[start : start + width]
        expected = [node for hashed in part for node in one_by_one.append(hashed)]
        assert merkle.subtree_root(part) == naive_root(LEAVES[start : start + width])
        completed = by_subtree.append(merkle.subtree_root(part), level)
        assert completed == [node for node in expected if node.level > level]
        assert by_subtree == one_by_one
