"""Stands for a process of `loom-audit` that is forked elsewhere: `forked.begun_by` says how.

It is where its caller looks for that process: it hands over its arguments, folder, environment and
standard streams, passes signals on, and ends as the other one does. Standard library only.
"""

import json
import os
import signal
import socket
import struct
import sys

NUMBER = struct.Struct("=i")
PASSED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def main(door: str, *arguments: str) -> None:
    told, theirs = socket.socketpair()
    order = os.memfd_create("order")
    given = {
        "arguments": arguments,
        "cwd": os.getcwd(),  # noqa: PTH109 - pathlib is slow to import
        "env": dict(os.environ),
        "terminal": False,
    }
    os.write(order, json.dumps(given).encode())
    with socket.socket(socket.AF_UNIX) as orders, theirs:
        orders.connect("\0" + door)
        socket.send_fds(orders, [b"o"], [order, theirs.fileno(), 0, 1, 2])
        (pid,) = NUMBER.unpack(told.recv(NUMBER.size, socket.MSG_WAITALL))
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    os.closerange(0, 3)  # who reads them is to see the end of the other process
    (code,) = NUMBER.unpack(told.recv(NUMBER.size, socket.MSG_WAITALL))
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
