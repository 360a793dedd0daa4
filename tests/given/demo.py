"""The demonstration, recorded to its end, with nothing that waits for a person."""

from pathlib import Path

from loom_audit.api.face import AuditStore
from loom_audit.demo.recording import Demo, demonstrating


def run_demo(store: AuditStore, folder: Path) -> Demo:
    """Record it in a folder: the workspace, and independent copies of it."""
    with demonstrating(store, folder, asking=False) as made:
        return made
