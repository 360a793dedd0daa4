"""The Merkle tree against RFC 9162's recursive definitions, written a second, naive way."""

from hashlib import sha256

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loom_audit.model import merkle

SIZES = range(131)
LEAVES = [f"leaf {n}".encode() * (n % 5) for n in SIZES]
HASHES = [merkle.leaf_hash(leaf) for leaf in LEAVES]


def naive_root(leaves):
    """MTH, RFC 9162 §2.1.1."""
    if not leaves:
        return sha256(b"").digest()
    if len(leaves) == 1:
        return sha256(b"\x00" + leaves[0]).digest()
    k = naive_split(len(leaves))
    return sha256(b"\x01" + naive_root(leaves[:k]) + naive_root(leaves[k:])).digest()


def naive_split(n):
    k = 1
    while k * 2 < n:
        k *= 2
    return k


def naive_path(m, leaves):
    """PATH, RFC 9162 §2.1.3.1."""
    if len(leaves) == 1:
        return []
    k = naive_split(len(leaves))
    if m < k:
        return [*naive_path(m, leaves[:k]), naive_root(leaves[k:])]
    return [*naive_path(m - k, leaves[k:]), naive_root(leaves[:k])]


def naive_proof(m, leaves):
    """PROOF, RFC 9162 §2.1.4.1."""
    return naive_subproof(m, leaves, True)


def naive_subproof(m, leaves, whole):
    if m == len(leaves):
        return [] if whole else [naive_root(leaves)]
    k = naive_split(len(leaves))
    if m <= k:
        return [*naive_subproof(m, leaves[:k], whole), naive_root(leaves[k:])]
    return [*naive_subproof(m - k, leaves[k:], False), naive_root(leaves[:k])]


ROOTS = [naive_root(LEAVES[:n]) for n in SIZES]


@pytest.fixture(scope="module")
def node():
    """The complete nodes as a store keeps them: what `Frontier.append` said was completed."""
    nodes = {(0, n): hashed for n, hashed in enumerate(HASHES)}
    frontier = merkle.Frontier()
    for hashed in HASHES:
        for completed in frontier.append(hashed):
            key = completed.level, completed.index
            assert key not in nodes
            nodes[key] = completed.hash
    return lambda level, index: nodes[level, index]


def test_known_roots_of_the_certificate_transparency_test_tree():
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


def test_the_root_of_every_size_is_that_of_the_recursive_definition(node):
    frontier = merkle.Frontier()
    for size in SIZES:
        assert merkle.root(HASHES[:size]) == ROOTS[size]
        assert merkle.root_at(size, node) == ROOTS[size]
        assert merkle.frontier_at(size, node) == frontier
        assert frontier.root() == ROOTS[size]
        assert len(frontier.hashes) == size.bit_count()
        frontier.append(HASHES[size])


def test_every_inclusion_proof_is_the_recursive_one_and_verifies(node):
    for size in SIZES:
        for index in range(size):
            proof = merkle.inclusion_proof(index, size, node)
            assert list(proof) == naive_path(index, LEAVES[:size])
            assert merkle.verify_inclusion(HASHES[index], index, size, proof, ROOTS[size])


def test_every_consistency_proof_is_the_recursive_one_and_verifies(node):
    for new in SIZES:
        for old in range(1, new + 1):
            proof = merkle.consistency_proof(old, new, node)
            assert list(proof) == naive_proof(old, LEAVES[:new])
            assert merkle.verify_consistency(old, ROOTS[old], new, ROOTS[new], proof)


def broken(proof):
    """The proof with one hash changed, left out, doubled, or exchanged with its neighbour."""
    for n, item in enumerate(proof):
        yield (*proof[:n], bytes([item[0] ^ 1]) + item[1:], *proof[n + 1 :])
        yield (*proof[:n], *proof[n + 1 :])
        yield (*proof[: n + 1], *proof[n:])
        if n and proof[n - 1] != item:
            yield (*proof[: n - 1], item, proof[n - 1], *proof[n + 1 :])
    yield (*proof, b"\x00" * 32)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8, 64, 100])
def test_a_tampered_inclusion_proof_is_refused(size, node):
    for index in range(size):
        proof = merkle.inclusion_proof(index, size, node)
        hashed, expected = HASHES[index], ROOTS[size]
        for wrong in broken(proof):
            assert not merkle.verify_inclusion(hashed, index, size, wrong, expected)
        assert not merkle.verify_inclusion(HASHES[index + 1], index, size, proof, expected)
        assert not merkle.verify_inclusion(hashed, index, size, proof, ROOTS[size + 1])
        for other in range(size):
            if other != index:
                assert not merkle.verify_inclusion(hashed, other, size, proof, expected)
        assert not merkle.verify_inclusion(hashed, size, size, proof, expected)
        assert not merkle.verify_inclusion(hashed, -1, size, proof, expected)


@pytest.mark.parametrize("new", [1, 2, 3, 8, 13, 64, 70])
def test_a_tampered_consistency_proof_is_refused(new, node):
    for old in range(1, new + 1):
        proof = merkle.consistency_proof(old, new, node)
        for wrong in broken(proof):
            assert not merkle.verify_consistency(old, ROOTS[old], new, ROOTS[new], wrong)
        assert not merkle.verify_consistency(old, ROOTS[old - 1], new, ROOTS[new], proof)
        assert not merkle.verify_consistency(old, ROOTS[old], new, ROOTS[new + 1], proof)
        assert not merkle.verify_consistency(new + 1, ROOTS[new + 1], new, ROOTS[new], proof)
        for other in range(1, new):
            if other != old:
                assert not merkle.verify_consistency(other, ROOTS[old], new, ROOTS[new], proof)


@pytest.mark.parametrize("proof", [(), (b"\x00" * 32,), (ROOTS[5],)])
def test_nothing_is_consistent_with_the_empty_tree(proof):
    assert not merkle.verify_consistency(0, merkle.EMPTY_ROOT, 5, ROOTS[5], proof)
    assert not merkle.verify_consistency(0, merkle.EMPTY_ROOT, 0, merkle.EMPTY_ROOT, proof)


def test_proofs_that_do_not_exist_are_refused(node):
    for index, size in ((0, 0), (3, 3), (-1, 3)):
        with pytest.raises(ValueError):
            merkle.inclusion_proof(index, size, node)
    for old, new in ((0, 3), (4, 3)):
        with pytest.raises(ValueError):
            merkle.consistency_proof(old, new, node)


@given(
    st.integers(-2, 200),
    st.integers(-2, 200),
    st.lists(st.binary(min_size=32, max_size=32), max_size=10),
)
def test_random_proofs_never_verify(first, second, proof):
    assert not merkle.verify_inclusion(b"\x01" * 32, first, second, proof, b"\x02" * 32)
    if first != second:
        assert not merkle.verify_consistency(first, b"\x01" * 32, second, b"\x02" * 32, proof)


@given(st.integers(0, 400), st.integers(0, 400))
def test_a_frontier_read_back_goes_on_as_the_one_kept(first, more):
    kept, nodes = merkle.Frontier(), {}
    for n in range(first + more):
        hashed = merkle.leaf_hash(n.to_bytes(4, "big"))
        nodes[0, n] = hashed
        if n == first:
            assert merkle.frontier_at(first, lambda *at: nodes[at]) == kept
        nodes.update({(level, index): found for level, index, found in kept.append(hashed)})
    assert merkle.root_at(first + more, lambda *at: nodes[at]) == kept.root()


@pytest.mark.parametrize("level", [0, 1, 3])
def test_whole_subtrees_appended_give_the_same_tree_as_their_leaves(level):
    width = 1 << level
    one_by_one, by_subtree = merkle.Frontier(), merkle.Frontier()
    for start in range(0, 128, width):
        part = HASHES[start : start + width]
        expected = [node for hashed in part for node in one_by_one.append(hashed)]
        assert merkle.subtree_root(part) == naive_root(LEAVES[start : start + width])
        completed = by_subtree.append(merkle.subtree_root(part), level)
        assert completed == [node for node in expected if node.level > level]
        assert by_subtree == one_by_one
