"""The tools that come with the package."""

from loom_audit.tools.bundled.code.run_code import RunCode
from loom_audit.tools.bundled.files.files import (
    DeleteFile,
    EditFile,
    MoveFile,
    ReadFile,
    WriteFile,
)
from loom_audit.tools.bundled.files.listing import ListDirectory, ListFiles
from loom_audit.tools.bundled.git.commit import GitCommit
from loom_audit.tools.bundled.git.push import GitPush
from loom_audit.tools.bundled.git.queries import GitDiff, GitLog, GitStatus
from loom_audit.tools.bundled.project.format_code import FormatCode
from loom_audit.tools.bundled.project.install_package import InstallPackage
from loom_audit.tools.bundled.project.run_tests import RunTests
from loom_audit.tools.bundled.search.search_code import SearchCode
from loom_audit.tools.bundled.search.search_files import SearchFiles
from loom_audit.tools.bundled.shell.shell_execute import Bash, ShellExecute
from loom_audit.tools.bundled.web.web_fetch import WebFetch
from loom_audit.tools.bundled.web.web_search import (
    Oracle,
    WebSearch,
    WebSearchToolGoogle,
    WebSearchToolSerper,
)
from loom_audit.tools.calls.tool import Tool


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
