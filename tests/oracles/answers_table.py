"""The table in `docs/clients/README.md` of what is answered to each client."""

import re
from collections.abc import Mapping
from pathlib import Path

GUIDE = Path(__file__).parents[2] / "docs" / "clients" / "README.md"
COLUMNS = ("nothing", "allow", "deny")


def answers() -> Mapping[str, Mapping[str, str]]:
    """By client and by what was decided: what the table says."""
    rows = GUIDE.read_text("utf-8").split("## Answers")[1]
    found = re.findall(r"^\| `([\w-]+)` \| (.+) \|$", rows, re.MULTILINE)
    return {client: dict(zip(COLUMNS, told.split(" | "), strict=True)) for client, told in found}
