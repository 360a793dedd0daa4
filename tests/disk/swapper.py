"""Lets names trade places as fast as it can until it is killed: `swapper.py ROOT MODE`."""

import os
import sys

root, mode = sys.argv[1], sys.argv[2]
one, other = os.path.join(root, "d"), os.path.join(root, "..", "link")
spare = os.path.join(root, "..", "spare")
sys.stdout.write("ready\n")
sys.stdout.flush()
if mode == "exchange":
    from loom_audit.disk.access import system

    while True:
        system.renameat2(-100, os.fsencode(one), -100, os.fsencode(other), system.RENAME_EXCHANGE)
while True:
    os.rename(one, spare)
    os.rename(other, one)
    os.rename(one, other)
    os.rename(spare, one)
