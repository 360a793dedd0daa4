"""Options and arguments of commands, as click's, from the signature of a command's body.

    def body(invocation: Invocation, path: Annotated[str, argument("PATH")], n: Annotated[int,
    option("--limit", min=0)] = 50): ...

A parameter without a default is required; a list takes several values, and is None when its
default is None and none was given.
"""

import inspect
from collections.abc import Callable, Sequence
from types import NoneType
from typing import Any, get_args, get_origin

import click
from msgspec import Struct

_TYPES = {str: click.STRING, float: click.FLOAT}

ALL = 2**31
"""More rows than there are."""


class Declared(Struct, frozen=True):
    """A parameter's annotation declares what its name, type and default do not say."""

    positional: bool
    flags: Sequence[str]
    metavar: str | None
    help: str
    least: int | None
    most: int | None


def option(
    *flags: str,
    metavar: str | None = None,
    help: str = "",
    min: int | None = None,
    max: int | None = None,
) -> Declared:
    """An option; by default the flag is named after the parameter."""
    return Declared(False, flags, metavar, help, min, max)


def argument(metavar: str, help: str = "", *, min: int | None = None) -> Declared:
    """A word, or in a list the words, that are not options."""
    return Declared(True, (), metavar, help, min, None)


def parameters_of(body: Callable[..., Any]) -> Sequence[click.Parameter]:
    """The parameters of a body after its first, in order."""
    signature = inspect.signature(body, eval_str=True)
    return [parameter(each) for each in list(signature.parameters.values())[1:]]


def parameter(given: inspect.Parameter) -> click.Parameter:
    """Make click's parameter of one that is annotated with `option(…)` or `argument(…)`."""
    annotation, declared = get_args(given.annotation)
    kind, several = _value_type(annotation)
    required = given.default is inspect.Parameter.empty
    default = None if required else given.default
    settings: dict[str, Any] = {"required": required, "help": declared.help or None}
    if several:
        settings["callback"] = lambda _, __, values: [*values] or default
    elif not required:
        settings["default"] = default
    names = [given.name, *(declared.flags or (f"--{given.name.replace('_', '-')}",))]
    if kind is bool:
        return click.Option(names, is_flag=True, **settings)
    settings["type"] = _TYPES.get(kind) or _whole_number(declared.least, declared.most)
    if declared.positional:
        name = declared.metavar if required else f"[{declared.metavar}]"
        settings |= {"metavar": f"{name}..." if several else name, "nargs": -1 if several else 1}
        return click.Argument([given.name], **settings)
    settings["metavar"] = declared.metavar
    shown = default is not None and default != ""
    return click.Option(names, multiple=several, show_default=shown, **settings)


def most_rows(limit: int) -> int:
    """Return how many rows a `--limit` asks for at most: 0 means all, as any larger number does."""
    return min(limit or ALL, ALL)


def _whole_number(least: int | None, most: int | None) -> click.types.IntParamType:
    limited = (least, most) != (None, None)
    kind = click.IntRange(least, most) if limited else click.types.IntParamType()
    kind.name = "whole number"  # as an error says it
    return kind


def _value_type(annotation: Any) -> tuple[Any, bool]:
    """The type of one value, and whether there are several."""
    given = [each for each in get_args(annotation) if each is not NoneType]
    if get_origin(annotation) is list:
        return given[0], True
    if len(given) == 1:
        return _value_type(given[0])
    return annotation, False
