"""A client's process: it runs the hooks that it is told to on its standard input, a line each.

A line is an object of `argv`, `data`, and `kill`: after so many seconds the hook is killed. For
each it prints a line when the hook has ended: whether that was before it was killed.
"""

import json
import subprocess
import sys


def main() -> None:
    for line in sys.stdin:
        told = json.loads(line)
        pipe = subprocess.PIPE
        with subprocess.Popen(told["argv"], cwd="/", stdin=pipe, stdout=pipe) as hook:
            try:
                hook.communicate(told["data"].encode(), timeout=told["kill"])
                ended = True
            except subprocess.TimeoutExpired:
                hook.kill()
                ended = False
        sys.stdout.write(json.dumps(ended) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
