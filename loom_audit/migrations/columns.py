"""Giving a table of projections one more column in a migration."""

import re

from alembic import op


def add_column(table: str, column: str, value: str) -> None:
    """Make the table anew, with a column behind the others, as a new store has it.

    `column` is its name and type in SQL, `value` the expression for it in the rows that are there.
    """
    connection = op.get_bind()

    def texts(sql: str) -> list[str]:
        return [row[0] for row in connection.exec_driver_sql(sql, (table,))]

    create, *indexes = texts(
        "SELECT sql FROM sqlite_master WHERE tbl_name = ? AND sql IS NOT NULL ORDER BY type DESC"
    )
    names = ", ".join(texts("SELECT name FROM pragma_table_info(?)"))
    old, added = f"old_{table}", column.split()[0]
    op.rename_table(table, old)
    op.execute(re.sub(r",\s*PRIMARY KEY", f", {column}, PRIMARY KEY", create, count=1))
    op.execute(f"INSERT INTO {table} ({names}, {added}) SELECT {names}, {value} FROM {old}")
    op.drop_table(old)  # its indexes go with it, their figures for the planner stay
    for index in indexes:
        op.execute(index)
