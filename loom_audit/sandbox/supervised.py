"""How a supervisor, or what starts several, is started; by that its process is known, too."""

from pathlib import Path

# imported, not run as a script, so that its compiled form is used: 3 ms of 14
SUPERVISOR = (
    "import sys; sys.path.insert(0, sys.argv[1]); "
    "__import__(sys.argv[2]).main(*map(int, sys.argv[3:]))"
)
"""A program whose arguments are FOLDER, the name of a module there, and its descriptors."""

FOLDER = str(Path(__file__).parent)
