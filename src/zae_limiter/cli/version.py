"""Define ``zae-limiter version, check, upgrade``: compare this installation with a limiter, and upgrade it."""

import platform
from importlib import metadata

import click

from zae_limiter._sync.upgrade import inspect
from zae_limiter.cli._deploying import steps_shown
from zae_limiter.cli._failures import FAILED
from zae_limiter.cli._help import examples, section
from zae_limiter.cli._options import json_option, user_name
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_note, working
from zae_limiter.cli._place import Target, announce, require_database, target_options
from zae_limiter.cli._upgrading import Upgraded, UpgradeScope, plan_upgrade, upgrade_limiter
from zae_limiter.core.lazy_dataclass import asdict
from zae_limiter.core.namespace import DEFAULT_NAMESPACE
from zae_limiter.core.version import KINDS, SCHEMA_VERSION, Compatibility, Migrated, VersionRecord, compare
from zae_limiter.installation import this_installation

VERSION = ("zae-limiter version", "zae-limiter version --name my-app --region us-east-1")
CHECK = ("zae-limiter check --name my-app", "zae-limiter check --url sqlite:///limiter.db")
UPGRADE = (
    "zae-limiter upgrade --name my-app --dry-run",
    "zae-limiter upgrade --name my-app",
    "zae-limiter upgrade --name my-app --lambda-only --force",
)
CHECK_CODES = section(
    "Exit codes",
    "0   they are compatible",
    "1   incompatible, incomplete, or there is no database; stderr says what to do",
    "69  the limiter is unavailable",
)
COLUMNS = [Column("part"), Column("installed"), Column("limiter")]


@click.command(short_help="Show client, table and aggregator versions.", epilog=examples(*VERSION))
@target_options
@json_option
def version(target: Target, as_json: bool) -> None:
    """Show the versions of this installation, and those of a limiter if you select one."""
    named = target.url is not None
    if named:
        require_database(target)
    with working("Reading the versions"):
        record = inspect(target.existing_url).record if named else None
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
        *(("kind", kind if kind in KINDS else "unknown", kind) for kind in sorted(there.kinds)),
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
    require_database(target)
    announce(target)
    with working("Reading the versions"):
        seen = inspect(target.existing_url)
    record = seen.record
    found = compare(record or VersionRecord(SCHEMA_VERSION), metadata.version("zae-limiter"))
    # A file or memory gets its default namespace when it is opened.
    lacks_namespace = target.place is not None and not seen.has_default_namespace
    advice = advice_on(found, target, lacks_namespace)
    if as_json:
        facts = {**asdict(found), "lacks_namespace": lacks_namespace, "advice": advice}
        print_json({"compatible": advice is None, **facts, **version_facts(record, True)})
    elif advice is None:
        click.echo("Compatible." if record is not None else "Compatible; the limiter has no version record.")
    if advice is not None:
        click.echo(f"Error: {advice}", err=True)
        raise click.exceptions.Exit(FAILED)


@click.command(short_help="Upgrade a limiter to this version.", epilog=examples(*UPGRADE))
@target_options
@click.option("--dry-run", is_flag=True, help="Show what would be done, but change nothing.")
@click.option("--lambda-only", is_flag=True, help="Upgrade only the aggregator's code.")
@click.option("--force", is_flag=True, help="Upload the code even if the aggregator runs the same or a newer version.")
@click.option(
    "--allow",
    type=click.Choice(sorted(KINDS)),
    multiple=True,
    metavar="KIND",
    help=f"Kind of items that the table may store from now on: {', '.join(sorted(KINDS))}. Older clients then refuse "
    "the table. Repeatable.",
)
@click.option(
    "--principal", metavar="NAME", help="Author of the change, for the version record.  [default: your user name]"
)
@json_option
def upgrade(
    target: Target,
    dry_run: bool,
    lambda_only: bool,
    force: bool,
    allow: tuple[str, ...],
    principal: str | None,
    as_json: bool,
) -> None:
    """Upgrade a limiter to this version: its stack template, its aggregator's code, and its table's schema.

    It also creates a missing default namespace. The options of the stack stay. Run it again to
    finish an interrupted upgrade.
    """
    require_database(target)
    scope = UpgradeScope(lambda_only, force, allow)
    check_scope(scope, target, principal)
    announce(target)
    if dry_run:
        with working("Planning the upgrade"):
            done = plan_upgrade(target, scope)
    else:
        with steps_shown("Upgrading") as hear:
            author = user_name() if principal is None else principal
            done = upgrade_limiter(target, author, hear, scope)
    report_missing_function(scope, done, target)
    print_upgraded(done, dry_run, as_json)


def check_scope(scope: UpgradeScope, target: Target, principal: str | None) -> None:
    """Require options that have an effect on this limiter.

    Raises:
        click.UsageError: The limiter cannot have an aggregator, or the author would not be recorded.
    """
    context = click.get_current_context()
    if (scope.lambda_only or scope.force) and target.place is None:
        raise click.UsageError("--lambda-only and --force need a limiter on AWS; pass --name", context)
    if scope.lambda_only and (principal is not None or scope.allow):
        option = "--allow" if scope.allow else "--principal"
        raise click.UsageError(f"{option} has no effect with --lambda-only; omit one of the two", context)


def report_missing_function(scope: UpgradeScope, done: Upgraded, target: Target) -> None:
    """Report that there is no aggregator, if an option asked for an upload of its code.

    Raises:
        click.UsageError: Nothing else was to be upgraded.
    """
    if done.code_changed is not None or done.newer_function is not None:
        return
    reason = f"the limiter has no aggregator; add it: zae-limiter deploy --enable-aggregator{target.options}"
    if scope.lambda_only:
        raise click.UsageError(reason, click.get_current_context())
    if scope.force:
        print_note(f"--force had no effect: {reason}")


def advice_on(found: Compatibility, target: Target, lacks_namespace: bool) -> str | None:
    """Return how to make this installation and a limiter compatible, None if they are."""
    if found.client_outdated:
        return f"the limiter requires a newer client; {this_installation().upgrade_advice()}"
    if found.needs_migration:
        return f"the table has an older schema; upgrade it: zae-limiter upgrade{target.options}"
    if found.function_outdated:
        return f"the aggregator is older than this client; upgrade it: zae-limiter upgrade{target.options}"
    if lacks_namespace:
        return f"the limiter has no namespace {DEFAULT_NAMESPACE!r}; create it: zae-limiter upgrade{target.options}"
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
        kept = f"The aggregator ({done.newer_function}) is newer than this installation and was not changed."
        print_note(f"{kept} Replace it: --force")
    for one in done.migrations:
        for place in one.damaged:
            print_note(f"Could not be read and was not changed: {place}")


def upgraded_lines(done: Upgraded, dry_run: bool) -> list[str]:
    """Return what was changed, or would be, one line per change."""
    would = "would be" if dry_run else "was"
    lines = ["The stack was updated to the newest template."] if done.stack_changed else []
    lines += [f"The aggregator's code {would} replaced."] if done.code_changed else []
    lines += [migration_line(one) for one in done.migrations]
    lines += [f"The namespace {DEFAULT_NAMESPACE!r} {would} created."] if done.namespace_created else []
    lines += [f"The kind {kind!r} {would} allowed. Older clients refuse the table." for kind in done.allowed]
    return lines or ["Everything is up to date."]


def migration_line(one: Migrated) -> str:
    """Return what a migration did, or would do."""
    would = "would be" if one.dry_run else "were"
    more = f", {one.superseded} {would} superseded" if one.superseded else ""
    return f"Schema {one.target} ({one.summary}): {one.moved} {would} moved{more}."
