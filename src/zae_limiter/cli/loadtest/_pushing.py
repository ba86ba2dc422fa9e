"""Print what was uploaded to a load test stack."""

from typing import Any

import click

from zae_limiter.cli._output import print_note
from zae_limiter.loadtest.load_code import PushedCode
from zae_limiter.loadtest.package import in_megabytes


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
