"""Recommended rules: what is asked about, and which hosts are fetched from without asking."""

from contextlib import ExitStack
from pathlib import Path

from loom_audit.config import APPROVALS, TOOLS, Settings

RULES = """\
# Which calls are allowed, asked about or denied. The first rule that matches decides; where
# none does, the tool does: overwriting, deleting, installing, pushing and fetching from a host
# that is not in allowed_hosts of tools.toml are asked about.
# See docs/approvals.md. A file with an error lets nothing start.

timeout = 600  # seconds for an answer; without one by then the call is denied

[[rule]]
path = ".env*"  # gitignore syntax, over the workspace paths a call names or would change
effect = "write"
action = "deny"
reason = "holds secrets"

[[rule]]
tool = "delete_file"
action = "ask"
reason = "deletes"

[[rule]]
command = "sudo *"  # to deny or to ask, one command of a line is enough
action = "deny"
reason = "runs as another user, who is not held to the workspace"

[[rule]]
command = "git push *"
action = "ask"
reason = "publishes"

[[rule]]
command = "rm *"
action = "ask"
reason = "deletes"

[[rule]]
command = "git status *"  # to allow, every command of a line must match, and nothing may expand
action = "allow"
reason = "only looks"
"""

SETTINGS = """\
# What holds for the tools: see docs/tools.md. A file with an error lets nothing start.

# web_fetch asks about every other host; `*.` in front stands for all below a name
allowed_hosts = ["docs.python.org", "developer.mozilla.org"]
"""


def write_recommended(settings: Settings) -> list[Path]:
    """Write `approvals.toml` and `tools.toml`, each where there is none; the files written.

    They hold from the next session on. OSError where not both can be written; then none is.
    """
    folder = settings.configuration
    for one in (folder.parent, folder):  # the data folder may be the parent
        one.mkdir(mode=0o700, parents=True, exist_ok=True)
    with ExitStack() as made:
        written = []
        for name, text in ((APPROVALS, RULES), (TOOLS, SETTINGS)):
            try:
                file = (folder / name).open("x", encoding="utf-8")
            except FileExistsError:
                continue
            made.callback((folder / name).unlink, missing_ok=True)
            with file:
                file.write(text)
            written.append(folder / name)
        made.pop_all()
    return written
