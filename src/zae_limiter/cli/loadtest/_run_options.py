"""Define the options of ``loadtest run`` and ``loadtest ui``, and decide which of them apply."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.core import ParameterSource

from zae_limiter.cli._amount_syntax import AMOUNT_FORM, gather_amounts, parse_amount
from zae_limiter.cli._endpoint import remember_endpoint
from zae_limiter.cli._help import SectionedOption
from zae_limiter.cli._hints import PLACE, remember
from zae_limiter.cli._limit_syntax import LIMIT_FORM, parse_limit
from zae_limiter.cli._options import json_option, reading_each
from zae_limiter.cli._place import Command, Region, StoreLocation, target_of
from zae_limiter.core.limit import Limit

if TYPE_CHECKING:
    from zae_limiter.loadtest.measurements import Measurements

LOCUST, NATIVE = "locust", "native"
MAX_USD = 5.0

# The options that only one way to run a test has, by the names of their parameters.
ONLY_HERE = {"processes": "--processes", "driver": "--driver"}
ONLY_ON_AWS = {
    "workers": "--workers",
    "standalone": "--standalone",
    "max_usd": "--max-usd",
    "max_duration_s": "--max-duration",
}
ONLY_NATIVE = {
    "entities": "--entities",
    "resource": "--resource",
    "amounts": "--consume",
    "limits": "--limit",
    "rate": "--rate",
    "cascade": "--cascade",
    "adjust": "--adjust",
}
ONLY_LOCUST = {
    "classes": "CLASS",
    "file": "--file",
    "directory": "--directory",
    "spawn_rate": "--spawn-rate",
    "processes": "--processes",
}
_OPTION_NAMES = ONLY_HERE | ONLY_ON_AWS | ONLY_NATIVE | ONLY_LOCUST


@dataclass(frozen=True, slots=True)
class LoadTarget:
    """The limiter that a test calls. Locust runs on AWS, next to it, if ``place`` is set, else on this machine."""

    url: str
    place: StoreLocation | None


@dataclass(frozen=True, slots=True)
class RunOptions:
    """What a test with Locust does. All classes of the file run if ``classes`` is empty.

    ``workers`` is the number of Lambda workers below a master; None for a test without a master.
    ``standalone`` is one task without workers. ``max_duration_s`` is None for no maximum.
    """

    file: Path
    directory: Path
    classes: tuple[str, ...]
    users: int
    duration_s: int
    spawn_rate: float
    processes: int
    workers: int | None
    standalone: bool
    max_usd: float
    max_duration_s: int | None
    as_json: bool
    html: Path | None

    @property
    def path(self) -> Path:
        """The Locust file on this machine."""
        return self.directory / self.file


@dataclass(frozen=True, slots=True)
class NativeOptions:
    """What a test with the native driver does.

    It sends ``rate`` calls per second on a schedule. If that is None, each of ``users`` sends its
    next call when the last one has ended. The stored limits apply if ``limits`` is empty.
    """

    entities: int
    resource: str
    consume: dict[str, int]
    limits: tuple[Limit, ...]
    rate: float | None
    cascade: bool
    adjust: bool
    users: int
    duration_s: int
    as_json: bool
    html: Path | None


@dataclass(frozen=True, slots=True)
class WebPageOptions:
    """Locust's web page, and the Locust file behind it. All classes of the file run if ``classes`` is empty.

    ``max_duration_s`` is None for the longest time that a page on AWS may run.
    """

    file: Path
    directory: Path
    classes: tuple[str, ...]
    processes: int
    port: int
    browser: bool
    max_usd: float
    max_duration_s: int | None
    as_json: bool
    html: Path | None


@dataclass(frozen=True, slots=True)
class FinishedRun:
    """What a test measured, and whether it was interrupted before its end.

    ``is_complete`` is False if calls of lost workers are missing.
    """

    measured: "Measurements"
    is_interrupted: bool
    is_complete: bool = True


def usage_error(problem: str) -> click.UsageError:
    """Return a usage error of the current command."""
    return click.UsageError(problem, click.get_current_context(silent=True))


def load_target_options(command: Command) -> Command:
    """Add ``--url``, and ``--name`` with its options; the command takes them as ``target``."""

    @click.option("--url", metavar="URL", help="Run on this machine, against this store, such as sqlite:///load.db.")
    @click.option("--name", "-n", "limiter", metavar="NAME", help="Run on AWS, against this limiter.")
    @click.option("--region", metavar="REGION", help="AWS region. Default: AWS_REGION, or the region of your profile.")
    @click.option("--endpoint-url", metavar="URL", help="Endpoint of another AWS, such as a local one.")
    @wraps(command)
    def with_target(
        *, url: str | None, limiter: str | None, region: str | None, endpoint_url: str | None, **others: Any
    ) -> None:
        command(target=load_target(limiter, Region(region, endpoint_url), url), **others)

    return with_target


def load_target(name: str | None, region: Region, url: str | None) -> LoadTarget:
    """Return the limiter that a test calls. The environment selects none, because a test changes the store.

    Raises:
        click.UsageError: Neither a name nor a URL is given, or both are.
        ValidationError: The name or the URL is invalid.
    """
    if name is None and url is None:
        raise usage_error("pass --url sqlite:///load.db to run on this machine, or --name NAME to run on AWS")
    found = target_of(name, region, url)
    remember(PLACE, found.options)
    place = found.place
    remember_endpoint(None if place is None else place.region.endpoint_url, is_aws=place is not None)
    assert found.url is not None, "one of the two is given"
    return LoadTarget(found.url, None if name is None else place)


def page_run_options(command: Command) -> Command:
    """Add the options of ``loadtest run`` that a web page has too."""
    return _with(json_option(command), [*_FILE, _HTML, _PROCESSES, *_CEILINGS])


def run_options(command: Command) -> Command:
    """Add the options of ``loadtest run``. The command takes them as ``options``, for the driver that they select."""

    @wraps(command)
    def with_options(*, target: LoadTarget, **given: Any) -> None:
        context = click.get_current_context()
        named = {name for name in given if context.get_parameter_source(name) is ParameterSource.COMMANDLINE}
        native, on_aws = given["driver"] == NATIVE, target.place is not None
        problem = misplaced(named, on_aws=on_aws, native=native) or impossible(target.url, given)
        if problem is not None:
            raise usage_error(problem)
        command(target=target, options=options_of(given))

    options = [*_FILE, *_SHAPE, _HTML, _PROCESSES, _DRIVER, *_ON_AWS, *_CEILINGS, *_NATIVE]
    return _with(json_option(with_options), options)


def misplaced(given: Collection[str], *, on_aws: bool, native: bool) -> str | None:
    """Return which option does not apply to this way to run a test; None if all do."""
    wrong = dict.fromkeys(ONLY_HERE, "requires --url") if on_aws else dict.fromkeys(ONLY_ON_AWS, "requires --name")
    if native:
        wrong |= dict.fromkeys(ONLY_LOCUST, "does not apply to --driver native")
    else:
        wrong |= dict.fromkeys(ONLY_NATIVE, "requires --driver native")
    found = next((name for name in wrong if name in given), None)
    return None if found is None else f"{_OPTION_NAMES[found]} {wrong[found]}"


def impossible(url: str, given: Mapping[str, Any]) -> str | None:
    """Return why a test cannot run with these options; None if it can."""
    if given["driver"] == NATIVE and not given["amounts"]:
        return "--driver native requires --consume, such as -c rpm:1"
    if given["driver"] == LOCUST and given["file"] is None:
        return "pass a Locust file with --file, or --driver native"
    if given["workers"] is not None and given["standalone"]:
        return "pass --workers or --standalone, not both"
    return unshared(url, given["processes"])


def unshared(url: str, processes: int) -> str | None:
    """Return why these processes cannot share a store; None if they can."""
    if url == "memory://" and processes > 1:
        return "processes do not share memory://; use --url sqlite:///load.db, or one process"
    return None


def options_of(given: Mapping[str, Any]) -> RunOptions | NativeOptions:
    """Return the options as one value, for the driver that they select."""
    names = NativeOptions.__slots__ if given["driver"] == NATIVE else RunOptions.__slots__
    chosen = {name: given[name] for name in names if name in given}
    if given["driver"] == NATIVE:
        return NativeOptions(consume=gather_amounts(given["amounts"]), **chosen)
    return RunOptions(**chosen)


def _with(command: Command, options: Collection[Any]) -> Command:
    """Add options, which help lists in this order."""
    for option in reversed(list(options)):
        command = option(command)
    return command


def _in(section: str, *names: str, **settings: Any) -> Any:
    return click.option(*names, cls=SectionedOption, section=section, **settings)


_THIS_MACHINE, _AWS, _NATIVE_DRIVER = "On this machine", "On AWS", "Driver native"
_FILE = (
    click.argument("classes", nargs=-1, metavar="[CLASS]..."),
    click.option("--file", "-f", type=click.Path(path_type=Path), metavar="FILE", help="Locust file to run."),
    click.option(
        "--directory",
        "-C",
        type=click.Path(path_type=Path, file_okay=False),
        default=Path(),
        metavar="DIR",
        help="Directory that FILE is relative to.  [default: the current one]",
    ),
)
_SHAPE = (
    click.option(
        "--users", type=click.IntRange(1), default=20, show_default=True, metavar="N", help="Users that call."
    ),
    click.option(
        "--duration",
        "duration_s",
        type=click.IntRange(1),
        default=60,
        show_default=True,
        metavar="SECONDS",
        help="Length of the test.",
    ),
    click.option(
        "--spawn-rate",
        type=click.FloatRange(0, min_open=True),
        default=10.0,
        show_default=True,
        metavar="N",
        help="Users to start per second.",
    ),
)
_HTML = click.option(
    "--html",
    type=click.Path(path_type=Path, dir_okay=False),
    metavar="FILE",
    help="Write the report as a page with charts.",
)
_PROCESSES = _in(
    _THIS_MACHINE,
    "--processes",
    type=click.IntRange(1, 256),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes to start. Each uses one core.",
)
_DRIVER = _in(
    _THIS_MACHINE,
    "--driver",
    type=click.Choice([LOCUST, NATIVE]),
    default=LOCUST,
    show_default=True,
    help="What calls the limiter. native needs no Locust file, and can send calls on a schedule.",
)
_ON_AWS = (
    _in(
        _AWS,
        "--workers",
        type=click.IntRange(1),
        metavar="N",
        help="Run a Fargate master with this many Lambda workers.  [default: one Lambda function]",
    ),
    _in(_AWS, "--standalone", is_flag=True, help="Run one Fargate task without workers."),
)
_CEILINGS = (
    _in(
        _AWS,
        "--max-usd",
        type=click.FloatRange(0, min_open=True),
        default=MAX_USD,
        show_default=True,
        metavar="USD",
        help="Stop the test when it has cost this much.",
    ),
    _in(
        _AWS,
        "--max-duration",
        "max_duration_s",
        type=click.IntRange(1),
        metavar="SECONDS",
        help="Stop the test after this time, including its start.",
    ),
)
_NATIVE = (
    _in(
        _NATIVE_DRIVER,
        "--entities",
        type=click.IntRange(1),
        default=10,
        show_default=True,
        metavar="N",
        help="Entities to call for.",
    ),
    _in(
        _NATIVE_DRIVER,
        "--resource",
        default="loadtest",
        show_default=True,
        metavar="NAME",
        help="Resource to call for.",
    ),
    _in(
        _NATIVE_DRIVER,
        "--consume",
        "-c",
        "amounts",
        callback=reading_each(parse_amount),
        multiple=True,
        metavar=AMOUNT_FORM,
        help="Amount that a call takes of a limit, such as rpm:1. Repeatable.",
    ),
    _in(
        _NATIVE_DRIVER,
        "--limit",
        "-l",
        "limits",
        callback=reading_each(parse_limit),
        multiple=True,
        metavar=LIMIT_FORM,
        help="Limit to use instead of the stored ones. Repeatable.",
    ),
    _in(
        _NATIVE_DRIVER,
        "--rate",
        type=click.FloatRange(0, min_open=True),
        metavar="CALLS_PER_S",
        help="Calls to send per second, on a schedule.  [default: as many as possible]",
    ),
    _in(_NATIVE_DRIVER, "--cascade", is_flag=True, help="Call for children of one parent, with cascade."),
    _in(_NATIVE_DRIVER, "--adjust", is_flag=True, help="Adjust every call when it ends."),
)
