"""Define ``zae-limiter deploy, delete, status, list``: manage stacks of limiters.

The commands import the AWS clients themselves, because their help does not need them.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import click

from zae_limiter.cli._confirm import require_consent
from zae_limiter.cli._failures import UNAVAILABLE
from zae_limiter.cli._files import in_bytes
from zae_limiter.cli._help import SectionedCommand, examples, section
from zae_limiter.cli._options import json_option, wait_option, yes_option
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_note, working
from zae_limiter.cli._place import (
    Region,
    StoreLocation,
    Target,
    announce,
    place_options,
    region_options,
    require_database,
    target_options,
)
from zae_limiter.cli._stack_options import explained_in_flags, shown_option, shown_value, stack_options
from zae_limiter.core.lazy_dataclass import asdict
from zae_limiter.core.location import selecting_options
from zae_limiter.core.names import check_stack_name
from zae_limiter.infra.given_options import GivenOptions

if TYPE_CHECKING:
    from zae_limiter.cli._deploying import Deployed
    from zae_limiter.cli._status import DeployedStatus
    from zae_limiter.infra.discovery import LimiterInfo
    from zae_limiter.infra.stack import Stack
    from zae_limiter.infra.stack_state import Deletion

DEPLOY = (
    "zae-limiter deploy --name my-app --region us-east-1",
    "zae-limiter deploy --name my-app --endpoint-url http://localhost:4566 --region us-east-1",
    "zae-limiter deploy --name my-app --no-aggregator",
    "zae-limiter deploy --name my-app --lambda-memory 512",
    "zae-limiter deploy --name my-app --reset-options",
    'zae-limiter deploy --name my-app --role-name-format "pb-{}-PowerUser" \\',
    "  --permission-boundary arn:aws:iam::aws:policy/PowerUserAccess",
)
DELETE = ("zae-limiter delete --name my-app", "zae-limiter delete --name my-app --yes --no-wait")
STACK_CODES = section(
    "Exit codes",
    "0   done",
    "2   an option is invalid; nothing was changed",
    "69  AWS refused or failed; stderr has the reason",
)
DELETE_CODES = section(
    "Exit codes",
    "0   the limiter is deleted",
    "1   you declined",
    "2   there is no terminal; pass --yes",
    "69  AWS refused or failed; stderr has the reason",
)
STATUS_CODES = section(
    "Exit codes",
    "0   the table answers",
    "1   there is no database at the path",
    "69  the table does not answer or does not exist",
)
LISTED = [Column(title) for title in ("name", "status", "version", "schema", "created")]


@click.command(
    cls=SectionedCommand, short_help="Deploy a limiter to AWS.", epilog=f"{examples(*DEPLOY)}\n\n{STACK_CODES}"
)
@place_options
@wait_option("Wait until the stack is complete. With --no-wait, finish it later: zae-limiter upgrade.")
@stack_options
@json_option
def deploy(place: StoreLocation, given: GivenOptions, wait: bool, as_json: bool) -> None:
    """Deploy a limiter to AWS: its table, its aggregator, alarms and policies, as one CloudFormation stack.

    An existing stack is updated to these options and this version. It keeps the options that you
    omit; a new stack has their default. The changes are printed.
    """
    from zae_limiter.cli._deploying import begin_deployment, deploy_limiter, steps_shown

    check_stack_name(place.name, "name")
    with explained_in_flags(), steps_shown(f"Deploying {place.name}") as hear:
        done = deploy_limiter(place, given, hear) if wait else begin_deployment(place, given, hear)
    print_deployed(place.resolved(), done, as_json)


@click.command(
    short_help="Delete a limiter and all its data.",
    epilog=f"{examples(*DELETE)}\n\n{DELETE_CODES}",
)
@place_options
@yes_option
@wait_option("Wait until the stack is gone.")
@click.option("--delete-archive", is_flag=True, help="Also delete the bucket of archived audit events.")
@json_option
def delete(place: StoreLocation, yes: bool, wait: bool, delete_archive: bool, as_json: bool) -> None:
    """Delete the stack of a limiter with its table and all data. Archived audit events are kept."""
    from zae_limiter.cli._deploying import steps_shown
    from zae_limiter.infra.stack import Stack

    if delete_archive and not wait:
        raise click.UsageError("--delete-archive needs --wait, because the archive is deleted after the stack")
    stack = Stack(place.name, place.region.clients())
    if not yes and stack.describe() is not None:
        require_consent(what_is_lost(place, stack))
    with explained_in_flags(), steps_shown(f"Deleting {place.name}") as hear:
        done = stack.delete(keep_archive=not delete_archive, listener=hear) if wait else stack.begin_deletion()
    print_deleted(place, done, wait, as_json)


@click.command(
    short_help="Show the status of a limiter.",
    epilog=f"{examples('zae-limiter status --name my-app', 'zae-limiter status -n my-app --json')}\n\n{STATUS_CODES}",
)
@target_options
@json_option
def status(target: Target, as_json: bool) -> None:
    """Show the status of a limiter: its health, versions and size, and the outputs of its stack."""
    from zae_limiter.cli._status import look

    require_database(target)
    announce(target)
    with working("Reading the status"):
        deployed = look(target)
    print_status(deployed, as_json)
    if not deployed.status.available:
        raise click.exceptions.Exit(UNAVAILABLE)


@click.command(
    "list",
    short_help="List the limiters of a region.",
    epilog=examples("zae-limiter list --region us-east-1", "zae-limiter list --json"),
)
@region_options
@json_option
def list_deployed(region: Region, as_json: bool) -> None:
    """List the limiters that are deployed in a region."""
    from zae_limiter.infra.discovery import list_limiters

    clients = region.clients()
    with working("Listing the limiters"):
        found = list_limiters(clients)
    print_limiters(found, clients.region, as_json)


def what_is_lost(place: StoreLocation, stack: "Stack") -> str:
    """Return the question before a limiter is deleted, with the number of its items."""
    facts = stack.table_facts()
    holding = "" if facts is None else f" and the {facts.item_count} items in its table"
    return f"Delete {place.name} in {place.resolved().region.name}{holding}?"


def print_deployed(place: StoreLocation, done: "Deployed", as_json: bool) -> None:
    """Print the changed options and the outputs of the stack, and how to use or finish the limiter."""
    if as_json:
        print_json(deployed_facts(place, done))
    else:
        for change in done.changes or ():
            old, new = shown_value(change.old), shown_value(change.new)
            click.echo(f"Changed {shown_option(change.option)}: {old} -> {new}")
        if done.state.outputs:
            print_grid(outputs_grid(done.state.outputs))
    if done.changes == []:
        print_note("No option was changed.")
    if done.dropped_aggregator:
        print_note("The aggregator is off, because --no-iam leaves it without a role; pass --aggregator-role-arn.")
    print_note(next_command(place, done))


def deployed_facts(place: StoreLocation, done: "Deployed") -> dict[str, Any]:
    """Return the data of a deployment, ready for JSON."""
    changes = [{"option": one.option, "old": _plain(one.old), "new": _plain(one.new)} for one in done.changes or ()]
    return {
        "name": place.name,
        "stack_status": done.state.status,
        "url": place.url,
        "outputs": dict(done.state.outputs),
        "changes": changes,
        "is_complete": done.is_complete,
    }


def next_command(place: StoreLocation, done: "Deployed") -> str:
    """Return how to use a deployed limiter, or how to finish one that is still being deployed."""
    options = selecting_options(place.url)
    if done.is_complete:
        return f"{place.name} is deployed. To use it in this shell: export ZAE_LIMITER_URL='{place.url}'"
    return (
        f"The stack of {place.name} is being deployed. See its state: zae-limiter status{options}. "
        f"When it is complete, add the code and the data of the limiter: zae-limiter upgrade{options}"
    )


def print_deleted(place: StoreLocation, done: "Deletion", waited: bool, as_json: bool) -> None:
    """Print what was deleted, or is being deleted, and what was kept."""
    if as_json:
        facts = {"deleted": done.existed, "archive_kept": done.archive_kept}
        print_json(facts | {"is_complete": waited or not done.existed})
        return
    if not done.existed:
        click.echo(f"There is no limiter {place.name!r}; nothing was deleted.")
        return
    click.echo(f"Deleted {place.name}." if waited else f"{place.name} is being deleted.")
    if done.archive_kept is not None:
        print_note(f"Its archived audit events are kept in the bucket {done.archive_kept}.")


def print_status(deployed: "DeployedStatus", as_json: bool) -> None:
    """Print the status of a limiter."""
    found = deployed.status
    if as_json:
        facts = {"health": deployed.health, "store": deployed.store, **asdict(found)}
        print_json(facts | {"outputs": dict(deployed.outputs)})
        return
    rows = [(title, text) for title, text in status_rows(deployed) if text is not None]
    print_grid(Grid([Column("limiter"), Column("")], rows))
    if deployed.outputs:
        click.echo()
        print_grid(outputs_grid(deployed.outputs))
    if deployed.unknown is not None:
        print_note(f"Its stack is unknown: {deployed.unknown}")


def status_rows(deployed: "DeployedStatus") -> list[tuple[str, str | None]]:
    """Return the rows of a status by title; None for a row that does not apply."""
    found = deployed.status
    items = None
    if found.table_item_count is not None:
        size = "" if found.table_size_bytes is None else f", {in_bytes(found.table_size_bytes)}"
        items = f"{found.table_item_count:,}{size}{' (counted every 6 hours)' if found.table_status else ''}"
    log = None
    if found.log_size_bytes is not None:
        held_back = ", held back by another program that keeps a read transaction open" if found.log_held_back else ""
        log = f"{in_bytes(found.log_size_bytes)}{held_back}"
    aggregator = found.lambda_version or ("of unknown version" if found.aggregator_enabled else "none")
    return [
        ("name", found.name),
        ("store", deployed.store),
        ("health", deployed.health),
        ("region", found.region),
        ("latency", None if found.latency_ms is None else in_milliseconds(found.latency_ms)),
        ("stack", found.stack_status),
        ("table", found.table_status),
        ("items", items),
        ("log", log),
        ("client", found.client_version),
        ("aggregator", None if found.name is None else aggregator),
        ("schema", found.schema_version or "not recorded"),
    ]


def in_milliseconds(latency_ms: float) -> str:
    """Format a latency with its significant digits: ``12.3 ms``, ``0.04 ms``."""
    return f"{latency_ms:.1f} ms" if latency_ms >= 1 else f"{latency_ms:.2f} ms"


def print_limiters(found: "list[LimiterInfo]", region: str, as_json: bool) -> None:
    """Print the limiters of a region."""
    if as_json:
        print_json([limiter_facts(one) for one in found])
        return
    if not found:
        print_note(f"There is no limiter in {region}. Deploy one: zae-limiter deploy --name my-app --region {region}")
        return
    rows = [
        (one.user_name, one.stack_status, one.version or "?", one.schema_version or "?", one.creation_time[:10])
        for one in found
    ]
    print_grid(Grid(LISTED, rows))


def limiter_facts(one: "LimiterInfo") -> dict[str, Any]:
    """Return the data of a limiter, ready for JSON."""
    return asdict(one) | {
        "is_healthy": one.is_healthy,
        "is_in_progress": one.is_in_progress,
        "is_failed": one.is_failed,
    }


def _plain(value: object) -> object:
    """Return the value of an option, ready for JSON."""
    return dict(value) if isinstance(value, Mapping) else value


def outputs_grid(outputs: Mapping[str, str]) -> Grid:
    """Return the outputs of a stack as a table."""
    return Grid([Column("output"), Column("value")], sorted(outputs.items()))
