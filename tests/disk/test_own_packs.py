"""The packs that the mirror makes are packs of git's."""

import os
import subprocess
from hashlib import sha1, sha256
from pathlib import Path

import pytest

from loom_audit.disk.machine.own_packs import KINDS, PackWriter

SIZES = (0, 1, 15, 16, 511, 512, 513, 2_048, 70_000)


@pytest.mark.parametrize("long_ids", [False, True])
def test_git_reads_contents_of_every_size_from_a_pack_of_ours(
    tmp_path: Path, long_ids: bool
) -> None:
    form = "sha256" if long_ids else "sha1"
    subprocess.run(["git", "init", "-q", f"--object-format={form}", tmp_path], check=True)
    contents: dict[str, bytes] = {}
    with (tmp_path / "new").open("w+b") as file:
        writer = PackWriter(file, long_ids=long_ids)
        for size in SIZES:
            for body in (b"x" * size, os.urandom(size)):
                named = (sha256 if long_ids else sha1)(b"blob %d\0" % size + body).hexdigest()
                if named not in contents:
                    contents[named] = body
                    writer.add(named, KINDS[b"blob"], body)
        index = writer.finish()
    packs = tmp_path / ".git/objects/pack"
    name = f"pack-{index[-(32 if long_ids else 20) :].hex()}"
    (packs / f"{name}.idx").write_bytes(index)
    (tmp_path / "new").rename(packs / f"{name}.pack")
    asked = "".join(f"{one}\n" for one in contents).encode()
    words = ["git", "cat-file", "--batch"]
    done = subprocess.run(words, cwd=tmp_path, input=asked, capture_output=True, check=True)
    assert done.stdout == b"".join(
        f"{one} blob {len(body)}\n".encode() + body + b"\n" for one, body in contents.items()
    )
    subprocess.run(["git", "verify-pack", str(packs / f"{name}.idx")], cwd=tmp_path, check=True)
    strict = ["git", "index-pack", "--strict", str(packs / f"{name}.pack")]
    subprocess.run(strict, cwd=tmp_path, check=True)
