"""How commands are run: plainly or confined, what works here, and git, which is asked something."""

from loom_audit.sandbox import confining_runner, open_runner, probe
from loom_audit.sandbox.asked import first_answer
from loom_audit.sandbox.git.files import check_links
from loom_audit.sandbox.git.place import opened_place
from loom_audit.sandbox.git.program import ask_git, find_git

__all__ = [
    "ask_git",
    "check_links",
    "confining_runner",
    "find_git",
    "first_answer",
    "open_runner",
    "opened_place",
    "probe",
]
