"""Run as a script: commands in a backend as a given user; an order and its answer are JSON.

Each order comes on a connection of its own to the socket at the given path and is obeyed by a
process of its own, forked from this one, which has loaded what it needs.

Of other packages only those in pure Python are imported, so that any Python 3.11 of the machine
can run it: the one of the tests may lie where an ordinary user cannot enter.
"""

import base64
import json
import os
import signal
import socket
import sys
from pathlib import Path
from typing import Any


def obey(order: dict[str, Any]) -> dict[str, Any]:
    """Be that user and run the command; what came of it."""
    for path in order["leaks"]:
        os.set_inheritable(os.open(path, os.O_RDONLY), True)
    if order["uid"] != os.geteuid():
        os.setgroups([])
        os.setgid(order["uid"])
        os.setuid(order["uid"])
    os.environ.update(order["environment"])
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
            return {}
        done = runner.run(order["root"], Command(tuple(order["argv"]), **options))
    except AuditError as error:
        return {"error": error.message, "details": dict(error.details)}
    return {
        "code": done.exit_code,
        "stdout": base64.b64encode(done.stdout).decode(),
        "stderr": base64.b64encode(done.stderr).decode(),
        "sandbox": done.sandbox,
    }


def main() -> None:
    sys.path.insert(0, str(Path(__file__).parents[2]))
    path, packages = sys.argv[1:]
    sys.path.append(packages)
    import loom_audit.ports
    import loom_audit.sandbox  # noqa: F401 - loaded once for all

    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for them
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(path)
        server.listen()
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            connection, _ = server.accept()
            if os.fork() == 0:
                break
            connection.close()
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    with connection, connection.makefile("rw") as stream:
        json.dump(obey(json.loads(stream.readline())), stream)


if __name__ == "__main__":
    main()
