"""The module of each public name, by the lines of `public`: they are read, not run."""

import re
from pathlib import Path

MODULES = {
    name: module
    for module, name in re.findall(
        r"^from (\S+) import (\w+) as \2$",
        Path(__file__).with_name("public.py").read_text("utf-8"),
        re.MULTILINE,
    )
}
