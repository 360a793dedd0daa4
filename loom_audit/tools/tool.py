"""What a tool is and what it gives back."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from jsonschema import Draft202012Validator
from jsonschema.exceptions import SchemaError
from pydantic import BaseModel, ConfigDict, WithJsonSchema
from pydantic import ValidationError as ModelError

from loom_audit.errors import AuditError, ExecutionFailed, InvalidArguments
from loom_audit.model.events import Effect
from loom_audit.model.files import FileState
from loom_audit.ports import Confinement
from loom_audit.tools.flaws import model_flaws, no_object, schema_flaws, signature
from loom_audit.tools.values import as_json

if TYPE_CHECKING:
    from loom_audit.tools.context import ToolContext

MAX_OUTPUT = 10 * 1024
"""Bytes of `ToolResult.output`, as UTF-8."""

MAX_KEPT = 1024 * 1024
"""Bytes of `ToolResult.full_output`, which goes into the log."""

Dialect = Literal["openai", "openai-flat", "anthropic", "mcp"]


@dataclass(frozen=True, slots=True)
class ToolError:
    """Why a tool did not succeed: a code of `loom_audit.errors`; `str()` is the message."""

    code: str
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)
    hint: str = ""

    def __str__(self) -> str:
        return self.message

    @classmethod
    def of(cls, error: AuditError) -> "ToolError":
        return cls(error.code, error.message, dict(error.details), error.hint)

    def to_dict(self) -> dict[str, Any]:
        body: dict[str, Any] = {"code": self.code, "message": self.message}
        if self.hint:
            body["hint"] = self.hint
        if self.details:
            body["details"] = dict(self.details)
        return body


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What a call gives back to the model and to the log.

    `output` is text of at most 10 KB: of a longer one head and tail are kept and the cut says
    so, while `full_output` holds up to 1 MiB of it for the log. `data` holds JSON values.
    """

    success: bool
    output: str = ""
    data: dict[str, Any] | None = None
    files_changed: list[str] = field(default_factory=list)
    error: ToolError | None = None
    full_output: str = field(default="", repr=False)

    def __post_init__(self) -> None:
        short = cut(self.output, MAX_OUTPUT)
        if not self.full_output:
            object.__setattr__(self, "full_output", cut(self.output, MAX_KEPT))
        object.__setattr__(self, "output", short)

    @classmethod
    def failure(
        cls, error: AuditError, *, output: str = "", data: dict[str, Any] | None = None
    ) -> "ToolResult":
        """The error as a result; its output is `Error: MESSAGE`, the hint, then `output`."""
        lines = [f"Error: {error.message}"]
        lines += [error.hint] if error.hint else []
        lines += [output] if output else []
        return cls(False, "\n".join(lines), data, error=ToolError.of(error))

    @property
    def ok(self) -> bool:
        return self.success

    @property
    def value(self) -> dict[str, Any] | None:
        """The data of a success, None for a failure."""
        return self.data if self.success else None

    def to_dict(self) -> dict[str, Any]:
        return {
            "success": self.success,
            "output": self.output,
            "data": self.data,
            "files_changed": list(self.files_changed),
            "error": self.error.to_dict() if self.error else None,
        }

    def to_json(self) -> str:
        """The result as one line of ASCII JSON for a model."""
        return json.dumps(self.to_dict(), allow_nan=False)

    def to_record(self) -> dict[str, Any]:
        """The result as the log keeps it, with the full output. NotSerializable."""
        body: dict[str, Any] = as_json({**self.to_dict(), "output": self.full_output}, "result")
        return body


def cut(text: str, limit: int) -> str:
    """At most `limit` bytes of UTF-8: the whole, or head and tail with the cut named."""
    if len(text) * 4 <= limit:
        return text
    raw = text.encode("utf-8", "surrogatepass")
    if len(raw) <= limit:
        return text
    room = limit - 80
    head, tail = raw[: room // 2], raw[len(raw) - room // 2 :]
    while tail and tail[0] & 0xC0 == 0x80:
        tail = tail[1:]
    lead = len(head)
    while lead and head[lead - 1] & 0xC0 == 0x80:
        lead -= 1
    if lead and head[lead - 1] >= 0xC0:
        head = head[: lead - 1]
    left_out = len(raw) - len(head) - len(tail)
    return (
        head.decode("utf-8", "surrogatepass")
        + f"\n[… {left_out} of {len(raw)} bytes left out …]\n"
        + tail.decode("utf-8", "surrogatepass")
    )


@dataclass(frozen=True, slots=True)
class Preview:
    """What a call would change: a text for people, and what stood at each path it is about.

    An approval is bound to the states (None: absent); nothing else may be changed by the
    approved call.
    """

    text: str = ""
    states: Mapping[str, FileState | None] | None = None


_NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}


NonEmpty = Annotated[str, WithJsonSchema({"type": "string", "minLength": 1})]
"""A text that is not empty; pydantic's own check would refuse paths that are not UTF-8."""


class Arguments(BaseModel):
    """A tool's input: named fields, nothing else allowed."""

    model_config = ConfigDict(extra="forbid", validate_by_name=True, validate_by_alias=True)


class Tool(ABC):
    """Something an agent can call. Subclasses set the class attributes and write `execute`.

    The input is a pydantic model in `input`, or a JSON Schema in `parameters`; `execute` gets
    an instance of the model, or the plain dict. The `data` of a success must fit the model in
    `output`, or the JSON Schema in `output_schema`. `effect` bounds what the context allows:
    `read` refuses writes, and commands need `execute`. `announced` puts the request on record
    before `execute` starts, for effects that do not go through the context; a tool of effect
    `network` is always announced. `confinement` says whether the commands it runs are confined,
    unless the person's settings say otherwise.
    """

    name: str
    description: str
    input: type[BaseModel] | None = None
    parameters: Mapping[str, Any] = _NOTHING
    output: type[BaseModel] | None = None
    output_schema: Mapping[str, Any] | None = None
    effect: Effect = "read"
    timeout_seconds: float = 30
    needs_workspace: bool = True
    announced: bool = False
    confinement: Confinement = "off"
    requires_approval: "bool | Callable[[Any, ToolContext], bool | str]" = False
    """Whether somebody should be asked first: a bool, or a method of the arguments and the
    context that may give the reason. Sync; runs in a worker thread."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        model = cls.__dict__.get("input")
        if isinstance(model, type) and "parameters" not in cls.__dict__:
            cls.parameters = parameters_of(model)
        made = cls.__dict__.get("output")
        if isinstance(made, type) and "output_schema" not in cls.__dict__:
            cls.output_schema = parameters_of(made, mode="serialization")

    @abstractmethod
    async def execute(self, args: Any, ctx: "ToolContext") -> ToolResult:
        """Do it. An AuditError becomes an error result, any other exception EXECUTION_ERROR."""

    def preview(self, args: Any, ctx: "ToolContext") -> Preview:
        """What the call would change, for whoever is asked. Sync; runs in a worker thread.

        An error says that the call cannot work; it is then the call's result.
        """
        return Preview()

    def limit(self, args: Any) -> float:
        """Seconds this call may take; by default `timeout_seconds`."""
        return self.timeout_seconds

    @cached_property
    def _checker(self) -> Draft202012Validator:
        return Draft202012Validator(dict(self.parameters))

    def check_schemas(self) -> None:
        """InvalidArguments when one of both schemas is no JSON Schema of an object."""
        for what, schema in (("parameters", self.parameters), ("output", self.output_schema)):
            if schema is None:
                continue
            try:
                Draft202012Validator.check_schema(dict(schema))
            except SchemaError as error:
                raise InvalidArguments(
                    f"{what} of {self.name}: no JSON Schema: {error.message}"
                ) from error
            if schema.get("type") != "object":
                raise InvalidArguments(f"{what} of {self.name}: not of type object")

    def parse(self, arguments: Any) -> Any:
        """The arguments as `execute` takes them. InvalidArguments lists every flaw."""
        if not isinstance(arguments, dict):
            raise InvalidArguments(
                f"The arguments of {self.name} {no_object(arguments)}",
                hint=f"Arguments of {self.name}: {signature(self.parameters)}.",
            )
        flaws = []
        if not plainly_fits(self.parameters, arguments):
            flaws = [*schema_flaws(self._checker.iter_errors(arguments))]
        if not flaws and self.input is not None:
            try:
                return self.input.model_validate(arguments)
            except ModelError as error:
                flaws = [*model_flaws(error)]
        if flaws:
            raise InvalidArguments(
                f"Invalid arguments for {self.name}: " + "; ".join(flaws[:5]),
                hint=f"Arguments of {self.name}: {signature(self.parameters)}.",
                details={"flaws": flaws[:20]},
            )
        return arguments

    def check_output(self, data: Any) -> None:
        """ExecutionFailed when the data of a success is not what the tool says it gives."""
        flaws: list[str] = []
        if self.output is not None:
            try:
                self.output.model_validate(data)
            except ModelError as error:
                flaws = [*model_flaws(error)]
        elif self.output_schema is not None:
            checker = Draft202012Validator(dict(self.output_schema))
            flaws = [*schema_flaws(checker.iter_errors(data))]
        if flaws:
            raise ExecutionFailed(
                f"The result of {self.name} is not what it says it gives: " + "; ".join(flaws[:5]),
                hint="This is a flaw of the tool; what it did is on record.",
                details={"flaws": flaws[:20]},
            )

    def schema(self, dialect: Dialect = "openai") -> dict[str, Any]:
        """The tool as a model API wants it: OpenAI (nested or flat), Anthropic or MCP."""
        parameters = deepcopy(dict(self.parameters))
        named: dict[str, Any] = {"name": self.name, "description": self.description}
        if dialect == "openai":
            return {"type": "function", "function": {**named, "parameters": parameters}}
        if dialect == "openai-flat":
            return {"type": "function", **named, "parameters": parameters, "strict": False}
        if dialect == "anthropic":
            return {**named, "input_schema": parameters}
        if dialect != "mcp":
            raise InvalidArguments(f"no dialect {dialect!r}")
        body: dict[str, Any] = {**named, "inputSchema": parameters}
        if self.output_schema is not None:
            body["outputSchema"] = deepcopy(dict(self.output_schema))
        body["annotations"] = {
            "readOnlyHint": self.effect == "read",
            "destructiveHint": self.effect in ("write", "execute"),
            "openWorldHint": self.effect in ("network", "execute"),
        }
        return body


Execute = TypeVar("Execute", bound=Callable[..., Any])


def at_once(execute: Execute) -> Execute:
    """Marks an `execute` that awaits nothing but steps of its context.

    Such a call runs in one worker thread from its first step to its finish on record.
    """
    execute.at_once = True  # type: ignore[attr-defined]
    return execute


def is_at_once(tool: Tool) -> bool:
    return getattr(tool.execute, "at_once", False)


def parameters_of(
    model: type[BaseModel], mode: Literal["validation", "serialization"] = "validation"
) -> dict[str, Any]:
    """The model's JSON Schema without titles; extra fields are refused unless it allows them."""
    schema: dict[str, Any] = model.model_json_schema(by_alias=True, mode=mode)
    _drop_titles(schema)
    schema.pop("description", None)
    if mode == "validation":
        schema.setdefault("additionalProperties", False)
    return schema


def _drop_titles(schema: Any) -> None:
    """Remove the titles pydantic makes up; a property that is named `title` stays."""
    if isinstance(schema, list):
        for item in schema:
            _drop_titles(item)
    elif isinstance(schema, dict):
        if isinstance(schema.get("title"), str):
            del schema["title"]
        for key, item in schema.items():
            if key in ("properties", "$defs"):
                for inner in item.values():
                    _drop_titles(inner)
            elif key not in ("default", "const", "enum", "examples"):
                _drop_titles(item)


_PLAIN_TYPES = {"string": str, "integer": int, "boolean": bool}
_PLAIN_WORDS = frozenset({"type", "description", "default", "minLength", "enum"})
_OBJECT_WORDS = frozenset({"type", "properties", "required", "additionalProperties"})


def plainly_fits(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> bool:
    """Whether arguments certainly are as a simple schema says: spares most calls the long check.

    False says nothing.
    """
    if schema.keys() - _OBJECT_WORDS or schema.get("additionalProperties") is not False:
        return False
    properties = schema.get("properties", {})
    for name, value in arguments.items():
        said, kind = properties.get(name), type(value)
        if not isinstance(said, dict) or said.keys() - _PLAIN_WORDS:
            return False
        if kind is not _PLAIN_TYPES.get(str(said.get("type"))):
            return False
        if kind is str and len(value) < said.get("minLength", 0):
            return False
        if "enum" in said and (kind is not str or value not in said["enum"]):
            return False
    return all(name in arguments for name in schema.get("required", ()))
