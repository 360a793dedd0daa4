"""`python -m loom_audit` is `loom-audit`."""

from loom_audit.cli import main

main()
