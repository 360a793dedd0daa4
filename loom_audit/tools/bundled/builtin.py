"""The tools that come with the package, each loaded when it is named."""

from collections.abc import Mapping
from importlib import import_module

from loom_audit.tools.calls.tool import Tool

BUNDLED: Mapping[str, str] = {
    "read_file": "files.reading.ReadFile",
    "write_file": "files.files.WriteFile",
    "edit_file": "files.files.EditFile",
    "delete_file": "files.files.DeleteFile",
    "move_file": "files.files.MoveFile",
    "list_directory": "files.listing.ListDirectory",
    "list_files": "files.listing.ListFiles",
    "search_files": "search.search_files.SearchFiles",
    "shell_execute": "shell.shell_execute.ShellExecute",
    "bash": "shell.shell_execute.Bash",
    "bash_output": "shell.background.BashOutput",
    "bash_stop": "shell.background.BashStop",
    "run_code": "code.run_code.RunCode",
    "search_code": "search.search_code.SearchCode",
    "git_status": "git.queries.GitStatus",
    "git_diff": "git.queries.GitDiff",
    "git_log": "git.queries.GitLog",
    "git_commit": "git.commit.GitCommit",
    "git_push": "git.push.GitPush",
    "undo": "record.undo.Undo",
    "history": "record.history.History",
    "run_tests": "project.run_tests.RunTests",
    "format_code": "project.format_code.FormatCode",
    "install_package": "project.install_package.InstallPackage",
    "web_fetch": "web.web_fetch.WebFetch",
    "web_search": "web.web_search.WebSearch",
    "web_search_google": "web.web_search.WebSearchToolGoogle",
    "web_search_serper": "web.web_search.WebSearchToolSerper",
    "oracle": "web.web_search.Oracle",
}
"""Every bundled tool's name, in the order they are listed, and where its class is below here."""


def bundled_tool(name: str) -> Tool:
    """Return a new instance of a bundled tool. KeyError for a name that is not one of `BUNDLED`."""
    module, _, of_class = BUNDLED[name].rpartition(".")
    made: Tool = getattr(import_module(f"{__package__}.{module}"), of_class)()
    return made


def builtin_tools() -> list[Tool]:
    """Return a new instance of every bundled tool, in the order of `BUNDLED`."""
    return [bundled_tool(name) for name in BUNDLED]
