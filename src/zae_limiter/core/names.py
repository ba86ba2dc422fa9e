"""Check names of entities, resources, limits, namespaces and stacks, and the size of amounts.

Every check raises before anything is written, and checks the length before the text. Only plain
``str`` and ``int`` pass: a subclass may print or compare as something else than it holds.
"""

from zae_limiter.core.errors import InvalidIdentifierError, InvalidNameError, ValidationError

DEFAULT_RESOURCE = "_default_"
"""Used instead of a resource: the limits of an entity for every resource without its own limits."""

ALL_RESOURCES = "_all_"
"""Used instead of a resource: the limits that all resources of an entity share, and the bucket of these limits."""

RESERVED_LIMIT_NAME = "wcu"
"""The limit name of the write counter of a bucket. It is never shown to users."""

RESERVED_NAMESPACE = "_"
"""The namespace of the namespace registry itself."""

MAX_AMOUNT = 10**18
"""The largest amount, capacity and rate."""

MAX_QUOTA = 10**15
"""The largest amount of a quota, of a take and of a debit; in money, a billion."""

MAX_ENTITY_ID_LENGTH = 256
MAX_RESOURCE_LENGTH = 128
MAX_NAME_LENGTH = 64
MAX_STACK_NAME_LENGTH = 55
MIN_STACK_NAME_LENGTH = 3
"""A table has the name of its stack, and DynamoDB has no shorter names of tables."""

USAGE_ATTRIBUTES = frozenset(
    {"PK", "SK", "entity_id", "resource", "window", "window_start", "window_end", "total_events", "ttl"}
    | {f"GSI{number}{part}" for number in range(1, 5) for part in ("PK", "SK")}
)
"""The attributes of a usage record beside its counters, which are named after their limits."""

# No name contains "#", which separates the parts of a key, or white space, which separates names in
# cursors and messages. No name starts with "-" or "=".
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
_DIGITS = "0123456789"


class _Rule:
    """The characters that a name may start with, and those that it may have."""

    __slots__ = ("all", "first")

    def __init__(self, first: str, more: str) -> None:
        self.first = first
        self.all = f"{_LETTERS}{_DIGITS}{more}"

    def admits(self, name: str) -> bool:
        """Return whether a name that is not empty follows the rule."""
        # Not a regular expression: compiling those of this module would be a tenth of the import of the package.
        # Stripping leaves nothing of a text that has only these characters.
        return name[0] in self.first and not name.strip(self.all)


_ENTITY_ID = _Rule(_LETTERS + _DIGITS, "_.@:+=/|-")
_RESOURCE = _Rule(_LETTERS + "@", "_./:@+|=-")
_LIMIT_NAME = _Rule(_LETTERS, "_.-")
_NAMESPACE = _Rule(_LETTERS + _DIGITS, "_.-")
_NAMESPACE_ID = _Rule(_LETTERS + _DIGITS + "_", "_-")
_STACK_NAME = _Rule(_LETTERS, "-")


def check_entity_id(value: object, field: str = "entity_id") -> None:
    """Require a valid entity id.

    Raises:
        InvalidIdentifierError: The value is not a valid entity id.
    """
    reason = _why_not_text(value, MAX_ENTITY_ID_LENGTH)
    if reason is None and not _ENTITY_ID.admits(value):  # type: ignore[arg-type]  # it is a str
        reason = "an entity id starts with a letter or digit, then has letters, digits and _ - . / : @ + | = only"
    if reason is not None:
        raise InvalidIdentifierError(field, value, reason)


def check_resource(
    value: object, field: str = "resource", *, allow_default: bool = False, allow_all: bool = False
) -> None:
    """Require a valid resource name, or ``_default_`` with ``allow_default``, or ``_all_`` with ``allow_all``.

    Raises:
        InvalidNameError: The value is not a valid resource name.
    """
    if type(value) is str and value in (DEFAULT_RESOURCE, ALL_RESOURCES):
        if allow_default if value == DEFAULT_RESOURCE else allow_all:
            return
        use = "the limits of an entity" if value == DEFAULT_RESOURCE else "limits across resources"
        raise InvalidNameError(field, value, f"{value} is only allowed for {use}")
    rule = "a resource starts with a letter or @, then has letters, digits and _ - . / : @ + | = only"
    _check_name(field, value, _RESOURCE, rule, MAX_RESOURCE_LENGTH)


def check_limit_name(value: object, field: str = "limit name") -> None:
    """Require a valid limit name that is not reserved.

    Raises:
        InvalidNameError: The value is not a valid limit name, or is reserved.
    """
    _check_name(field, value, _LIMIT_NAME, "a limit starts with a letter, then has letters, digits and _ - . only")
    if value == RESERVED_LIMIT_NAME or value in USAGE_ATTRIBUTES or _is_sequence_marker(str(value)):
        raise InvalidNameError(field, value, "this name is reserved; choose another")


def check_namespace(value: object, field: str = "namespace") -> None:
    """Require a valid namespace name that is not reserved.

    Raises:
        InvalidNameError: The value is not a valid namespace name.
    """
    _check_name(
        field, value, _NAMESPACE, "a namespace starts with a letter or digit, then has letters, digits and _ . - only"
    )


def check_stack_name(value: object, field: str = "name") -> None:
    """Require a valid stack name, long enough for its table, and short enough for the names derived from it.

    Raises:
        InvalidNameError: The value is not a valid stack name.
    """
    rule = "a stack name starts with a letter, then has letters, digits and hyphens only"
    _check_name(field, value, _STACK_NAME, rule, MAX_STACK_NAME_LENGTH)
    if len(value) < MIN_STACK_NAME_LENGTH:  # type: ignore[arg-type]  # it is a str
        raise InvalidNameError(field, value, f"must have at least {MIN_STACK_NAME_LENGTH} characters")


def check_amount(field: str, value: object) -> None:
    """Require an amount of tokens: a whole number from 0 to ``MAX_AMOUNT``.

    Raises:
        ValidationError: The value is something else.
    """
    check_whole_number(field, value, 0, MAX_AMOUNT)


def check_whole_number(field: str, value: object, least: int, most: int) -> int:
    """Require an ``int`` within bounds, both included.

    Raises:
        ValidationError: The value has another type, such as ``bool``, or is out of bounds.
    """
    if type(value) is not int:
        raise ValidationError(field, value, f"must be an int, not {type(value).__name__}")
    if value < least:
        raise ValidationError(field, value, f"must be at least {least}")
    if value > most:
        raise ValidationError(field, value, f"must be at most {most}")
    return value


def check_text(field: str, value: object, longest: int) -> None:
    """Require text that every backend can store, in any script, up to ``longest`` characters.

    Raises:
        ValidationError: The value is not a plain ``str``, too long, or not valid Unicode.
    """
    if type(value) is not str:
        raise ValidationError(field, value, f"must be a plain str, not {type(value).__name__}")
    if len(value) > longest:
        raise ValidationError(field, value, f"must have at most {longest} characters, not {len(value)}")
    try:
        value.encode()
    except UnicodeEncodeError:
        raise ValidationError(field, value, "is not valid Unicode") from None


def is_namespace_id(value: str) -> bool:
    """Return whether a text could be the id of a namespace."""
    return len(value) == len("a7x3kq00000") and _NAMESPACE_ID.admits(value)


def _is_sequence_marker(name: str) -> bool:
    return name.startswith("s_") and name[2:].isdigit()


def _check_name(field: str, value: object, rule: _Rule, reason: str, longest: int = MAX_NAME_LENGTH) -> None:
    broken = _why_not_text(value, longest)
    if broken is None and not rule.admits(value):  # type: ignore[arg-type]  # it is a str
        broken = reason
    if broken is not None:
        raise InvalidNameError(field, value, broken)


def _why_not_text(value: object, longest: int) -> str | None:
    """Return why a value is not a text of 1 to ``longest`` characters, None if it is one."""
    if type(value) is not str:
        return f"must be a plain str, not {type(value).__name__}"
    if not value:
        return "must not be empty"
    if len(value) > longest:
        return f"must have at most {longest} characters, not {len(value)}"
    return None
