"""What a plan's page was asked for, as form fields and query parameters."""

from collections.abc import Sequence
from typing import cast, get_args

from msgspec.structs import replace

from loom_audit.api.face import AuditedWorkspace
from loom_audit.errors import InvalidArguments
from loom_audit.model.plans.request import FLAGS, Choice, PlanRequest, Verb
from loom_audit.web.shared.dependencies import is_number, point_text
from loom_audit.web.shared.ticks import BETWEEN
from loom_audit.web.shared.urls import Fields, address, encoded, first, quoted, unquoted
from loom_audit.web.shared.urls import fields as read_fields

CHOICE = "choice:"
WISH = "wish"
"""A field that holds others, as a query; those of the same name beside it count."""


def unfolded(fields: Fields) -> Fields:
    """The fields with those that WISH holds."""
    inner = first(fields, WISH).encode("utf-8", "surrogateescape")
    return {**read_fields(inner), **fields} if inner else fields


def read_request(fields: Fields) -> PlanRequest:
    """The request that fields hold. InvalidArguments names what is missing or not understood."""
    fields = unfolded(fields)
    verb = first(fields, "verb")
    if verb not in get_args(Verb):
        raise InvalidArguments(f"{verb!r} is not one of {', '.join(get_args(Verb))}")
    targets = [target for target in fields.get("target", ()) if target]
    if not targets and verb == "revert":
        raise InvalidArguments(
            "nothing is ticked, and no call is named", hint="Go back and tick what is to be undone."
        )
    if not targets and verb == "rollback":
        raise InvalidArguments("rollback needs a target", hint="A call's number, or a point.")
    choices: dict[str, Choice] = {}
    for name, values in fields.items():
        if name.startswith(CHOICE) and values:
            if values[-1] not in get_args(Choice):
                raise InvalidArguments(
                    f"{values[-1]!r} is not one of {', '.join(get_args(Choice))}"
                )
            choices[unquoted(name.removeprefix(CHOICE))] = cast(Choice, values[-1])
    flags = {flag.field: True for flag in FLAGS if verb in flag.verbs and first(fields, flag.name)}
    request = replace(PlanRequest(cast(Verb, verb), choices=choices), **flags)
    paths = tuple(path.strip("/") for path in fields.get("path", ()) if path.strip("/"))
    if verb == "revert":
        if not paths and first(fields, "ticked"):
            raise InvalidArguments(
                "no file is ticked", hint="Go back and tick what is to be undone."
            )
        return replace(request, targets=_read_targets(targets), paths=paths)
    if verb != "rollback":
        return replace(request, session=next(iter(targets), None))
    return replace(request, targets=(point_text(targets[0]),), paths=paths)


def _read_targets(texts: Sequence[str]) -> tuple[int | str, ...]:
    """What is to be reverted, each once: the numbers, of which a text can hold several, first."""
    numbers = [part for text in texts if _are_numbers(text) for part in text.split(BETWEEN)]
    named = [text for text in texts if not _are_numbers(text)]
    return tuple(dict.fromkeys((*map(int, numbers), *named)))


def _are_numbers(text: str) -> bool:
    return all(is_number(part) for part in text.split(BETWEEN))


def fields_of(request: PlanRequest) -> tuple[tuple[str, str], ...]:
    """A request as form fields and query parameters; every name of a file percent-encoded."""
    targets = [str(target) for target in request.targets or filter(None, [request.session])]
    numbers = BETWEEN.join(filter(is_number, targets)) if request.verb == "revert" else ""
    named = [target for target in targets if not (numbers and is_number(target))]
    return (
        ("verb", request.verb),
        *(("target", target) for target in (numbers, *named) if target),
        *(("path.q", quoted(path, safe="/")) for path in request.paths),
        *((CHOICE + quoted(path, safe="/"), chosen) for path, chosen in request.choices.items()),
        *((flag.name, "1") for flag in request.flags),
    )


def hidden_fields(asked: Sequence[tuple[str, str]]) -> tuple[tuple[str, str], ...]:
    """The fields of a request in few: paths and choices, of which there are many, in one."""
    many = [pair for pair in asked if pair[0].startswith(("path.q", CHOICE))]
    few = [pair for pair in asked if pair not in many]
    return (*few, *(((WISH, encoded(many)),) if many else ()))


def plan_address(workspace: AuditedWorkspace, asked: PlanRequest) -> str:
    """The address at which the plan of a request is shown."""
    return address("w", workspace.id, "plan", query=fields_of(asked))
