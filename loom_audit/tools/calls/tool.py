"""What a tool is."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from copy import deepcopy
from functools import cached_property, wraps
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, TypeVar, get_args

from msgspec import Struct

from loom_audit.errors import ExecutionFailed, InvalidArguments
from loom_audit.model.coverage import Effect
from loom_audit.model.files import FileState
from loom_audit.ports import Confinement
from loom_audit.tools.calls.fields import Fields, fit_struct, struct_schema
from loom_audit.tools.calls.result import ToolResult
from loom_audit.tools.calls.schemas import (
    lone_surrogate,
    readable_arguments,
    schema_flaws,
    signature,
    surely_fits,
    why_not_object,
)

if TYPE_CHECKING:
    from jsonschema import Draft202012Validator
    from pydantic import BaseModel

    from loom_audit.tools.calls.context import ToolContext
    from loom_audit.tools.calls.settings import ToolSettings

Model: TypeAlias = "type[BaseModel] | type[Struct]"
"""What a tool takes or gives; pydantic is loaded where one is its."""

Asked: TypeAlias = "bool | str | Awaitable[bool | str]"
Approval: TypeAlias = "bool | Callable[[Any, ToolContext], Asked] | Callable[[Any], Asked]"

Dialect = Literal["openai", "openai-flat", "anthropic", "mcp"]


class Preview(Struct, frozen=True):
    """What a call would change: a text for people, and the state of each path it is about.

    An approval is bound to the states (None: absent); nothing else may be changed by the approved
    call.
    """

    text: str = ""
    states: Mapping[str, FileState | None] | None = None


LIMIT_NAMES = MappingProxyType(dict.fromkeys(("max_results", "max_count", "head_limit"), "limit"))
"""What models call a limit of an answer, too: `other_names` of a tool with `limit`."""
_NO_PARAMETERS = {"type": "object", "properties": {}, "additionalProperties": False}


class _Schema:
    """The JSON Schema of a tool's model, made when it is first asked for."""

    def __init__(
        self, model: "Model", mode: Literal["validation", "serialization"] = "validation"
    ) -> None:
        self._model = model
        self._mode: Literal["validation", "serialization"] = mode
        self._made: dict[str, Any] | None = None

    def __get__(self, tool: object, owner: type) -> Mapping[str, Any]:
        if self._made is None:
            self._made = self._schema()
        return self._made

    def _schema(self) -> dict[str, Any]:
        if issubclass(self._model, Struct):
            return struct_schema(self._model)
        from loom_audit.tools.calls.models import parameters_of

        return parameters_of(self._model, self._mode)


class Tool(ABC):
    """Something an agent can call. Subclasses set the class attributes and write `execute`.

    The input is a pydantic model in `input`, or a JSON Schema in `parameters`; `execute` gets
    an instance of the model, or the plain dict, and gives a ToolResult or the dict that is its
    data. Called with a plain dict where it has a model, it validates that first. The `data` of a
    success must fit the model in `output`, or the JSON Schema in `output_schema`. `effect` bounds
    what the context allows:
    `read` refuses writes, and commands need `execute`. `announced` puts the request on record
    before `execute` starts, for effects that do not go through the context; a tool of effect
    `network` is always announced. `confinement` says whether the commands it runs are confined,
    unless the person's settings say otherwise.
    """

    name: str
    description: str
    input: "Model | None" = None
    parameters: Mapping[str, Any] = _NO_PARAMETERS
    output: "Model | None" = None
    output_schema: Mapping[str, Any] | None = None
    effect: Effect = "read"
    timeout_seconds: float = 30
    needs_workspace: bool = True
    announced: bool = False
    confinement: Confinement = "off"
    other_names: Mapping[str, str] = MappingProxyType({})
    """What models call an argument, too; the schema has one name for each."""
    requires_approval: "Approval" = False
    """Whether somebody should be asked first: a bool, or a method of the arguments, or of these
    and the context, that may give the reason. Runs in a worker thread; a coroutine is awaited."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        model = cls.__dict__.get("input")
        if isinstance(model, type) and "parameters" not in cls.__dict__:
            cls.parameters = _Schema(model)  # type: ignore[assignment]
        made = cls.__dict__.get("output")
        if isinstance(made, type) and "output_schema" not in cls.__dict__:
            cls.output_schema = _Schema(made, "serialization")  # type: ignore[assignment]
        if (execute := cls.__dict__.get("execute")) is not None:
            cls.execute = _of_plain_too(execute)  # type: ignore[method-assign]

    @abstractmethod
    async def execute(self, args: Any, ctx: "ToolContext") -> ToolResult:
        """Do what the tool does.

        An AuditError becomes an error result, any other exception EXECUTION_ERROR.
        """

    def preview(self, args: Any, ctx: "ToolContext") -> Preview:
        """Return what the call would change, for the person who is asked.

        Sync; runs in a worker thread.

        An AuditError says that the call cannot work; the call then ends with that error.
        """
        return Preview()

    def effects(self, args: Any) -> frozenset[Effect]:
        """Return every effect that this call has; by default `effect` alone.

        A gate asks about the call as about one of each.
        """
        return frozenset({self.effect})

    def paths(self, args: Any, ctx: "ToolContext") -> Sequence[str]:
        """Return workspace paths that the call can change beside those that its arguments name.

        Sync; runs in a worker thread.
        """
        return ()

    def lacks(self, settings: "ToolSettings") -> str:
        """Return what no call can do without and is not there; "" where the tool can work."""
        return ""

    def limit(self, args: Any) -> float:
        """Return how many seconds this call may take; by default `timeout_seconds`."""
        return self.timeout_seconds

    @cached_property
    def _checker(self) -> "Draft202012Validator":
        from jsonschema import Draft202012Validator

        return Draft202012Validator(dict(self.parameters))

    def check_schemas(self) -> None:
        """Raise InvalidArguments when one of both schemas is not the JSON Schema of an object."""
        from jsonschema import Draft202012Validator
        from jsonschema.exceptions import SchemaError

        for what, schema in (("parameters", self.parameters), ("output", self.output_schema)):
            if schema is None:
                continue
            try:
                Draft202012Validator.check_schema(dict(schema))
            except SchemaError as error:
                raise InvalidArguments(
                    f"{what} of {self.name}: not a JSON Schema: {error.message}"
                ) from error
            if schema.get("type") != "object":
                raise InvalidArguments(f"{what} of {self.name}: not of type object")

    def parse(self, arguments: Any) -> Any:
        """Return the arguments as `execute` takes them. InvalidArguments lists every flaw."""
        if not isinstance(arguments, dict):
            raise InvalidArguments(
                f"The arguments of {self.name} {why_not_object(arguments)}",
                hint=f"Arguments of {self.name}: {signature(self.parameters)}.",
            )
        if place := lone_surrogate(arguments):
            raise InvalidArguments(
                f"{place} holds a lone surrogate, which is not a character",
                hint="Leave it out; bytes that are not UTF-8 are written with encoding base64.",
            )
        arguments = readable_arguments(self.parameters, arguments, self.other_names)
        made: Any = None
        # the quick way; what it refuses goes the long one, which names every flaw
        if isinstance(self.input, type) and issubclass(self.input, Fields):
            made, _ = fit_struct(self.input, arguments)
        if made is not None:
            return made
        made, flaws = arguments, list[str]()
        if not surely_fits(self.parameters, arguments):
            flaws = [*schema_flaws(self._checker.iter_errors(arguments))]
        if not flaws and self.input is not None:
            made, flaws = _fit(self.input, arguments)
        if flaws:
            raise InvalidArguments(
                f"Invalid arguments for {self.name}: " + "; ".join(flaws[:5]),
                hint=f"Arguments of {self.name}: {signature(self.parameters)}.",
                details={"flaws": flaws[:20]},
            )
        return made

    def check_output(self, data: Any) -> None:
        """Raise ExecutionFailed when the data of a success does not fit the declared output."""
        flaws: list[str] = []
        if self.output is not None:
            _, flaws = _fit(self.output, data)
        elif self.output_schema is not None:
            from jsonschema import Draft202012Validator

            checker = Draft202012Validator(dict(self.output_schema))
            flaws = [*schema_flaws(checker.iter_errors(data))]
        if flaws:
            raise ExecutionFailed(
                f"The result of {self.name} is not what it says it gives: " + "; ".join(flaws[:5]),
                hint="This is a flaw of the tool; what it did is on record.",
                details={"flaws": flaws[:20]},
            )

    def schema(self, dialect: Dialect = "openai") -> dict[str, Any]:
        """Return the tool as a model API takes it:

        OpenAI (nested or flat), Anthropic or MCP. InvalidArguments for another dialect.
        """
        parameters = deepcopy(dict(self.parameters))
        named: dict[str, Any] = {"name": self.name, "description": self.description}
        if dialect == "openai":
            return {"type": "function", "function": {**named, "parameters": parameters}}
        if dialect == "openai-flat":
            return {"type": "function", **named, "parameters": parameters, "strict": False}
        if dialect == "anthropic":
            return {**named, "input_schema": parameters}
        if dialect != "mcp":
            raise InvalidArguments(
                f"no dialect {dialect!r}", hint=f"There are: {', '.join(get_args(Dialect))}."
            )
        body: dict[str, Any] = {**named, "inputSchema": parameters}
        if self.output_schema is not None:
            body["outputSchema"] = deepcopy(dict(self.output_schema))
        body["annotations"] = {
            "readOnlyHint": self.effect == "read",
            "destructiveHint": self.effect in ("write", "execute"),
            "idempotentHint": self.effect == "read",
            "openWorldHint": self.effect in ("network", "execute"),
        }
        return body


def _of_plain_too(execute: Callable[..., Any]) -> Callable[..., Any]:
    """An `execute` of a model that takes a plain dict too."""

    @wraps(execute)
    async def executing(self: Tool, args: Any, ctx: "ToolContext") -> Any:
        if self.input is not None and isinstance(args, dict):
            args = self.parse(args)
        return await execute(self, args, ctx)

    return executing


def _fit(model: "Model", value: Any) -> tuple[Any, list[str]]:
    """The value as the model has it, and what does not fit."""
    if issubclass(model, Struct):
        return fit_struct(model, value, strict=False)
    from loom_audit.tools.calls.models import fit_model

    return fit_model(model, value)


Execute = TypeVar("Execute", bound=Callable[..., Any])


def one_thread(execute: Execute) -> Execute:
    """Mark an `execute` that awaits nothing but steps of its context.

    Such a call runs in one worker thread from its first step to its finish on record.
    """
    execute.one_thread = True  # type: ignore[attr-defined]
    return execute


def runs_in_one_thread(tool: Tool) -> bool:
    """Return whether the tool's `execute` is marked by `one_thread`."""
    return getattr(tool.execute, "one_thread", False)
