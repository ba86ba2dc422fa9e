"""Define the options that select a limiter: a stack by its name, or any store by a URL."""

import os
import shlex
import stat
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli._endpoint import remember_endpoint
from zae_limiter.cli._hints import PLACE, STORE, calling, remember
from zae_limiter.cli._output import print_note
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.location import (
    URL_VARIABLE,
    DynamoLocation,
    SqliteLocation,
    dynamo_url,
    parse_location,
    stack_elsewhere,
)
from zae_limiter.core.names import check_stack_name
from zae_limiter.core.namespace import DEFAULT_NAMESPACE

if TYPE_CHECKING:
    from zae_limiter.infra.clients import Clients

Command = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Region:
    """A region of AWS, or of the server at the endpoint; None for the configured value."""

    name: str | None
    endpoint_url: str | None

    def clients(self) -> "Clients":
        """Return clients for the region."""
        from zae_limiter.infra.clients import Clients

        return Clients(self.name, self.endpoint_url)


@dataclass(frozen=True, slots=True)
class StoreLocation:
    """The name of a limiter's stack, and its region."""

    name: str
    region: Region

    @property
    def url(self) -> str:
        """The URL of its table."""
        return dynamo_url(DynamoLocation(self.name, self.region.name, self.region.endpoint_url))

    @property
    def options(self) -> str:
        """The command-line options that select the stack, each after a space."""
        return _given({"--name": self.name, "--region": self.region.name, "--endpoint-url": self.region.endpoint_url})

    def resolved(self) -> "StoreLocation":
        """Return the same location with its configured region filled in."""
        return StoreLocation(self.name, Region(self.region.clients().region, self.region.endpoint_url))


@dataclass(frozen=True, slots=True)
class Target:
    """A store: by its URL, or the user's own file if that is None. ``place`` is set if it may have a stack.

    ``options`` are the command-line options that select it, each after a space. They are empty if
    the environment selects it.
    """

    url: str | None
    place: StoreLocation | None
    options: str = ""

    @property
    def existing_url(self) -> str | None:
        """The URL without the option that creates a table."""
        return self.url if self.place is None else self.place.url


@dataclass(frozen=True, slots=True)
class StoreChoice:
    """The store of a command, and the namespace in it."""

    target: Target
    namespace: str

    @property
    def url(self) -> str | None:
        """The URL of the store, None for the user's own file."""
        return self.target.url

    @property
    def options(self) -> str:
        """The command-line options that select it, each after a space."""
        return self.target.options + _given(
            {"--namespace": None if self.namespace == DEFAULT_NAMESPACE else self.namespace}
        )


_REGION = click.option(
    "--region", metavar="REGION", help="AWS region. Default: AWS_REGION, or the region of your profile."
)
_ENDPOINT = click.option("--endpoint-url", metavar="URL", help="Endpoint of another AWS, such as a local one.")


def region_options(command: Command) -> Command:
    """Add ``--region`` and ``--endpoint-url``; the command takes them as ``region``."""

    @_REGION
    @_ENDPOINT
    @wraps(command)
    def with_region(*, region: str | None, endpoint_url: str | None, **others: Any) -> None:
        remember_endpoint(endpoint_url)
        command(region=Region(region, endpoint_url), **others)

    return with_region


def place_options(command: Command) -> Command:
    """Add ``--name``, ``--region`` and ``--endpoint-url``; the command takes them as ``place``."""

    @click.option(
        "--name", "-n", "limiter", required=True, metavar="NAME", help="Name of the limiter and of its stack."
    )
    @region_options
    @wraps(command)
    def with_place(*, limiter: str, region: Region, **others: Any) -> None:
        command(place=StoreLocation(limiter, region), **others)

    return with_place


def target_options(command: Command) -> Command:
    """Add ``--name`` with its options, and ``--url`` as the alternative; the command takes them as ``target``."""

    @click.option("--name", "-n", "limiter", metavar="NAME", help="Name of a limiter on AWS.")
    @region_options
    @click.option(
        "--url",
        metavar="URL",
        help=f"URL of a store, such as sqlite:///file.db. Default: {URL_VARIABLE}, else a file in your data directory.",
    )
    @wraps(command)
    def with_target(*, limiter: str | None, region: Region, url: str | None, **others: Any) -> None:
        target = target_of(limiter, region, url)
        remember(PLACE, target.options)
        place = target.place
        remember_endpoint(None if place is None else place.region.endpoint_url, is_aws=place is not None)
        command(target=target, **others)

    return with_target


def store_options(command: Command) -> Command:
    """Add the options of ``target_options``, and ``--namespace``; the command takes them as ``store``."""

    @target_options
    @click.option(
        "--namespace",
        "-N",
        metavar="NAME",
        default=DEFAULT_NAMESPACE,
        show_default=True,
        help="Namespace to use.",
    )
    @wraps(command)
    def with_store(*, target: Target, namespace: str, **others: Any) -> None:
        store = StoreChoice(target, namespace)
        remember(STORE, store.options)
        command(store=store, **others)

    return with_store


def target_of(name: str | None, region: Region, url: str | None) -> Target:
    """Return the selected store; a name takes precedence over the environment.

    Raises:
        ValidationError: The name or the URL is invalid.
        click.UsageError: Both a name and a URL are given, or a region without a name.
    """
    context = click.get_current_context(silent=True)
    if name is not None and url is not None:
        raise click.UsageError("pass --name or --url, not both", context)
    if name is not None:
        check_stack_name(name, "name")
        place = StoreLocation(name, region)
        return Target(place.url, place, place.options)
    if region != Region(None, None):
        raise click.UsageError("--region and --endpoint-url require --name", context)
    chosen = url or os.environ.get(URL_VARIABLE) or None
    return Target(chosen, None if chosen is None else _place_at(chosen), _given({"--url": url}))


def announce(target: Target) -> None:
    """Report which file is used if none was selected, and that memory keeps nothing.

    Raises:
        click.UsageError: None was selected, but another program has selected a stack.
    """
    if target.url is None:
        print_note(f"Using {_default_file()} (--url selects another)")
    elif target.url == "memory://":
        print_note("memory:// is lost when this command ends; use sqlite:///file.db to keep data")


def file_of(target: Target) -> str | None:
    """Return the path of a store's file, or ``memory://``; None for a DynamoDB table.

    Raises:
        click.UsageError: None was selected, but another program has selected a stack.
    """
    if target.place is not None:
        return None
    if target.url is None:
        return _default_file()
    location = parse_location(target.url)
    return location.path if isinstance(location, SqliteLocation) else target.url


def require_database(target: Target) -> None:
    """Require that the file of a store exists, because opening it would create it.

    Raises:
        click.ClickException: There is no file, or it is empty.
        click.UsageError: None was selected, but another program has selected a stack.
    """
    path = file_of(target)
    if path is None or path == "memory://" or not _is_missing(path):
        return
    create = calling("system set-defaults -l rpm:100", PLACE)
    where = os.path.abspath(path)
    raise click.ClickException(f"there is no database at {where}; check the path, or create one: {create}")


def _default_file() -> str:
    """Return the path of the default file, unless the limits are in the stack of another program."""
    from zae_limiter._sync.open import default_path

    elsewhere = stack_elsewhere(os.environ)
    if elsewhere is not None:
        options = _given({"--url": elsewhere.url, "--namespace": elsewhere.namespace})
        message = f"{elsewhere.said}; pass{options}, or set {URL_VARIABLE} to that URL"
        raise click.UsageError(message, click.get_current_context(silent=True))
    return default_path()


def _is_missing(path: str) -> bool:
    try:
        found = os.stat(path)
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        # Opening the file reports the reason.
        return False
    return stat.S_ISREG(found.st_mode) and not found.st_size


def _given(options: dict[str, str | None]) -> str:
    return "".join(f" {option} {shlex.quote(value)}" for option, value in options.items() if value is not None)


def _place_at(url: str) -> StoreLocation | None:
    location = parse_location(url)
    if not isinstance(location, DynamoLocation):
        return None
    return StoreLocation(location.name, Region(location.region, location.endpoint_url))
