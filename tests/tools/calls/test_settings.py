"""Settings of the tools: a file that is read whole, or refused with the key named."""

from pathlib import Path

import pytest

from loom_audit.config import read_settings, read_tool_settings
from loom_audit.errors import InvalidArguments
from loom_audit.ports import Limits
from loom_audit.tools.calls.settings import ToolSettings


def settings_of(folder: Path, text: str | None) -> ToolSettings:
    settings = read_settings(environment={"LOOM_AUDIT_HOME": str(folder)})
    if text is not None:
        settings.configuration.mkdir(parents=True)
        (settings.configuration / "tools.toml").write_text(text)
    return read_tool_settings(settings)


def test_without_a_file_nothing_is_allowed(tmp_path: Path) -> None:
    assert settings_of(tmp_path, None) == ToolSettings()


def test_what_the_file_says_is_taken(tmp_path: Path) -> None:
    found = settings_of(
        tmp_path,
        'confinement = "required"\nnetwork = true\nallowed_hosts = ["*.example.org"]\n'
        'git_identity = "none"\n',
    )
    assert found == ToolSettings(
        "required", True, allowed_hosts=("*.example.org",), git_identity="none"
    )


def test_limits_are_given_in_bytes_and_seconds_and_zero_is_none(tmp_path: Path) -> None:
    keys = ("cpu_seconds", "memory_mib", "processes", "file_mib")
    some = settings_of(tmp_path / "a", "".join(f"{key} = 3\n" for key in keys))
    assert some.limits == Limits(cpu=3, memory=3 << 20, processes=3, file=3 << 20)
    none = settings_of(tmp_path / "b", "".join(f"{key} = 0\n" for key in keys))
    assert none.limits == Limits(cpu=None, memory=None, processes=None, file=None)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('confinement = "none"', "confinement"),
        ("network = 1", "network"),
        ('readable = "/opt"', "readable"),
        ("allowed_hosts = [1]", "allowed_hosts"),
        ("proxy_url = []", "proxy_url"),
        ('proxy_url = "foo"', "proxy_url must be an address that begins with http:// or https://"),
        ('proxy_url = "127.0.0.1:8765"', "proxy_url"),
        ('proxy_url = "https://"', "proxy_url"),
        ("memory_mib = -1", "memory_mib must be a whole number from 0"),
        ("cpu_seconds = 1.5", "cpu_seconds must be a whole number from 0"),
        ('git_identity = "agent"', "git_identity must be one of person, none"),
        ("git_identity = [1]", "git_identity"),
        ('build_packages = "numpy"', "build_packages"),
        ("allow = []", "allow"),
        ("network = ", "tools.toml"),
        ("\xff", "tools.toml"),
    ],
)
def test_a_bad_file_is_refused_by_name(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        settings_of(tmp_path, text)
    assert named in caught.value.message
    assert caught.value.hint
