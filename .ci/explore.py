"""Draws new examples until the time is up: `make explore SECONDS=600 [SEED=…]`.

Round after round runs what draws, with the seeds SEED, SEED/1, SEED/2, … The first round in
which something is found is the last one.
"""

import argparse
import itertools
import os
import secrets
import subprocess
import sys
import time
import zlib

TESTS = ("-m", "drawn and not deep and not browser", "-n", "auto", "--dist", "worksteal", "-q")


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--seed", default=str(secrets.randbelow(2**32)))
    asked = parser.parse_args()
    end = time.time() + asked.seconds
    for n in itertools.count():
        if time.time() >= end:
            print(f"explore: {n} rounds from seed {asked.seed}, nothing found", flush=True)
            return 0
        seed = f"{asked.seed}/{n}" if n else asked.seed
        print(f"explore: round {n + 1}, seed {seed}", flush=True)
        options = ["--seed", seed, "--until", str(end)]
        # sets are iterated in another order too
        order = {"PYTHONHASHSEED": str(zlib.crc32(seed.encode()))}
        command = [sys.executable, "-m", "pytest", *TESTS, *options]
        done = subprocess.run(command, env=os.environ | order, check=False)
        if done.returncode:
            print(f"explore: round {n + 1} failed, seed {seed}", flush=True)
            return done.returncode
    return 0


if __name__ == "__main__":
    sys.exit(main())
