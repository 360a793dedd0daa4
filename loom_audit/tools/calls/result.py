"""What a call gives back."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

from loom_audit.errors import AuditError, ExecutionFailed
from loom_audit.model.results import MAX_KEPT, result_record
from loom_audit.model.text.cutting import cut
from loom_audit.model.values import as_json, nearest_json
from loom_audit.tools.calls.bounded import bounded

MAX_OUTPUT = 10 * 1024
"""Bytes of `ToolResult.output`, as UTF-8."""


@dataclass(frozen=True, slots=True)
class ToolError:
    """Why a tool did not succeed: a code of `loom_audit.errors`; `str()` gives the message."""

    code: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    hint: str = ""

    def __str__(self) -> str:
        return self.message

    @classmethod
    def of(cls, error: AuditError) -> "ToolError":
        """Make the error of a result from an exception of ours."""
        return cls(error.code, error.message, dict(error.details), error.hint)

    def to_dict(self) -> dict[str, Any]:
        """Return the error as JSON, without an empty hint and empty details."""
        body: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.hint:
            body["hint"] = self.hint
        if self.details:
            body["details"] = dict(self.details)
        return body


@dataclass(frozen=True, slots=True)
class Image:
    """A picture for a model that takes pictures: its media type and the bytes of its file."""

    media: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gives back to the model and to the log.

    `output` is text of at most 10 KB: of a longer one head and tail are kept and the cut says
    so, while `full_output` holds up to 1 MiB of it for the log. `data` holds JSON values. An
    `error` given as a text becomes EXECUTION_ERROR, and the output where there is none. An
    `image` is for the model alone: what it is stands in the output.
    """

    success: bool
    output: str = ""
    data: dict[str, Any] | None = None
    files_changed: list[str] = field(default_factory=list)
    error: ToolError | None = None
    full_output: str = field(default="", repr=False)
    image: Image | None = field(default=None, repr=False)
    message_truncated: bool = False

    def __post_init__(self) -> None:
        said = cast(object, self.error)
        if isinstance(said, str):
            object.__setattr__(self, "output", self.output or f"Error: {said}")
            object.__setattr__(self, "error", ToolError(ExecutionFailed.code, said))
        short = cut(self.output, MAX_OUTPUT)
        if not self.full_output:
            object.__setattr__(self, "full_output", cut(self.output, MAX_KEPT))
        if short != self.output:
            object.__setattr__(self, "output", short)
            object.__setattr__(self, "message_truncated", True)

    @classmethod
    def failure(
        cls, error: AuditError, *, output: str = "", data: dict[str, Any] | None = None
    ) -> "ToolResult":
        """Make a result of an error; its output is `Error: MESSAGE`, the hint, then `output`."""
        lines = [f"Error: {error.message}"]
        lines += [error.hint] if error.hint else []
        lines += [output] if output else []
        return cls(False, "\n".join(lines), data, error=ToolError.of(error))

    @classmethod
    def of(cls, value: Any, error: AuditError | None = None) -> "ToolResult":
        """Make a result of any value: a text becomes the output, a dict the data.

        Any other value becomes the data `{"result": value}`, as the JSON nearest to it.
        """
        plain = nearest_json(value)
        failed = ToolError.of(error) if error else None
        if plain is None or isinstance(plain, str):
            return cls(error is None, plain or "", error=failed)
        data = plain if isinstance(plain, dict) else {"result": plain}
        return cls(error is None, json.dumps(plain, ensure_ascii=False), data, error=failed)

    @property
    def ok(self) -> bool:
        """Whether the call succeeded, under the name of another specification."""
        return self.success

    @property
    def value(self) -> dict[str, Any] | None:
        """The data of a success, None for a failure."""
        return self.data if self.success else None

    def data_within(self, most: int) -> dict[str, Any] | None:
        """Return the data in about `most` bytes of JSON, marked `truncated` where it is cut.

        Of a list the first items are kept, so that it still fits the schema of the tool's output.
        ValueError, TypeError for other data than JSON.
        """
        shown: dict[str, Any] | None = bounded(self.data, most)
        return shown if shown is None or shown is self.data else {**shown, "truncated": True}

    def to_dict(self) -> dict[str, Any]:
        """Return the result as JSON, with the output that is cut to 10 KB."""
        error = self.error.to_dict() if self.error else None
        return result_record(self.success, self.output, self.data, self.files_changed, error)

    def to_json(self) -> str:
        """Return what a model may be given, as one line of ASCII JSON.

        `output` is the message. Of `data`, of `files_changed` and of the error there are at most 10
        KB each: what is longer is cut, the data is then marked `truncated`, and
        `files_left_out` counts the paths. `message_truncated` is that of the message. ValueError,
        TypeError for other data than JSON.
        """
        body = self.to_dict()
        files = bounded(self.files_changed, MAX_OUTPUT)
        body |= {
            "data": self.data_within(MAX_OUTPUT - 100),
            "files_changed": files,
            "error": bounded(body["error"], MAX_OUTPUT),
        }
        if left_out := len(self.files_changed) - len(files):
            body["files_left_out"] = left_out
        return json.dumps({**body, "message_truncated": self.message_truncated}, allow_nan=False)

    def to_record(self) -> dict[str, Any]:
        """Return the result as the log keeps it, with the full output.

        NotSerializable for other data than JSON.
        """
        body: dict[str, Any] = as_json({**self.to_dict(), "output": self.full_output}, "result")
        return body
