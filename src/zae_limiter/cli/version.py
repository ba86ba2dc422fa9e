"""``zae-limiter version, check, upgrade``: whether this installation and a limiter go together, and making them."""

import platform
from dataclasses import asdict
from importlib import metadata

import click

from zae_limiter._sync.upgrade import inspect
from zae_limiter.cli._deploying import steps_shown
from zae_limiter.cli._failures import FAILED
from zae_limiter.cli._help import examples, section
from zae_limiter.cli._options import json_option
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_note, working
from zae_limiter.cli._place import Target, announce, target_options
from zae_limiter.cli._upgrading import Upgraded, plan_upgrade, upgrade_limiter
from zae_limiter.core.version import SCHEMA_VERSION, Compatibility, Migrated, VersionRecord, compare

VERSION = ("zae-limiter version", "zae-limiter version --name my-app --region us-east-1")
CHECK = ("zae-limiter check --name my-app", "zae-limiter check --url sqlite:///limiter.db")
UPGRADE = ("zae-limiter upgrade --name my-app --dry-run", "zae-limiter upgrade --name my-app")
CHECK_CODES = section(
    "Exit codes",
    "0   they go together",
    "1   they do not; what to do is on stderr",
    "69  the limiter cannot be reached",
)
COLUMNS = [Column("part"), Column("here"), Column("there")]


@click.command(short_help="Show the versions here and there.", epilog=examples(*VERSION))
@target_options
@json_option
def version(target: Target, as_json: bool) -> None:
    """Show the version of this installation, and those of a limiter if you name one."""
    named = target.url is not None
    with working("Looking"):
        record = inspect(target.url).record if named else None
    if as_json:
        print_json(version_facts(record, named))
        return
    there = record or VersionRecord("none" if named else "")
    rows = [
        (
            "client",
            metadata.version("zae-limiter"),
            there.client_min_version and f"{there.client_min_version} or newer",
        ),
        ("aggregator", metadata.version("zae-limiter"), there.lambda_version or ("none" if named else "")),
        ("schema", SCHEMA_VERSION, there.schema_version),
        ("python", platform.python_version(), ""),
    ]
    shown = [(part, here, far or "") for part, here, far in rows]
    print_grid(Grid(COLUMNS, shown) if named else Grid(COLUMNS[:2], [row[:2] for row in shown]))


@click.command(
    short_help="Check that this installation goes with a limiter.", epilog=f"{examples(*CHECK)}\n\n{CHECK_CODES}"
)
@target_options
@json_option
def check(target: Target, as_json: bool) -> None:
    """Check whether this installation and a limiter go together, and say what to do where they do not."""
    announce(target)
    with working("Looking"):
        record = inspect(target.url).record
    found = compare(record or VersionRecord(SCHEMA_VERSION), metadata.version("zae-limiter"))
    advice = advice_on(found, target)
    if as_json:
        print_json({"compatible": advice is None, **asdict(found), "advice": advice, **version_facts(record, True)})
    elif advice is None:
        click.echo("They go together." if record is not None else "It says no version; this installation can use it.")
    if advice is not None:
        click.echo(f"Error: {advice}", err=True)
        raise click.exceptions.Exit(FAILED)


@click.command(short_help="Upgrade a limiter to this installation.", epilog=examples(*UPGRADE))
@target_options
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done.")
@click.option("--principal", metavar="NAME", help="Who makes the change, for the version record.")
@json_option
def upgrade(target: Target, dry_run: bool, principal: str | None, as_json: bool) -> None:
    """Bring a limiter to this installation: the template of its stack, the aggregator's code, the table's schema.

    The options of the stack stay. One that was interrupted goes on when it is called again.
    """
    announce(target)
    if dry_run:
        with working("Looking"):
            done = plan_upgrade(target)
    else:
        with steps_shown("Upgrading") as hear:
            done = upgrade_limiter(target, principal, hear)
    print_upgraded(done, dry_run, as_json)


def advice_on(found: Compatibility, target: Target) -> str | None:
    """Say what makes two that do not go together do so; None where they do."""
    if found.client_outdated:
        return "the limiter needs a newer client; install one: pip install --upgrade zae-limiter"
    if found.needs_migration:
        return f"the table has an older schema; upgrade it: zae-limiter upgrade{target.options}"
    if found.function_outdated:
        return f"the aggregator is older than this client; upgrade it: zae-limiter upgrade{target.options}"
    return None


def version_facts(record: VersionRecord | None, named: bool) -> dict[str, object]:
    """Return the versions here and there, ready for JSON."""
    here = {
        "client_version": metadata.version("zae-limiter"),
        "client_schema_version": SCHEMA_VERSION,
        "python_version": platform.python_version(),
    }
    return here | ({"limiter": None if record is None else asdict(record)} if named else {})


def print_upgraded(done: Upgraded, dry_run: bool, as_json: bool) -> None:
    """Print what was changed, or would be."""
    if as_json:
        print_json({"dry_run": dry_run, **asdict(done)})
    else:
        for line in upgraded_lines(done, dry_run):
            click.echo(line)
    if done.newer_function is not None:
        print_note(f"The aggregator is newer ({done.newer_function}) than this installation, and stays as it is.")
    for one in done.migrations:
        for place in one.damaged:
            print_note(f"Could not be read, and is left where it is: {place}")


def upgraded_lines(done: Upgraded, dry_run: bool) -> list[str]:
    """Say what was changed, or would be, a line for each."""
    would = "would be" if dry_run else "was"
    lines = ["The stack was brought to the newest template."] if done.stack_changed else []
    lines += [f"The aggregator's code {would} replaced."] if done.code_changed else []
    lines += [migration_line(one) for one in done.migrations]
    return lines or ["Everything is up to date."]


def migration_line(one: Migrated) -> str:
    """Say what a migration did, or would do."""
    would = "would be" if one.dry_run else "were"
    more = f", {one.superseded} {would} superseded" if one.superseded else ""
    return f"Schema {one.target} ({one.summary}): {one.moved} {would} moved{more}."
