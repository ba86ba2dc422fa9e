"""Define ``zae-limiter loadtest push``: replace the locust files and the code of a load test stack."""

from pathlib import Path

import click

from zae_limiter.cli._deploying import steps_shown
from zae_limiter.cli._help import examples
from zae_limiter.cli._options import json_option
from zae_limiter.cli._output import print_json
from zae_limiter.cli._place import StoreLocation, place_options
from zae_limiter.cli._stack_options import explained_in_flags
from zae_limiter.cli.loadtest._load_options import ALL_FLAGS, LOAD_CODES, directory_option
from zae_limiter.cli.loadtest._pushing import print_pushed, pushed_facts
from zae_limiter.loadtest.load_code import build_for, push_code, read_locust_files
from zae_limiter.loadtest.load_stack import LoadStack

PUSH = examples("zae-limiter loadtest push -n my-app -C examples/locust")


@click.command(
    short_help="Replace the Locust files and the code of workers.",
    epilog=f"{PUSH}\n\n{LOAD_CODES}",
)
@place_options
@directory_option
@json_option
def push(place: StoreLocation, directory: Path, as_json: bool) -> None:
    """Upload the locust files, and the code of workers and master if it has changed. The stack stays as it is."""
    with explained_in_flags(ALL_FLAGS), steps_shown(f"Pushing to the load test of {place.name}") as hear:
        locust_files = read_locust_files(directory)
        clients = place.region.clients()
        outputs = LoadStack(place.name, clients).outputs()
        pushed = push_code(outputs, clients, locust_files, build_for(clients, hear), hear)
    if as_json:
        print_json(pushed_facts(pushed))
    else:
        print_pushed(pushed)
