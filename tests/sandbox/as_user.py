"""Run as a script: one command in one backend as a given user; order and answer are JSON.

Of other packages only those in pure Python are imported, so that any Python 3.11 of the machine
can run it: the one of the tests may lie where an ordinary user cannot enter.
"""

import base64
import json
import os
import sys
from pathlib import Path


def main() -> None:
    order = json.load(sys.stdin)
    for path in order["leaks"]:
        os.set_inheritable(os.open(path, os.O_RDONLY), True)
    if order["uid"] != os.geteuid():
        os.setgroups([])
        os.setgid(order["uid"])
        os.setuid(order["uid"])
    os.environ.update(order["environment"])
    sys.path.insert(0, str(Path(__file__).parents[2]))
    sys.path.append(order["packages"])
    from loom_audit.errors import AuditError
    from loom_audit.ports import Command, Limits
    from loom_audit.sandbox import CONFINING, probe

    options = order["options"]
    options["limits"] = Limits(**options.get("limits", {}))
    for name in ("readable", "writable"):
        options[name] = tuple(options.get(name, ()))
    runner = CONFINING[order["backend"]](order["hidden"])
    try:
        if not order["argv"]:
            probe(runner)
            answer = {}
        else:
            done = runner.run(order["root"], Command(tuple(order["argv"]), **options))
            answer = {
                "code": done.exit_code,
                "stdout": base64.b64encode(done.stdout).decode(),
                "stderr": base64.b64encode(done.stderr).decode(),
                "sandbox": done.sandbox,
            }
    except AuditError as error:
        answer = {"error": error.message, "details": dict(error.details)}
    sys.stdout.write(json.dumps(answer))


if __name__ == "__main__":
    main()
