"""What the dashboard ships: pinned files, templates that cannot leak, a small sheet."""

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

from loom_audit.web.shared.pages import assets, fingerprints

TEMPLATES = sorted(assets("templates").glob("*.html"))
OWN = {"app.js", "keys.js"}
VENDORED = [assets("static"), Path(__file__).parent / "vendor"]


@pytest.mark.parametrize("folder", VENDORED, ids=lambda folder: folder.name)
def test_vendored_files_are_the_pinned_ones_and_keep_their_licence(folder: Path) -> None:
    listed = json.loads((folder / "VENDOR.json").read_text())["files"]
    for entry in listed:
        content = (folder / entry["file"]).read_bytes()
        assert hashlib.sha256(content).hexdigest() == entry["sha256"], entry["file"]
        assert entry["version"] in entry["file"]
        assert (folder / entry["license_file"]).read_text().strip()
    scripts = {file.name for file in folder.glob("*.js")}
    pinned = {entry["file"] for entry in listed}
    assert scripts - OWN == pinned, "a script that nobody pinned"


@pytest.mark.parametrize(
    ("pattern", "why"),
    [
        (r"\|\s*safe\b", "nothing recorded is ever markup"),
        (r"autoescape\s+false", "nothing recorded is ever markup"),
        (r"<[^>{]*\sstyle=", "the policy forbids inline style"),
        (r"<style", "the policy forbids inline style"),
        (r"<[^>{]*\son[a-z]+=", "the policy forbids handlers"),
        (r"<script(?![^>]*\bsrc=)", "the policy forbids inline scripts"),
        (r"<script(?![^>]*\bnonce=)", "scripts carry the page's nonce"),
        (r"(?<![-\w])hx-(?!partial|csp|request)[a-z]", "attributes are written data-hx-"),
        (r"data-hx-(on|live|vals|confirm)", "these compile strings"),
        (r"nonce:inherited", "defeats the nonce gate"),
        (r"https?://(?!www\.w3\.org)", "nothing is loaded from elsewhere"),
    ],
)
def test_templates_hold_nothing_that_the_policy_or_the_nonce_gate_forbids(
    pattern: str, why: str
) -> None:
    assert TEMPLATES
    found = {
        file.name: match.group(0)
        for file in TEMPLATES
        if (match := re.search(pattern, file.read_text()))
    }
    found = {name: text for name, text in found.items() if "hx-csp-4" not in text}
    assert not found, why


def test_every_htmx_element_carries_the_nonce() -> None:
    for file in TEMPLATES:
        for tag in re.findall(r"<(?!hx-partial)[a-z]+\s[^>]*data-hx-[^>]*>", file.read_text()):
            assert 'data-hx-nonce="{{ nonce }}"' in tag, (file.name, tag)


def test_the_weight_of_a_first_visit_stays_small() -> None:
    sizes = {
        file.name: len(gzip.compress(file.read_bytes()))
        for file in assets("static").iterdir()
        if file.suffix in (".css", ".js")
    }
    assert sum(size for name, size in sizes.items() if name.endswith(".css")) <= 8 * 1024
    assert sum(size for name, size in sizes.items() if name.endswith(".js")) <= 24 * 1024


def test_addresses_of_static_files_change_with_their_content(tmp_path: Path) -> None:
    (tmp_path / "a.css").write_text("one")
    before = fingerprints(tmp_path)
    (tmp_path / "a.css").write_text("two")
    assert fingerprints(tmp_path) != before
