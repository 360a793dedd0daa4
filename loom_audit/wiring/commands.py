"""How commands are run: plainly or confined, what works here, and one that is asked something."""

from loom_audit.sandbox import confining_runner, open_runner, probe
from loom_audit.sandbox.asked import first_answer

__all__ = [
    "confining_runner",
    "first_answer",
    "open_runner",
    "probe",
]
