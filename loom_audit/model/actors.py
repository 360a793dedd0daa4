"""Who did something or decided about it, as a record names them."""

OUTSIDE = "outside"
"""The actor of what nobody who is known did."""

PERSON = "person:"
"""What the name of an actor begins with that is a person."""


def is_person(actor: str) -> bool:
    """Whether an actor, or who decided something, is a person."""
    return actor.startswith(PERSON)
