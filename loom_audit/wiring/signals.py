"""Signals that ask for an end, kept back while something must not be left half done."""

from loom_audit.disk.machine.signals import deferred

__all__ = ["deferred"]
