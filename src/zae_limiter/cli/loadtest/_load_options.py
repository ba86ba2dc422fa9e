"""Define the options of ``loadtest deploy``, and those that its neighbours share."""

from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any

import click

from zae_limiter.cli._help import section
from zae_limiter.cli._place import Command
from zae_limiter.cli._stack_options import FLAGS, Flag, flag_option
from zae_limiter.loadtest.load_options import CAPACITY_PROVIDERS, LoadOptions

NETWORK, WORKERS, MASTER = "Network", "Workers", "Master"
LOAD_FLAGS = (
    Flag("--vpc-id", NETWORK, "VPC of master and workers. Without it, you are asked.", "VPC"),
    Flag("--subnet-ids", NETWORK, "Subnets in it, separated by commas.", "SUBNETS"),
    Flag(
        "--dynamodb-endpoint/--no-dynamodb-endpoint",
        NETWORK,
        "Create free gateway endpoints for DynamoDB and S3, unless the VPC has them.",
    ),
    Flag(
        "--ssm-endpoint/--no-ssm-endpoint",
        NETWORK,
        "Create an endpoint for the tunnel of `loadtest ui`; it is billed by the hour.",
    ),
    Flag("--max-workers", WORKERS, "Maximum number of workers.", "N"),
    Flag("--users-per-worker", WORKERS, "Users that one worker simulates.", "N"),
    Flag("--min-workers", WORKERS, "Minimum number of workers.", "N"),
    Flag("--lambda-timeout", WORKERS, "Time limit of a worker, at most 15.", "MINUTES", named="lambda_timeout_minutes"),
    Flag("--lambda-memory", WORKERS, "Memory of a worker; 1769 is one CPU.", "MB", named="lambda_memory_mb"),
    Flag("--capacity-provider", MASTER, f"Capacity of the master: {' or '.join(CAPACITY_PROVIDERS)}.", "NAME"),
    Flag(
        "--build-image/--no-build-image",
        MASTER,
        "Build the image with docker and push it to ECR, for subnets without a route to the internet.",
    ),
)
ALL_FLAGS = (*LOAD_FLAGS, *FLAGS)
"""Messages may also name an option of the limiter's stack."""

LOAD_CODES = section(
    "Exit codes",
    "0   done",
    "2   an option is invalid; nothing was changed",
    "69  AWS refused or failed, or a package cannot be built; stderr has the reason",
)

_DEFAULTS = {one.name: one.default for one in fields(LoadOptions)}
_REQUIRED = ("vpc_id", "subnet_ids")


def load_options(command: Command) -> Command:
    """Add an option for each field of ``LoadOptions``; the command takes those that are given as ``given``."""

    @wraps(command)
    def with_options(**others: Any) -> None:
        values = {flag.field: others.pop(flag.field) for flag in LOAD_FLAGS}
        given = {field: value for field, value in values.items() if value is not None}
        if "subnet_ids" in given:
            given["subnet_ids"] = tuple(one.strip() for one in given["subnet_ids"].split(",") if one.strip())
            if "vpc_id" not in given:
                raise click.UsageError("--subnet-ids requires --vpc-id", click.get_current_context())
        command(given=given, **others)

    added: Command = with_options
    for flag in reversed(LOAD_FLAGS):
        added = flag_option(flag, None if flag.field in _REQUIRED else _DEFAULTS[flag.field])(added)
    return added


def directory_option(command: Command) -> Command:
    """Add ``-C`` as ``directory``."""
    return click.option(
        "--directory",
        "-C",
        required=True,
        type=click.Path(exists=True, file_okay=False, path_type=Path),
        metavar="DIR",
        help="Folder of the locust files. Its Python files and data are uploaded.",
    )(command)
