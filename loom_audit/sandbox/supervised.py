"""How a supervisor is started, by which its process is known, too."""

from pathlib import Path

# imported, not run as a script, so that its compiled form is used: 3 ms of 14
SUPERVISOR = "import sys; sys.path.insert(0, sys.argv[3]); import supervisor; supervisor.main()"
FOLDER = str(Path(__file__).parent)
