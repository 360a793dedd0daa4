"""Tree heads that are kept outside the store, of which logs, and as lines of text."""

from loom_audit.disk.machine.heads import LastVerified, head_line, logs_with_heads, parse_heads

__all__ = [
    "LastVerified",
    "head_line",
    "logs_with_heads",
    "parse_heads",
]
