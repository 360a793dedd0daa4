"""The caches of a workspace on this machine: how large they are, and emptying them."""

from loom_audit.wiring.caches import Cache, empty_caches, sizes_of

__all__ = ["Cache", "empty_caches", "sizes_of"]
