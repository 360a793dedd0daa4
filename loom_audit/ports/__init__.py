"""The ports: what storage, disk and processes must offer, one protocol each.

The docstrings are the contract. All ports are synchronous and raise the errors of
`loom_audit.errors`. "Durable" means that it survives `kill -9` and power loss. The doubles of
the tests pass the same contract tests.
"""

from loom_audit.ports.code import CodeIndex, FoundCode, ReadCode
from loom_audit.ports.content import BlobStore
from loom_audit.ports.evidence import EventRow, Evidence, PayloadRow, ReferencedBlob
from loom_audit.ports.git import (
    NO_HOOKS,
    ON_HOSTILE_GROUND,
    RUNS_NOTHING,
    SETTLED,
    Git,
    GitFile,
    GitSeen,
    GitStamps,
    Moved,
    setting_variables,
)
from loom_audit.ports.git_builder import GitBuilder, GitBuilding, GitWhole
from loom_audit.ports.git_objects import (
    GitAnswer,
    GitPoint,
    MirroredGit,
    MissingObjects,
    ObjectMirror,
)
from loom_audit.ports.git_restorer import BranchUse, GitRestore, GitRestorer, GitSteps, IndexBytes
from loom_audit.ports.held import HeldSessions
from loom_audit.ports.lines import LineMaps
from loom_audit.ports.log import (
    BLOCK,
    CallFilter,
    Clock,
    EventFilter,
    EventLog,
    Heads,
    Projections,
    Reading,
    Wanted,
    WordsFilter,
)
from loom_audit.ports.marks import Marks, UnreadSession
from loom_audit.ports.processes import (
    Background,
    BackgroundRunner,
    Command,
    CommandResult,
    Confinement,
    Limits,
    Lock,
    Moments,
    OnProgress,
    Processes,
    Progress,
    Runner,
    take_no_notice,
)
from loom_audit.ports.replacing import Displaced, Replacement, Reservation
from loom_audit.ports.signing import HeadsFolder, SignedHeads, SigningKeys
from loom_audit.ports.transcripts import TranscriptFile
from loom_audit.ports.watch import Noticed, Observer, Watch
from loom_audit.ports.workspace import (
    OPAQUE,
    Attributes,
    ChangeIndex,
    IndexEntry,
    LeftOutFiles,
    Looks,
    Stamp,
    StampedPaths,
    Stamps,
    Workspace,
    opaque_stamp,
)

__all__ = [
    "BLOCK",
    "NO_HOOKS",
    "ON_HOSTILE_GROUND",
    "OPAQUE",
    "RUNS_NOTHING",
    "SETTLED",
    "Attributes",
    "Background",
    "BackgroundRunner",
    "BlobStore",
    "BranchUse",
    "CallFilter",
    "ChangeIndex",
    "Clock",
    "CodeIndex",
    "Command",
    "CommandResult",
    "Confinement",
    "Displaced",
    "EventFilter",
    "EventLog",
    "EventRow",
    "Evidence",
    "FoundCode",
    "Git",
    "GitAnswer",
    "GitBuilder",
    "GitBuilding",
    "GitFile",
    "GitPoint",
    "GitRestore",
    "GitRestorer",
    "GitSeen",
    "GitStamps",
    "GitSteps",
    "GitWhole",
    "Heads",
    "HeadsFolder",
    "HeldSessions",
    "IndexBytes",
    "IndexEntry",
    "LeftOutFiles",
    "Limits",
    "LineMaps",
    "Lock",
    "Looks",
    "Marks",
    "MirroredGit",
    "MissingObjects",
    "Moments",
    "Moved",
    "Noticed",
    "ObjectMirror",
    "Observer",
    "OnProgress",
    "PayloadRow",
    "Processes",
    "Progress",
    "Projections",
    "ReadCode",
    "Reading",
    "ReferencedBlob",
    "Replacement",
    "Reservation",
    "Runner",
    "SignedHeads",
    "SigningKeys",
    "Stamp",
    "StampedPaths",
    "Stamps",
    "TranscriptFile",
    "UnreadSession",
    "Wanted",
    "Watch",
    "WordsFilter",
    "Workspace",
    "opaque_stamp",
    "setting_variables",
    "take_no_notice",
]
