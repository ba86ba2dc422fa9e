"""Parse the URL of a limiter's data, and make one. Opening the location is done elsewhere."""

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from zae_limiter.core.errors import UnsupportedByBackendError, ValidationError
from zae_limiter.core.names import check_stack_name, check_text

_LONGEST_URL = 8192
_NO_FILE_NAME = "has a character that a file name cannot have"
_BAD_ESCAPES = "has escapes (%XX) that are not valid UTF-8"
_FORMS = "memory://, sqlite:///file.db (sqlite:////absolute/path.db) or dynamodb://name?region=us-east-1"


@dataclass(frozen=True, slots=True)
class MemoryLocation:
    """The memory of this process."""


@dataclass(frozen=True, slots=True)
class SqliteLocation:
    """A SQLite file; ``is_default`` is True for the per-user file that the package chooses.

    Raises:
        ValidationError: The path has characters that a file name or a URL cannot have.
    """

    path: str
    is_default: bool = False

    def __post_init__(self) -> None:
        """Check the path: a URL cannot contain a lone surrogate, and a file name cannot contain a null."""
        check_text("path", self.path, _LONGEST_URL)
        if "\0" in self.path:
            raise ValidationError("path", self.path, _NO_FILE_NAME)


@dataclass(frozen=True, slots=True)
class DynamoLocation:
    """A DynamoDB table; with ``create`` it is created if it does not exist.

    Raises:
        ValidationError: The region or the endpoint is not text, or is not valid Unicode.
    """

    name: str
    region: str | None = None
    endpoint_url: str | None = None
    create: bool = False

    def __post_init__(self) -> None:
        """Check the fields that a URL would have checked, because a location can be made without one."""
        check_place(self.region, self.endpoint_url)


Location = MemoryLocation | SqliteLocation | DynamoLocation


def parse_location(url: object) -> Location:
    """Return the location of a URL.

    Raises:
        ValidationError: The URL has none of the three forms.
    """
    if not isinstance(url, str):
        raise ValidationError("url", url, f"must be one of {_FORMS}")
    check_text("url", str(url), _LONGEST_URL)
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ValidationError("url", url, f"is not a URL: {error}") from None
    match parts.scheme:
        case "memory" if url == "memory://":
            return MemoryLocation()
        case "sqlite" if not parts.netloc and len(parts.path) > 1 and not parts.query and not parts.fragment:
            return SqliteLocation(_path(url, parts.path[1:]))
        case "dynamodb" if parts.netloc and parts.path in ("", "/") and not parts.fragment:
            return _dynamo(url, parts.netloc, parts.query)
    raise ValidationError("url", url, f"must be one of {_FORMS}")


def check_place(region: object, endpoint_url: object) -> None:
    """Require what botocore expects: text without lone surrogates, or None.

    Raises:
        ValidationError: The region or the endpoint is something else.
    """
    for field, value in (("region", region), ("endpoint_url", endpoint_url)):
        if value is not None:
            check_text(field, value, _LONGEST_URL)


def sqlite_url(path: str) -> str:
    """Return the URL of a file."""
    return f"sqlite:///{quote(path)}"


def dynamo_url(location: DynamoLocation) -> str:
    """Return the URL of a DynamoDB table."""
    options = {"region": location.region, "endpoint_url": location.endpoint_url}
    query = urlencode({name: value for name, value in options.items() if value is not None}, safe=":/")
    return f"dynamodb://{location.name}{'?' if query else ''}{query}"


def deployed_at(url: str, operation: str) -> DynamoLocation:
    """Return the DynamoDB location of a URL, for an operation that needs a stack.

    Raises:
        UnsupportedByBackendError: The URL is a file or memory, where nothing is deployed.
    """
    location = parse_location(url)
    if not isinstance(location, DynamoLocation):
        raise UnsupportedByBackendError(operation, urlsplit(url).scheme)
    return location


def _path(url: str, path: str) -> str:
    try:
        found = unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise ValidationError("url", url, _BAD_ESCAPES) from None
    if "\0" in found:
        raise ValidationError("url", url, _NO_FILE_NAME)
    return found


def _dynamo(url: str, name: str, query: str) -> DynamoLocation:
    try:
        options = dict(parse_qsl(query, keep_blank_values=True, errors="strict"))
    except UnicodeDecodeError:
        raise ValidationError("url", url, _BAD_ESCAPES) from None
    create = options.pop("create", "false")
    region, endpoint_url = options.pop("region", None), options.pop("endpoint_url", None)
    if options:
        raise ValidationError("url", url, f"has an unknown option: {sorted(options)[0]!r}")
    if create not in ("true", "false"):
        raise ValidationError("url", url, "create must be true or false")
    check_stack_name(name, "url")
    return DynamoLocation(name, region, endpoint_url, create == "true")
