"""What entities, resources, limits, namespaces and stacks may be called, and how large an amount may be.

Every check raises the named error before anything is written, and looks at the length before the text.
Only plain ``str`` and ``int`` pass: a subclass may print or compare as something else than it holds.
"""

import re

from zae_limiter.core.errors import InvalidIdentifierError, InvalidNameError, ValidationError

DEFAULT_RESOURCE = "_default_"
"""In place of a resource: the limits of an entity for every resource without its own."""

RESERVED_LIMIT_NAME = "wcu"
"""Counts the writes of a bucket's partition; hidden everywhere a user looks."""

RESERVED_NAMESPACE = "_"
"""The namespace of the namespace registry itself."""

MAX_AMOUNT = 10**18
"""No amount, capacity or rate is larger."""

MAX_ENTITY_ID_LENGTH = 256
MAX_NAME_LENGTH = 64
MAX_STACK_NAME_LENGTH = 55

USAGE_ATTRIBUTES = frozenset(
    {"PK", "SK", "entity_id", "resource", "window", "window_start", "window_end", "total_events", "ttl"}
    | {f"GSI{number}{part}" for number in range(1, 5) for part in ("PK", "SK")}
)
"""What a usage record keeps beside its counters, which stand under the names of their limits."""

_ENTITY_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@:+=-]*")
_RESOURCE = re.compile(r"[A-Za-z][A-Za-z0-9_./-]*")
_LIMIT_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_.-]*")
_NAMESPACE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")
_STACK_NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]*")
_SEQUENCE_MARKER = re.compile(r"s_[0-9]+")


def check_entity_id(value: object, field: str = "entity_id") -> None:
    """Require the id of an entity.

    Raises:
        InvalidIdentifierError: it is not one.
    """
    reason = _why_not_text(value, MAX_ENTITY_ID_LENGTH)
    if reason is None and not _ENTITY_ID.fullmatch(value):  # type: ignore[call-overload]  # it is a str
        reason = "an entity id starts with a letter or digit, then has letters, digits and _ . @ : + = - only"
    if reason is not None:
        raise InvalidIdentifierError(field, value, reason)


def check_resource(value: object, field: str = "resource", *, allow_default: bool = False) -> None:
    """Require the name of a resource, or ``_default_`` where that is allowed.

    Raises:
        InvalidNameError: it is not one.
    """
    if value == DEFAULT_RESOURCE and type(value) is str:
        if allow_default:
            return
        raise InvalidNameError(field, value, f"{DEFAULT_RESOURCE} is only for the limits of an entity")
    _check_name(field, value, _RESOURCE, "a resource starts with a letter, then has letters, digits and _ - . / only")


def check_limit_name(value: object, field: str = "limit name") -> None:
    """Require the name of a limit that a user may set.

    Raises:
        InvalidNameError: it is not one, or it is reserved.
    """
    _check_name(field, value, _LIMIT_NAME, "a limit starts with a letter, then has letters, digits and _ - . only")
    if value == RESERVED_LIMIT_NAME or value in USAGE_ATTRIBUTES or _SEQUENCE_MARKER.fullmatch(str(value)):
        raise InvalidNameError(field, value, "this name is reserved; choose another")


def check_namespace(value: object, field: str = "namespace") -> None:
    """Require the name of a namespace that a user may register.

    Raises:
        InvalidNameError: it is not one.
    """
    _check_name(
        field, value, _NAMESPACE, "a namespace starts with a letter or digit, then has letters, digits and _ . - only"
    )


def check_stack_name(value: object, field: str = "name") -> None:
    """Require the name of a stack, short enough for the names derived from it.

    Raises:
        InvalidNameError: it is not one.
    """
    rule = "a stack name starts with a letter, then has letters, digits and hyphens only"
    _check_name(field, value, _STACK_NAME, rule, MAX_STACK_NAME_LENGTH)


def check_amount(field: str, value: object) -> None:
    """Require an amount of tokens: a whole number from 0 to ``MAX_AMOUNT``.

    Raises:
        ValidationError: it is not one.
    """
    check_whole_number(field, value, 0, MAX_AMOUNT)


def check_whole_number(field: str, value: object, least: int, most: int) -> None:
    """Require an ``int`` within bounds, both included.

    Raises:
        ValidationError: it is something else, a ``bool`` for one, or out of bounds.
    """
    if type(value) is not int:
        raise ValidationError(field, value, f"must be an int, not {type(value).__name__}")
    if value < least:
        raise ValidationError(field, value, f"must be at least {least}")
    if value > most:
        raise ValidationError(field, value, f"must be at most {most}")


def check_text(field: str, value: object, longest: int) -> None:
    """Require text that every table can keep, of any script, up to ``longest`` characters.

    Raises:
        ValidationError: it is not.
    """
    if type(value) is not str:
        raise ValidationError(field, value, f"must be a plain str, not {type(value).__name__}")
    if len(value) > longest:
        raise ValidationError(field, value, f"must have at most {longest} characters, not {len(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValidationError(field, value, "has characters that are no valid Unicode") from None


def _check_name(field: str, value: object, rule: re.Pattern[str], reason: str, longest: int = MAX_NAME_LENGTH) -> None:
    broken = _why_not_text(value, longest)
    if broken is None and not rule.fullmatch(value):  # type: ignore[call-overload]  # it is a str
        broken = reason
    if broken is not None:
        raise InvalidNameError(field, value, broken)


def _why_not_text(value: object, longest: int) -> str | None:
    """What keeps a value from being a text of 1 to ``longest`` characters, None if nothing does."""
    if type(value) is not str:
        return f"must be a plain str, not {type(value).__name__}"
    if not value:
        return "must not be empty"
    if len(value) > longest:
        return f"must have at most {longest} characters, not {len(value)}"
    return None
