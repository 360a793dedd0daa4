"""Models of pydantic: what most tools take and give. Imported only where one is used."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, WithJsonSchema
from pydantic import ValidationError as ModelError

NonEmpty = Annotated[str, WithJsonSchema({"type": "string", "minLength": 1})]
"""A text that is not empty; pydantic's own check would refuse paths that are not UTF-8."""


class Arguments(BaseModel):
    """A tool's input: named fields, nothing else allowed."""

    model_config = ConfigDict(
        extra="forbid", validate_by_name=True, validate_by_alias=True, defer_build=True
    )


class Output(BaseModel):
    """The `data` of a tool's success. What validates it is built when that is first needed."""

    model_config = ConfigDict(defer_build=True)


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


def fit_model(model: type[BaseModel], value: Any) -> tuple[BaseModel | None, list[str]]:
    """The value as a model, and each flaw it finds, with its place."""
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
    """Arguments as the caller gave them, by the names of the schema; no model is left as it is."""
    if isinstance(args, BaseModel):
        return args.model_dump(by_alias=True, exclude_unset=True)
    return args
