"""Parse the URL of a limiter's data, and make one. Opening the location is done elsewhere.

The functions import ``urllib.parse`` themselves: it is large, and a limiter in memory does not need it.
"""

import re
from collections.abc import Mapping
from typing import NamedTuple

from zae_limiter.core.errors import UnsupportedByBackendError, ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.names import check_stack_name, check_text

URL_VARIABLE = "ZAE_LIMITER_URL"
"""The environment variable with the URL that is opened if no URL is passed."""

_LONGEST_URL = 8192
_NO_FILE_NAME = "has a character that a file name cannot have"
_BAD_ESCAPES = "has escapes (%XX) that are not valid UTF-8"
_FORMS = "memory://, sqlite:///file.db (sqlite:////absolute/path.db) or dynamodb://name?region=us-east-1"
# An "@" inside a query is written as %40.
_CREDENTIALS = r"(?<=//)[^/?#&]+(?=@|%40)"
_STACK_VARIABLE = "ZAEL_STACK"
_NAMESPACE_VARIABLE = "ZAEL_NAMESPACE"
_REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION")


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


class ChosenUrl(NamedTuple):
    """The URL to open, None for the default file, and why it was chosen."""

    url: str | None
    reason: str


class StackElsewhere(NamedTuple):
    """The store that variables of another program with this API name.

    ``said`` is a clause that names the variables. ``namespace`` is None if none is named.
    """

    said: str
    url: str
    namespace: str | None


def stack_elsewhere(environment: Mapping[str, str]) -> StackElsewhere | None:
    """Return the store that the variables of another program name, None if none is set, or if ours is set."""
    named = [name for name in (_STACK_VARIABLE, _NAMESPACE_VARIABLE) if environment.get(name)]
    if not named or environment.get(URL_VARIABLE):
        return None
    region = next((environment[name] for name in _REGION_VARIABLES if environment.get(name)), "REGION")
    url = f"dynamodb://{environment.get(_STACK_VARIABLE) or 'NAME'}?region={region}"
    verb = "is" if len(named) == 1 else "are"
    said = f"{' and '.join(named)} {verb} set, but this package reads {URL_VARIABLE} only"
    return StackElsewhere(said, url, environment.get(_NAMESPACE_VARIABLE) or None)


def choose_url(passed: str | None, environment: Mapping[str, str]) -> ChosenUrl:
    """Return the URL that was passed, else that of the environment, else the default.

    Raises:
        ValidationError: There is no URL, but the environment names a stack or a namespace.
    """
    if passed is not None:
        return ChosenUrl(passed, "it was passed as url")
    url = environment.get(URL_VARIABLE)
    if url:
        return ChosenUrl(url, f"{URL_VARIABLE} is set")
    elsewhere = stack_elsewhere(environment)
    if elsewhere is not None:
        option = "" if elsewhere.namespace is None else f", namespace={elsewhere.namespace!r}"
        write = f"Write open({elsewhere.url!r}{option}), or set {URL_VARIABLE} to that URL"
        raise ValidationError("url", None, f"{elsewhere.said}. {write}")
    return ChosenUrl(None, f"no url was passed, and {URL_VARIABLE} is not set")


def parse_location(url: object) -> Location:
    """Return the location of a URL.

    Raises:
        ValidationError: The URL has none of the three forms.
    """
    if not isinstance(url, str):
        raise ValidationError("url", url, f"must be one of {_FORMS}")
    check_text("url", str(url), _LONGEST_URL)
    if url == "memory://":
        return MemoryLocation()
    from urllib.parse import urlsplit

    try:
        parts = urlsplit(url)
    except ValueError as error:
        raise ValidationError("url", url, f"is not a URL: {error}") from None
    match parts.scheme:
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
    from urllib.parse import quote

    return f"sqlite:///{quote(path)}"


def dynamo_url(location: DynamoLocation) -> str:
    """Return the URL of a DynamoDB table."""
    from urllib.parse import urlencode

    options = {"region": location.region, "endpoint_url": location.endpoint_url}
    query = urlencode({name: value for name, value in options.items() if value is not None}, safe=":/")
    return f"dynamodb://{location.name}{'?' if query else ''}{query}"


def without_credentials(url: str) -> str:
    """Return a URL for people to read: a user name and a password in it are replaced."""
    # The path of a file may have an "@", and a file has no credentials.
    return url if url.startswith("sqlite:") else re.sub(_CREDENTIALS, "***", url)


def shown_name(url: str) -> str:
    """Return the name of a limiter: that of its stack on DynamoDB, else its URL without credentials."""
    return without_credentials(url) if (name := stack_of(url)) is None else name


def stack_of(url: str) -> str | None:
    """Return the name of the stack of a valid URL, None for a file or memory."""
    if _scheme(url) != "dynamodb":
        return None
    from urllib.parse import urlsplit

    return urlsplit(url).netloc


def selecting_options(url: str) -> str:
    """Return the options of a command that select the limiter of a URL: `` --name my-app --region us-east-1``."""
    import shlex

    location = parse_location(url)
    if not isinstance(location, DynamoLocation):
        return f" --url {shlex.quote(url)}"
    given = {"--name": location.name, "--region": location.region, "--endpoint-url": location.endpoint_url}
    return "".join(f" {option} {shlex.quote(value)}" for option, value in given.items() if value is not None)


def deployed_name(name: str, operation: str) -> str:
    """Return the name of the stack, for an operation that needs one; ``name`` is that of a limiter, or a URL.

    Raises:
        UnsupportedByBackendError: The limiter is a file or memory, where nothing is deployed.
    """
    # The name of a stack has no colon.
    stack = stack_of(name) if ":" in name else name
    if stack is None:
        raise UnsupportedByBackendError(operation, _scheme(name))
    return stack


def deployed_at(url: str, operation: str, hint: str | None = None) -> DynamoLocation:
    """Return the DynamoDB location of a URL, for an operation that needs a stack; ``hint`` says what to do instead.

    Raises:
        UnsupportedByBackendError: The URL is a file or memory, where nothing is deployed.
    """
    location = parse_location(url)
    if not isinstance(location, DynamoLocation):
        raise UnsupportedByBackendError(operation, _scheme(url), hint)
    return location


def _scheme(url: str) -> str:
    return url.partition(":")[0].lower()


def _path(url: str, path: str) -> str:
    from urllib.parse import unquote

    try:
        found = unquote(path, errors="strict")
    except UnicodeDecodeError:
        raise ValidationError("url", url, _BAD_ESCAPES) from None
    if "\0" in found:
        raise ValidationError("url", url, _NO_FILE_NAME)
    return found


def _dynamo(url: str, name: str, query: str) -> DynamoLocation:
    from urllib.parse import parse_qsl

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
