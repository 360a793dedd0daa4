"""Where packages come from: what pip and npm are told of a person's own configuration."""

import configparser
import os
from collections.abc import Mapping
from pathlib import Path

from loom_audit.errors import ExecutionFailed
from loom_audit.tools.bundled.environment import system_program

PIP_SETTINGS = (
    "index-url",
    "extra-index-url",
    "trusted-host",
    "no-index",
    "find-links",
    "proxy",
    "cert",
)
"""Where packages come from: what is taken of the person's own configuration of pip."""

NPM_SETTINGS = ("registry", "proxy", "https_proxy", "noproxy", "strict_ssl", "cafile")
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "ALL_PROXY")
CERTIFICATES = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
)
"""Who is trusted, where a company's proxy signs what it passes on: files or folders."""


def env_without(*prefixes: str) -> list[str]:
    """Return `env` that takes away our variables of these kinds: one could redirect an install."""
    names = sorted(n for n in os.environ if n.startswith(prefixes))
    return [system_program("env"), *(word for name in names for word in ("-u", name))]


def person_route() -> dict[str, str]:
    """Return the person's proxies, and the certificates that their connections are checked by."""
    names = [*CERTIFICATES, *(name for upper in PROXIES for name in (upper, upper.lower()))]
    return {name: os.environ[name] for name in names if os.environ.get(name)}


def certificates(variables: Mapping[str, str], own: str) -> tuple[str, ...]:
    """Return what the variables name that a confined command must be able to read."""
    named = [variables[name] for name in (*CERTIFICATES, own) if name in variables]
    return tuple(path for path in named if os.path.isabs(path))


def pip_settings() -> dict[str, str]:
    """Return the person's own: their files, then PIP_* of ours (pip's manual, Configuration).

    ExecutionFailed when a file cannot be read.
    """
    home = Path.home()
    configured = os.environ.get("XDG_CONFIG_HOME") or home / ".config"
    files = [Path("/etc/pip.conf"), home / ".pip/pip.conf", Path(configured) / "pip/pip.conf"]
    named = os.environ.get("PIP_CONFIG_FILE")
    files = [] if named == os.devnull else [*files, *([Path(named)] if named else [])]
    parser = configparser.RawConfigParser()
    try:
        parser.read(files, "utf-8")
    except (configparser.Error, UnicodeDecodeError) as error:
        raise ExecutionFailed(
            f"pip's configuration cannot be read: {error}"[:500],
            hint="Correct it: `pip config debug`.",
        ) from error
    found: dict[str, str] = {}
    for section in ("global", "install"):
        if parser.has_section(section):
            found |= {k: v for k, v in parser.items(section) if k in PIP_SETTINGS}
    for name in PIP_SETTINGS:
        given = os.environ.get(f"PIP_{name.upper().replace('-', '_')}")
        found |= {name: given} if given else {}
    return {name: " ".join(value.split()) for name, value in found.items()}


def npm_settings() -> dict[str, str]:
    """Return where the person's npm gets packages; no tokens: what packages run could read them."""
    found: dict[str, str] = {}
    try:
        lines = (Path.home() / ".npmrc").read_text("utf-8", "replace").splitlines()
    except OSError:
        lines = []  # most people have none
    for line in lines:
        name, equals, value = line.partition("=")
        name = name.strip().replace("-", "_")
        if equals and name in NPM_SETTINGS:
            found[name] = value.strip().strip('"')
    for name, value in os.environ.items():
        if name.lower().startswith("npm_config_") and name.lower()[11:] in NPM_SETTINGS:
            found[name.lower()[11:]] = value
    return found
