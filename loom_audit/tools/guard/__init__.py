"""The seat-belt: shell commands that are refused, by their parsed words."""
