"""Who wrote each line of a workspace's files, as commands, pages and Python code ask for it."""

from typing import TYPE_CHECKING

from loom_audit.history.read.lines.contents import Contents
from loom_audit.history.read.lines.followed import FileVersions, FollowedFile
from loom_audit.history.read.lines.lines import Lines
from loom_audit.model.authorship.blame import Blame, BlameRun, joined
from loom_audit.model.authorship.call_set import CallSet, Turn, everyone
from loom_audit.model.authorship.net import NetFile, NetHunk, NetLine, NetRun
from loom_audit.model.authorship.net_change import NetChange, NetFolder
from loom_audit.model.authorship.versions import Writer

if TYPE_CHECKING:
    from loom_audit.api.workspace import AuditedWorkspace

__all__ = [
    "Blame",
    "BlameRun",
    "CallSet",
    "FileVersions",
    "FollowedFile",
    "Lines",
    "NetChange",
    "NetFile",
    "NetFolder",
    "NetHunk",
    "NetLine",
    "NetRun",
    "Turn",
    "Writer",
    "everyone",
    "joined",
    "lines_of",
]


def lines_of(workspace: "AuditedWorkspace") -> Lines:
    """Who wrote the lines of the files of a workspace."""
    key = workspace.adapters.marks(workspace.id).key()
    maps = workspace.adapters.line_maps(workspace.id)
    return Lines(workspace.timeline, Contents(workspace.blobs), key=key, maps=maps)
