"""Programs of others that check what we sign, where they are installed."""

import json
import os
import shutil
import subprocess
from base64 import b64encode
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

_MODULES = Path("/usr/share/gocode/src")
_HAS_GO = shutil.which("go") is not None and (_MODULES / "golang.org/x/mod/sumdb/note").is_dir()

needs_go = pytest.mark.skipif(
    not _HAS_GO,
    reason="no Go with golang.org/x/mod here: apt-get install golang-go golang-golang-x-mod-dev",
)
needs_openssl = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")

_OPENER = """
package main

import (
	"encoding/json"
	"os"

	"golang.org/x/mod/sumdb/note"
)

func main() {
	var asked struct {
		Key   string
		Notes [][]byte
	}
	if err := json.NewDecoder(os.Stdin).Decode(&asked); err != nil {
		panic(err)
	}
	key, err := note.NewVerifier(asked.Key)
	if err != nil {
		panic(err)
	}
	texts := []*string{}
	for _, raw := range asked.Notes {
		opened, err := note.Open(raw, note.VerifierList(key))
		if err != nil {
			texts = append(texts, nil)
		} else {
			texts = append(texts, &opened.Text)
		}
	}
	json.NewEncoder(os.Stdout).Encode(texts)
}
"""


def note_opener(folder: Path) -> Callable[[str, Sequence[bytes]], list[str | None]]:
    """Go's `note.Open`: the text of each note that is signed by a key, None for the others."""
    (folder / "opener.go").write_text(_OPENER, "utf-8")
    settings = {
        "GOPATH": str(_MODULES.parent),
        "GO111MODULE": "off",
        "GOCACHE": str(folder / "cache"),
        "GOFLAGS": "",
    }
    build = ["go", "build", "-o", "opener", "opener.go"]
    subprocess.run(build, cwd=folder, env=os.environ | settings, check=True)

    def opened(key: str, notes: Sequence[bytes]) -> list[str | None]:
        asked = json.dumps({"Key": key, "Notes": [b64encode(note).decode() for note in notes]})
        done = subprocess.run([folder / "opener"], input=asked.encode(), capture_output=True)
        assert done.returncode == 0, done.stderr.decode()
        texts: list[str | None] = json.loads(done.stdout)
        return texts

    return opened
