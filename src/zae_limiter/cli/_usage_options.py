"""Define the options of ``zae-limiter usage``: the filters, the paging, and the output format."""

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, Literal

import click

from zae_limiter.cli._place import Command
from zae_limiter.cli._times import TIME_FORMS, parse_time
from zae_limiter.clock import SystemClock
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.names import ALL_RESOURCES
from zae_limiter.core.timestamp import iso_from_ms, ms_from_iso
from zae_limiter.core.usage import WINDOW_TYPES, window_at

Form = Literal["table", "plot", "csv", "json", "html"]

ALL_WINDOWS = "all"
WINDOWS = "Length of the usage windows."
RESOURCES = f"Resource whose usage to show; {ALL_RESOURCES} means limits across resources. Default: all."
PAGE = 100
LARGEST_PAGE = 10_000
_CURSOR = ("window", "entity_id", "resource")


@dataclass(frozen=True, slots=True)
class Asked:
    """The filters of a usage command. Times are ISO 8601 and select the windows that contain them."""

    entity_id: str | None
    resource: str | None
    window: str
    start_time: str | None
    end_time: str | None

    @property
    def window_type(self) -> str | None:
        """The window type, None for all."""
        return None if self.window == ALL_WINDOWS else self.window

    @property
    def whose(self) -> str:
        """The entity and the resource in words, empty for the whole namespace."""
        return " · ".join(name for name in (self.entity_id, self.resource) if name is not None)

    @property
    def filters(self) -> dict[str, str | None]:
        """The filters, as arguments of the library."""
        times = {"start_time": self.start_time, "end_time": self.end_time}
        return {"entity_id": self.entity_id, "resource": self.resource, "window_type": self.window_type, **times}


@dataclass(frozen=True, slots=True)
class Paging:
    """How many snapshots to show, None for the default of the output format, and where to start."""

    limit: int | None
    everything: bool
    start: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Shape:
    """The output format; a page is written to a file."""

    form: Form
    page: Path | None = None
    may_replace: bool = False


def asked_options(*, all_windows: bool) -> Callable[[Command], Command]:
    """Add the filters; the command takes them as ``asked``."""
    kinds = [*WINDOW_TYPES, ALL_WINDOWS] if all_windows else list(WINDOW_TYPES)

    def add(command: Command) -> Command:
        @click.option(
            "--entity",
            "--entity-id",
            "-e",
            "entity_id",
            metavar="ENTITY",
            help="Entity whose usage to show. Default: all.",
        )
        @click.option("--resource", "-r", metavar="RESOURCE", help=RESOURCES)
        @click.option("--window", "-w", type=click.Choice(kinds), default="hourly", show_default=True, help=WINDOWS)
        @click.option("--start", metavar="TIME", help=f"First window: {TIME_FORMS}, in UTC.")
        @click.option("--end", metavar="TIME", help="Last window, inclusive; a date is the whole day.")
        @wraps(command)
        def with_asked(**options: Any) -> None:
            names = ("entity_id", "resource", "window", "start", "end")
            asked = asked_of(**{name: options.pop(name) for name in names})
            command(asked=asked, **options)

        return with_asked

    return add


def asked_of(entity_id: str | None, resource: str | None, window: str, start: str | None, end: str | None) -> Asked:
    """Parse the filters.

    Raises:
        click.UsageError: A time is invalid, or the end is before the start.
    """
    context = click.get_current_context(silent=True)
    now_ms = SystemClock().now_ms()
    try:
        first_ms = None if start is None else parse_time(start, now_ms).first_ms
        last_ms = None if end is None else parse_time(end, now_ms).last_ms
    except ValidationError as error:
        option = "--start" if error.value == start else "--end"
        raise click.BadParameter(f"{error.value!r}: {error.reason}", context, param_hint=option) from error
    if first_ms is not None and last_ms is not None and first_ms > last_ms:
        raise click.UsageError(f"--start {start!r} is after --end {end!r}", context)
    kind = WINDOW_TYPES[0] if window == ALL_WINDOWS else window
    # A window that contains the start time begins before it.
    begins_ms = None if first_ms is None else ms_from_iso(window_at(kind, first_ms).start)
    times = [None if at_ms is None else iso_from_ms(at_ms) for at_ms in (begins_ms, last_ms)]
    return Asked(entity_id, resource, window, times[0], times[1])


def paging_options(command: Command) -> Command:
    """Add ``--limit``, ``--all`` and ``--cursor``; the command takes them as ``paging``."""

    @click.option(
        "--limit", type=click.IntRange(min=1), metavar="N", help=f"Maximum number of snapshots; {PAGE} in a table."
    )
    @click.option("--all", "everything", is_flag=True, help="Show all; --plot and --html always do.")
    @click.option(
        "--cursor",
        "token",
        metavar="CURSOR",
        help="Continue after the cursor of an earlier page, with the same filters.",
    )
    @wraps(command)
    def with_paging(*, limit: int | None, everything: bool, token: str | None, **others: Any) -> None:
        if everything and limit is not None:
            raise click.UsageError("pass --limit or --all, not both", click.get_current_context(silent=True))
        command(paging=Paging(limit, everything, None if token is None else _key_of(token)), **others)

    return with_paging


def shape_options(command: Command) -> Command:
    """Add ``--plot``, ``--csv``, ``--json``, ``--html`` and ``--yes``; the command takes them as ``shape``."""

    @click.option("--plot", is_flag=True, help="Draw a chart for each limit; requires the extra plot.")
    @click.option("--csv", is_flag=True, help="Print comma-separated values.")
    @click.option("--json", is_flag=True, help="Print JSON.")
    @click.option(
        "--html",
        "page",
        metavar="FILE",
        type=click.Path(dir_okay=False, path_type=Path),
        help="Write a page with charts. An older page is replaced, any other file only with --yes.",
    )
    @click.option("--yes", "-y", is_flag=True, help="Replace any existing file at --html.")
    @wraps(command)
    def with_shape(**options: Any) -> None:
        forms = {name: options.pop(name) for name in ("plot", "csv", "json", "page")}
        command(shape=_shape_of(forms, options.pop("yes")), **options)

    return with_shape


def token_of(key: Mapping[str, str]) -> str:
    """Write the start of the next page as one word: the window, the entity and the resource of the last row."""
    return ",".join(key[name] for name in _CURSOR)


def _key_of(token: str) -> Mapping[str, str]:
    # Neither a window nor a resource contains a comma.
    window, _, rest = token.partition(",")
    entity_id, _, resource = rest.rpartition(",")
    return dict(zip(_CURSOR, (window, entity_id, resource), strict=True))


def _shape_of(forms: Mapping[str, Any], may_replace: bool) -> Shape:
    chosen = [name for name, given in forms.items() if given]
    if len(chosen) > 1:
        given = ", ".join("--html" if name == "page" else f"--{name}" for name in chosen)
        raise click.UsageError(f"choose one of {given}", click.get_current_context(silent=True))
    if forms["page"]:
        return Shape("html", forms["page"], may_replace)
    form: Form = chosen[0] if chosen else "table"  # type: ignore[assignment]  # the options are named as the forms
    return Shape(form)
