"""Define ``zae-limiter loadtest list``: list the load test stacks of a region."""

from typing import Any

import click

from zae_limiter.cli._help import examples
from zae_limiter.cli._options import json_option
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_note, working
from zae_limiter.cli._place import Region, region_options
from zae_limiter.loadtest import load_stack
from zae_limiter.loadtest.load_stack import LoadTestInfo

LISTED = [Column(title) for title in ("name", "stack", "status", "running", "version", "created")]


@click.command(
    "list",
    short_help="List the load tests of a region.",
    epilog=examples("zae-limiter loadtest list --region us-east-1", "zae-limiter loadtest list --json"),
)
@region_options
@json_option
def list_load_tests(region: Region, as_json: bool) -> None:
    """List the load tests that are deployed in a region, and how many masters run."""
    clients = region.clients()
    with working("Listing the load tests"):
        found = load_stack.list_load_tests(clients)
    print_load_tests(found, clients.region, as_json)


def print_load_tests(found: list[LoadTestInfo], region: str, as_json: bool) -> None:
    """Print the load tests of a region."""
    if as_json:
        print_json([load_test_facts(one) for one in found])
        return
    if not found:
        advice = "zae-limiter loadtest deploy -n my-app -C examples/locust"
        print_note(f"There is no load test in {region}. Deploy one: {advice}")
        return
    print_grid(Grid(LISTED, [load_test_row(one) for one in found]))


def load_test_row(one: LoadTestInfo) -> tuple[str, ...]:
    """Return the cells of a load test."""
    running = "?" if one.running_masters is None else str(one.running_masters)
    stack = one.stack
    created = stack.creation_time[:10]
    return (stack.user_name, stack.stack_name, stack.stack_status, running, stack.version or "?", created)


def load_test_facts(one: LoadTestInfo) -> dict[str, Any]:
    """Return the data of a load test, ready for JSON."""
    return {
        "name": one.stack.user_name,
        "stack": one.stack.stack_name,
        "region": one.stack.region,
        "stack_status": one.stack.stack_status,
        "running_masters": one.running_masters,
        "version": one.stack.version,
        "creation_time": one.stack.creation_time,
    }
