"""What is wrong with arguments and results, in words a model can act on."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from jsonschema.exceptions import ValidationError
from pydantic import ValidationError as ModelError


def schema_flaws(errors: Iterator[ValidationError]) -> Iterator[str]:
    """Each flaw a JSON Schema finds, with its place."""
    for error in map(_nearest, sorted(errors, key=lambda e: [*map(str, e.absolute_path)])):
        place = ".".join(str(part) for part in error.absolute_path)
        text = error.message if len(error.message) <= 300 else error.message[:300] + "…"
        yield f"{place}: {text}" if place else text


def _nearest(error: ValidationError) -> ValidationError:
    """Of a value that no alternative takes: its flaw in the one of its own type, else the first."""
    while error.context:
        meant = [one for one in error.context if one.validator != "type" or one.path]
        error = (meant or error.context)[0]
    return error


def no_object(arguments: Any) -> str:
    """Why arguments are no JSON object; of a model's broken JSON, where it breaks."""
    if isinstance(arguments, str):
        try:
            json.loads(arguments)
        except json.JSONDecodeError as error:
            return f"are no JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        except (ValueError, RecursionError) as error:
            return f"are no JSON that can be read: {error}"
    return f"must be a JSON object, not {type(arguments).__name__}"


def model_flaws(error: ModelError) -> Iterator[str]:
    """Each flaw a pydantic model finds, with its place."""
    for flaw in error.errors(include_url=False, include_input=False):
        place = ".".join(str(part) for part in flaw["loc"])
        text = flaw["msg"].removeprefix("Value error, ")
        yield f"{place}: {text}" if place else text


def signature(parameters: Mapping[str, Any]) -> str:
    """The names of the arguments, `?` after those that may be left out."""
    required = parameters.get("required", [])
    names = [n if n in required else f"{n}?" for n in parameters.get("properties", {})]
    return ", ".join(names) or "none"
