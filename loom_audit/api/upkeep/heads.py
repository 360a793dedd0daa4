"""Tree heads as lines of text."""

from loom_audit.wiring.heads import head_line, parse_heads

__all__ = ["head_line", "parse_heads"]
