"""Define ``zae-limiter loadtest push``: replace the locust files and the code of a load test stack."""

from pathlib import Path
from typing import Any

import click

from zae_limiter.cli._deploying import steps_shown
from zae_limiter.cli._help import examples
from zae_limiter.cli._options import json_option
from zae_limiter.cli._output import print_json, print_note
from zae_limiter.cli._place import StoreLocation, place_options
from zae_limiter.cli._stack_options import explained_in_flags
from zae_limiter.cli.loadtest._load_options import ALL_FLAGS, LOAD_CODES, directory_option
from zae_limiter.loadtest.load_code import PushedCode, build_for, push_code, read_locust_files
from zae_limiter.loadtest.load_stack import LoadStack
from zae_limiter.loadtest.package import in_megabytes

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


def print_pushed(pushed: PushedCode) -> None:
    """Print which code was uploaded, and the sizes of the package."""
    changes = {
        "locust files": pushed.locust_files_changed,
        "workers": pushed.worker_changed,
        "master": pushed.wheels_changed,
    }
    uploaded = [name for name, changed in changes.items() if changed]
    click.echo(f"Uploaded: {', '.join(uploaded)}." if uploaded else "The code has not changed; nothing was uploaded.")
    sizes = f"{in_megabytes(pushed.worker_bytes)}, {in_megabytes(pushed.worker_unzipped_bytes)} unzipped"
    print_note(f"The package of the workers has {sizes}; there are {len(pushed.locust_files)} locust files.")


def pushed_facts(pushed: PushedCode) -> dict[str, Any]:
    """Return the data of an upload, ready for JSON."""
    return {
        "locust_files": list(pushed.locust_files),
        "locust_files_changed": pushed.locust_files_changed,
        "worker_changed": pushed.worker_changed,
        "master_changed": pushed.wheels_changed,
        "worker_bytes": pushed.worker_bytes,
        "worker_unzipped_bytes": pushed.worker_unzipped_bytes,
    }
