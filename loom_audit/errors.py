"""What can go wrong, one class per code; every way in translates the code once.

AuditError
├── InvalidPath        INVALID_PATH        the path leaves the workspace or is malformed
│   ├── IsADirectory   IS_A_DIRECTORY      a directory where a file is wanted
│   ├── NotADirectory  NOT_A_DIRECTORY     something else where a directory is wanted
│   └── NotEmpty       NOT_EMPTY           a directory that holds something
├── FileNotFound       FILE_NOT_FOUND      no such file
├── PermissionDenied   PERMISSION_DENIED   the system refused
├── ToolTimeout        TIMEOUT             the time limit was reached
├── ExecutionFailed    EXECUTION_ERROR     a tool or command failed
├── InvalidArguments   INVALID_ARGUMENTS   the arguments do not fit the schema
├── NotFound           NOT_FOUND           no such event, call, checkpoint, workspace, blob
├── StorageFailed      IO                  reading or writing failed
├── NotSerializable    SERIALIZATION       a value cannot be put on record
├── UnknownTool        UNKNOWN_TOOL        no tool of that name
├── ApprovalDenied     APPROVAL_DENIED     the gate said no, or nobody could be asked
├── BlockedCommand     BLOCKED_COMMAND     the command guard said no
├── Conflict           CONFLICT            somebody else changed it first
├── NoWorkspace        NO_WORKSPACE        the call names no workspace
├── TooLarge           TOO_LARGE           over a limit
├── Corrupt            CORRUPT             stored bytes do not match their hash
└── AuditUnavailable   AUDIT_UNAVAILABLE   the log cannot be written, so nothing ran
"""

from collections.abc import Mapping
from typing import Any, ClassVar


class AuditError(Exception):
    """An error with a code for programs, a message for people and a hint of what to do.

    `details` holds JSON values only; `str(error)` is the message alone. `usual_hint` is the
    hint where none is given.
    """

    code: ClassVar[str] = "INTERNAL"
    usual_hint: ClassVar[str] = ""

    def __init__(
        self, message: str, *, hint: str = "", details: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint or self.usual_hint
        self.details: dict[str, Any] = dict(details or {})

    def to_dict(self) -> dict[str, Any]:
        """The error as JSON values: code, message, and hint and details where present."""
        body: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.hint:
            body["hint"] = self.hint
        if self.details:
            body["details"] = self.details
        return body


class InvalidPath(AuditError):
    """A path leaves the workspace, is malformed, or is of a kind that is not recorded."""

    code = "INVALID_PATH"


class IsADirectory(InvalidPath):
    """A directory is at a path where a file is wanted."""

    code = "IS_A_DIRECTORY"


class NotADirectory(InvalidPath):
    """Something other than a directory is at a path where a directory is wanted."""

    code = "NOT_A_DIRECTORY"


class NotEmpty(InvalidPath):
    """A directory that is to be removed holds something."""

    code = "NOT_EMPTY"


class FileNotFound(AuditError):
    """Nothing is at a path where a file is wanted."""

    code = "FILE_NOT_FOUND"
    usual_hint = "List the folder to see what is there."


class PermissionDenied(AuditError):
    """The operating system refused access to a file."""

    code = "PERMISSION_DENIED"


class ToolTimeout(AuditError):
    """A tool or a command reached its time limit and was ended."""

    code = "TIMEOUT"
    usual_hint = "Ask for less at once, or for more time where the tool takes a timeout."


class ExecutionFailed(AuditError):
    """A tool or a command could not be run, or failed."""

    code = "EXECUTION_ERROR"


class InvalidArguments(AuditError):
    """Arguments, settings or flags do not fit what they are for."""

    code = "INVALID_ARGUMENTS"


class NotFound(AuditError):
    """No event, call, checkpoint, workspace or blob has this name."""

    code = "NOT_FOUND"


class StorageFailed(AuditError):
    """Reading or writing a file of the system or of the store failed."""

    code = "IO"


class NotSerializable(AuditError):
    """A value has no form in JSON, so it cannot be put on record."""

    code = "SERIALIZATION"
    usual_hint = "Pass null, booleans, numbers, texts, lists and objects with text keys only."


class UnknownTool(AuditError):
    """No tool of this name is registered."""

    code = "UNKNOWN_TOOL"


class ApprovalDenied(AuditError):
    """The gate denied a call, or nobody could be asked whether it may run."""

    code = "APPROVAL_DENIED"
    usual_hint = "Nothing was done. Go on without it, or ask the person before trying again."


class BlockedCommand(AuditError):
    """The command guard refused a shell command."""

    code = "BLOCKED_COMMAND"


class Conflict(AuditError):
    """Somebody else changed what a change was made for, so it was not carried out."""

    code = "CONFLICT"


class NoWorkspace(AuditError):
    """A call names no workspace under audit, or one whose directory is gone."""

    code = "NO_WORKSPACE"


class TooLarge(AuditError):
    """A content or a message is over its limit."""

    code = "TOO_LARGE"


class Corrupt(AuditError):
    """Stored bytes do not match their hash, or recorded events do not fit together."""

    code = "CORRUPT"
    usual_hint = "Run `loom-audit verify`; `loom-audit salvage --to DIR` saves what is readable."


class AuditUnavailable(AuditError):
    """The log cannot be written, so nothing was run or changed."""

    code = "AUDIT_UNAVAILABLE"
