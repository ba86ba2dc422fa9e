"""Define ``zae-limiter audit``: show who changed what, and when."""

from collections.abc import Sequence
from functools import wraps
from json import dumps
from shlex import quote
from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli._groups import CommandGroup
from zae_limiter.cli._help import examples, help_of, json_shape
from zae_limiter.cli._hints import calling
from zae_limiter.cli._limit_syntax import write_limit
from zae_limiter.cli._options import PageOptions, page_options, view_options
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_note, working
from zae_limiter.cli._place import Command, StoreChoice
from zae_limiter.cli._store import opened
from zae_limiter.core.audit import SYSTEM_AUDIT_ID, AuditEvent, namespace_audit_id, resource_audit_id
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit

if TYPE_CHECKING:
    from zae_limiter._sync.limiter.limiter import SyncRateLimiter

LISTING = (
    "zae-limiter audit list",
    "zae-limiter audit list user-123",
    "zae-limiter audit list --of-resource gpt-4",
    "zae-limiter audit list --namespace tenant-alpha --limit 20",
    "zae-limiter audit list --of-namespace tenant-beta --json | jq -r '.events[].principal'",
)
SHAPE = json_shape(
    "{events: [{event_id, timestamp, action, entity_id, principal, resource,",
    "  details}], next_cursor: null after the last page}",
)
COLUMNS = [
    Column("time (UTC)", is_whole=True),
    Column("change", is_whole=True),
    Column("by"),
    Column("resource"),
    Column("details"),
]
SUBJECT_COLUMN = Column("of")
_READ_AT_ONCE = 1000


@dataclass(frozen=True, slots=True)
class Subject:
    """The subject of the changes: the id of their events, None for the whole namespace, and its words."""

    audit_id: str | None
    words: str


def subject_options(command: Command) -> Command:
    """Add the options that select a subject; the command takes it as ``subject``."""

    @click.argument("entity", metavar="[ENTITY]", required=False)
    @click.option("--entity-id", "-e", metavar="ENTITY", help="Show changes of an entity; the same as ENTITY.")
    @click.option("--system", is_flag=True, help="Show changes of the system defaults.")
    @click.option("--of-resource", metavar="RESOURCE", help="Show changes of a resource's limits.")
    @click.option("--of-namespace", metavar="NAME", help="Show changes of a namespace, even if it was purged.")
    @wraps(command)
    def with_subject(
        *,
        entity: str | None,
        entity_id: str | None,
        system: bool,
        of_resource: str | None,
        of_namespace: str | None,
        **others: Any,
    ) -> None:
        named = {
            "": entity,
            "--entity-id": entity_id,
            "--system": SYSTEM_AUDIT_ID if system else None,
            "--of-resource": None if of_resource is None else resource_audit_id(of_resource),
            "--of-namespace": None if of_namespace is None else namespace_audit_id(of_namespace),
        }
        given = {option: audit_id for option, audit_id in named.items() if audit_id is not None}
        if len(given) > 1:
            only = "pass only one of ENTITY, --entity-id, --system, --of-resource and --of-namespace"
            raise click.UsageError(only, click.get_current_context())
        names = (entity, entity_id, of_resource, of_namespace)
        words = [*given, *(quote(one) for one in names if one is not None)]
        subject = Subject(next(iter(given.values()), None), "".join(f" {word}" for word in words if word))
        command(subject=subject, **others)

    return with_subject


@click.group(cls=CommandGroup, short_help="Show who changed what, and when.", epilog=examples(*LISTING[:2]))
def audit() -> None:
    """Show who changed what, and when. Events are kept for 90 days, or as configured for the stack."""


@audit.command("list", short_help="List changes, newest first.", epilog=help_of(examples(*LISTING), SHAPE))
@subject_options
@page_options("--start-event-id")
@view_options
def list_events(subject: Subject, page: PageOptions, as_json: bool, store: StoreChoice) -> None:
    """List all changes in a namespace, or those of an entity and its limits, newest first."""
    with opened(store) as limiter, working("Reading the audit log"):
        # Read one more than is shown, to know whether there is another page.
        found = read_events(limiter, subject.audit_id, page.cursor, None if page.everything else page.size + 1)
    shown = found if page.everything else found[: page.size]
    cursor = shown[-1].event_id if len(found) > len(shown) else None
    if as_json:
        print_json({"events": [event.to_dict() for event in shown], "next_cursor": cursor})
        return
    if shown:
        print_events(shown, with_subject=subject.audit_id is None)
    else:
        print_note("No changes are recorded.")
    if cursor is not None:
        listing = f"audit list{subject.words} --limit {page.size} --cursor {cursor}"
        print_note(f"There are older changes; pass --all, or continue with: {calling(listing)}")


def read_events(
    limiter: "SyncRateLimiter", audit_id: str | None, cursor: str | None, wanted: int | None
) -> list[AuditEvent]:
    """Return the events of an id after a cursor: at most ``wanted``, or all if that is None."""
    if wanted is not None:
        return limiter.get_audit_events(audit_id, wanted, cursor)
    found: list[AuditEvent] = []
    while True:
        more = limiter.get_audit_events(audit_id, _READ_AT_ONCE, cursor)
        found += more
        if len(more) < _READ_AT_ONCE:
            return found
        cursor = more[-1].event_id


def print_events(events: Sequence[AuditEvent], *, with_subject: bool) -> None:
    """Print events as a table, with the id that each belongs to if they have several."""
    rows = [event_row(event) for event in events]
    if not with_subject:
        print_grid(Grid(COLUMNS, rows))
        return
    subjects = [event.entity_id for event in events]
    shown = [(*row[:2], subject, *row[2:]) for row, subject in zip(rows, subjects, strict=True)]
    print_grid(Grid([*COLUMNS[:2], SUBJECT_COLUMN, *COLUMNS[2:]], shown))


def event_row(event: AuditEvent) -> Sequence[str]:
    """Return an event as a row."""
    time = event.timestamp.partition(".")[0].replace("T", " ").removesuffix("Z")
    change = str(event.action).replace("_", " ")
    return (time, change, event.principal or "", event.resource or "", in_words(event.details))


def in_words(details: dict[str, Any]) -> str:
    """Format the details of a change; limits have the form of the command line."""
    words = []
    for key, value in details.items():
        if key == "limits" and isinstance(value, list):
            words += [limit_words(one) for one in value]
        elif value is not None:
            words.append(f"{key}={value if isinstance(value, str) else dumps(value)}")
    return " ".join(words)


def limit_words(stored: Any) -> str:
    """Format a limit of an event; an unknown format of a newer version is printed as JSON."""
    try:
        return write_limit(Limit.from_dict(stored))
    except ValidationError:
        return dumps(stored)
