"""Where the limiter's data is, read off a URL. Opening it is done elsewhere."""

from dataclasses import dataclass
from urllib.parse import parse_qsl, quote, unquote, urlencode, urlsplit

from zae_limiter.core.errors import UnsupportedByBackendError, ValidationError
from zae_limiter.core.names import check_stack_name

_FORMS = "memory://, sqlite:///file.db (sqlite:////absolute/path.db) or dynamodb://name?region=us-east-1"


@dataclass(frozen=True, slots=True)
class MemoryLocation:
    """This process's memory."""


@dataclass(frozen=True, slots=True)
class SqliteLocation:
    """A file; ``is_default`` if it is the user's own, which the package chose."""

    path: str
    is_default: bool = False


@dataclass(frozen=True, slots=True)
class DynamoLocation:
    """A DynamoDB table; ``create`` makes it where there is none."""

    name: str
    region: str | None = None
    endpoint_url: str | None = None
    create: bool = False


Location = MemoryLocation | SqliteLocation | DynamoLocation


def parse_location(url: object) -> Location:
    """Return the location a URL names.

    Raises:
        ValidationError: The URL is none of the three forms.
    """
    if not isinstance(url, str):
        raise ValidationError("url", url, f"must be one of {_FORMS}")
    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ValidationError("url", url, f"is no URL: {error}") from None
    match parts.scheme:
        case "memory" if url == "memory://":
            return MemoryLocation()
        case "sqlite" if not parts.netloc and len(parts.path) > 1 and not parts.query and not parts.fragment:
            return SqliteLocation(_path(url, parts.path[1:]))
        case "dynamodb" if parts.netloc and parts.path in ("", "/") and not parts.fragment:
            return _dynamo(url, parts.netloc, parts.query)
    raise ValidationError("url", url, f"must be one of {_FORMS}")


def sqlite_url(path: str) -> str:
    """Return the URL that names a file."""
    return f"sqlite:///{quote(path)}"


def dynamo_url(location: DynamoLocation) -> str:
    """Return the URL that names a table of DynamoDB."""
    options = {"region": location.region, "endpoint_url": location.endpoint_url}
    query = urlencode({name: value for name, value in options.items() if value is not None}, safe=":/")
    return f"dynamodb://{location.name}{'?' if query else ''}{query}"


def deployed_at(url: str, operation: str) -> DynamoLocation:
    """Return the location of what is deployed at a URL, for an operation that needs a stack.

    Raises:
        UnsupportedByBackendError: Nothing is deployed there: it is a file, or memory.
    """
    location = parse_location(url)
    if not isinstance(location, DynamoLocation):
        raise UnsupportedByBackendError(operation, urlsplit(url).scheme)
    return location


def _path(url: str, path: str) -> str:
    found = unquote(path)
    if "\0" in found:
        raise ValidationError("url", url, "has a character that no file name has")
    return found


def _dynamo(url: str, name: str, query: str) -> DynamoLocation:
    options = dict(parse_qsl(query, keep_blank_values=True))
    create = options.pop("create", "false")
    region, endpoint_url = options.pop("region", None), options.pop("endpoint_url", None)
    if options:
        raise ValidationError("url", url, f"has an unknown option: {sorted(options)[0]!r}")
    if create not in ("true", "false"):
        raise ValidationError("url", url, "create must be true or false")
    check_stack_name(name, "url")
    return DynamoLocation(name, region, endpoint_url, create == "true")
