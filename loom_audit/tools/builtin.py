"""The tools that come with the package, and a registry that holds them."""

import logging

from loom_audit.errors import AuditError
from loom_audit.ports import Runner
from loom_audit.tools.approval import ApprovalGate
from loom_audit.tools.code import RunCode
from loom_audit.tools.code_search import SearchCode
from loom_audit.tools.files import (
    DeleteFile,
    EditFile,
    MoveFile,
    ReadFile,
    WriteFile,
)
from loom_audit.tools.formatting import FormatCode
from loom_audit.tools.git import GitDiff, GitLog, GitStatus
from loom_audit.tools.git_changes import GitCommit
from loom_audit.tools.git_push import GitPush
from loom_audit.tools.listing import ListDirectory, ListFiles
from loom_audit.tools.packages import InstallPackage
from loom_audit.tools.project_tests import RunTests
from loom_audit.tools.registry import Connect, ToolRegistry, installed_tools
from loom_audit.tools.search import SearchFiles
from loom_audit.tools.shell import Bash, ShellExecute
from loom_audit.tools.tool import Tool
from loom_audit.tools.web import WebFetch
from loom_audit.tools.web_search import (
    Oracle,
    WebSearch,
    WebSearchToolGoogle,
    WebSearchToolSerper,
)

_log = logging.getLogger(__name__)


def builtin_tools() -> list[Tool]:
    """A new instance of every bundled tool."""
    return [
        ReadFile(),
        WriteFile(),
        EditFile(),
        DeleteFile(),
        MoveFile(),
        ListDirectory(),
        ListFiles(),
        SearchFiles(),
        ShellExecute(),
        Bash(),
        RunCode(),
        SearchCode(),
        GitStatus(),
        GitDiff(),
        GitLog(),
        GitCommit(),
        GitPush(),
        RunTests(),
        FormatCode(),
        InstallPackage(),
        WebFetch(),
        WebSearch(),
        WebSearchToolGoogle(),
        WebSearchToolSerper(),
        Oracle(),
    ]


def builtin_registry(
    connect: Connect | None = None,
    *,
    gate: ApprovalGate | None = None,
    runner: Runner | None = None,
) -> ToolRegistry:
    """A registry of every bundled tool, and of those other installed packages offer.

    A package's tool that has a taken name or is none is logged and left out.
    """
    registry = ToolRegistry(connect, gate=gate, runner=runner)
    for tool in builtin_tools():
        registry.register(tool)
    for tool in installed_tools():
        try:
            registry.register(tool)
        except AuditError as error:
            _log.warning("a tool is left out: %s", error)
    return registry
