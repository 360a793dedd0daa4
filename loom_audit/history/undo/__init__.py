"""Takes back calls: selects which, plans what that would change, and carries the plan out."""
