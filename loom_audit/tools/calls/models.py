"""Models of pydantic: what most tools take and give. Imported only where one is used."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, WithJsonSchema
from pydantic import ValidationError as ModelError

NonEmpty = Annotated[str, WithJsonSchema({"type": "string", "minLength": 1})]
"""A text that is not empty; pydantic's own check would refuse paths that are not UTF-8."""


class Arguments(BaseModel):
    """The input of a tool as a pydantic model: named fields, no others allowed."""

    model_config = ConfigDict(
        extra="forbid", validate_by_name=True, validate_by_alias=True, defer_build=True
    )


class Output(BaseModel):
    """The `data` of a tool's success as a pydantic model; its validator is built when needed."""

    model_config = ConfigDict(defer_build=True)


def parameters_of(
    model: type[BaseModel], mode: Literal["validation", "serialization"] = "validation"
) -> dict[str, Any]:
    """Return the JSON Schema of a model, without titles.

    Extra fields are refused unless the model allows them.
    """
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
            # these hold values, in which a title is the caller's
            elif key not in ("default", "const", "enum", "examples"):
                _drop_titles(item)


def fit_model(model: type[BaseModel], value: Any) -> tuple[BaseModel | None, list[str]]:
    """Convert a value into a model; return that, or None and every flaw with its place."""
    try:
        return model.model_validate(value), []
    except ModelError as error:
        return None, [*_flaws(error)]


def _flaws(error: ModelError) -> Iterator[str]:
    """Each flaw a pydantic model finds, with its place."""
    for flaw in error.errors(include_url=False, include_input=False):
        place = ".".join(str(part) for part in flaw["loc"])
        text = flaw["msg"].removeprefix("Value error, ")
        yield f"{place}: {text}" if place else text


def given(args: Any) -> Any:
    """Return the arguments as the caller gave them, by the names of the schema.

    Arguments that are not a model are returned as they are.
    """
    if isinstance(args, BaseModel):
        return args.model_dump(by_alias=True, exclude_unset=True)
    return args
