"""Define ``zae-limiter version, check, upgrade``: compare this installation with a limiter, and upgrade it."""

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
    "0   they are compatible",
    "1   they are not; stderr says what to do",
    "69  the limiter is unavailable",
)
COLUMNS = [Column("part"), Column("installed"), Column("limiter")]


@click.command(short_help="Show client, table and aggregator versions.", epilog=examples(*VERSION))
@target_options
@json_option
def version(target: Target, as_json: bool) -> None:
    """Show the versions of this installation, and those of a limiter if you select one."""
    named = target.url is not None
    with working("Reading the versions"):
        record = inspect(target.url).record if named else None
    if as_json:
        print_json(version_facts(record, named))
        return
    there = record or VersionRecord("none" if named else "")
    rows = [
        (
            "client",
            metadata.version("zae-limiter"),
            there.client_min_version and f"{there.client_min_version} or later",
        ),
        ("aggregator", metadata.version("zae-limiter"), there.lambda_version or ("none" if named else "")),
        ("schema", SCHEMA_VERSION, there.schema_version),
        ("python", platform.python_version(), ""),
    ]
    shown = [(part, here, far or "") for part, here, far in rows]
    print_grid(Grid(COLUMNS, shown) if named else Grid(COLUMNS[:2], [row[:2] for row in shown]))


@click.command(
    short_help="Check if this version is compatible with a limiter.", epilog=f"{examples(*CHECK)}\n\n{CHECK_CODES}"
)
@target_options
@json_option
def check(target: Target, as_json: bool) -> None:
    """Check whether this installation is compatible with a limiter, and print what to do if not."""
    announce(target)
    with working("Reading the versions"):
        record = inspect(target.url).record
    found = compare(record or VersionRecord(SCHEMA_VERSION), metadata.version("zae-limiter"))
    advice = advice_on(found, target)
    if as_json:
        print_json({"compatible": advice is None, **asdict(found), "advice": advice, **version_facts(record, True)})
    elif advice is None:
        click.echo("Compatible." if record is not None else "Compatible; the limiter has no version record.")
    if advice is not None:
        click.echo(f"Error: {advice}", err=True)
        raise click.exceptions.Exit(FAILED)


@click.command(short_help="Upgrade a limiter to this version.", epilog=examples(*UPGRADE))
@target_options
@click.option("--dry-run", is_flag=True, help="Show what would be done, but change nothing.")
@click.option("--principal", metavar="NAME", help="Author of the change, for the version record.")
@json_option
def upgrade(target: Target, dry_run: bool, principal: str | None, as_json: bool) -> None:
    """Upgrade a limiter to this version: its stack template, its aggregator's code, and its table's schema.

    The options of the stack stay. Run it again to finish an interrupted upgrade.
    """
    announce(target)
    if dry_run:
        with working("Planning the upgrade"):
            done = plan_upgrade(target)
    else:
        with steps_shown("Upgrading") as hear:
            done = upgrade_limiter(target, principal, hear)
    print_upgraded(done, dry_run, as_json)


def advice_on(found: Compatibility, target: Target) -> str | None:
    """Return how to make this installation and a limiter compatible, None if they are."""
    if found.client_outdated:
        return "the limiter requires a newer client; install it: pip install --upgrade zae-limiter"
    if found.needs_migration:
        return f"the table has an older schema; upgrade it: zae-limiter upgrade{target.options}"
    if found.function_outdated:
        return f"the aggregator is older than this client; upgrade it: zae-limiter upgrade{target.options}"
    return None


def version_facts(record: VersionRecord | None, named: bool) -> dict[str, object]:
    """Return the versions of this installation and of a limiter, ready for JSON."""
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
        print_note(f"The aggregator ({done.newer_function}) is newer than this installation and was not changed.")
    for one in done.migrations:
        for place in one.damaged:
            print_note(f"Could not be read and was not changed: {place}")


def upgraded_lines(done: Upgraded, dry_run: bool) -> list[str]:
    """Return what was changed, or would be, one line per change."""
    would = "would be" if dry_run else "was"
    lines = ["The stack was updated to the newest template."] if done.stack_changed else []
    lines += [f"The aggregator's code {would} replaced."] if done.code_changed else []
    lines += [migration_line(one) for one in done.migrations]
    return lines or ["Everything is up to date."]


def migration_line(one: Migrated) -> str:
    """Return what a migration did, or would do."""
    would = "would be" if one.dry_run else "were"
    more = f", {one.superseded} {would} superseded" if one.superseded else ""
    return f"Schema {one.target} ({one.summary}): {one.moved} {would} moved{more}."
