"""Events as they lie in rows, the Merkle tree over them, and reading them checked."""
