"""Migrations of the store (Alembic). They never alter `log`, `event` or `tree_node`."""
