"""Define the commands of ``zae-limiter entity`` that show and change limits, and show buckets."""

from collections.abc import Sequence
from math import ceil
from shlex import quote

import click

from zae_limiter.bucket import calculate_available
from zae_limiter.cli._confirm import require_consent
from zae_limiter.cli._dropping import confirm_dropped, of_entity
from zae_limiter.cli._help import examples, help_of, json_shape
from zae_limiter.cli._hints import calling
from zae_limiter.cli._limit_syntax import FORMS, write_limit
from zae_limiter.cli._limit_words import LIMIT_KEYS, describe_refill, limit_facts, limits_grid, option_words
from zae_limiter.cli._options import (
    Changing,
    changing_options,
    inherit_option,
    limits_option,
    view_options,
    yes_option,
)
from zae_limiter.cli._output import Column, Grid, print_grid, print_json, print_line, print_note
from zae_limiter.cli._place import StoreChoice
from zae_limiter.cli._resource_options import resource_argument, resource_option
from zae_limiter.cli._store import opened
from zae_limiter.clock import SystemClock
from zae_limiter.core.config import ResolvedLimits
from zae_limiter.core.lazy_dataclass import asdict
from zae_limiter.core.limit import Limit
from zae_limiter.core.limit_text import left_text
from zae_limiter.core.money import format_with_unit
from zae_limiter.core.names import ALL_RESOURCES, DEFAULT_RESOURCE
from zae_limiter.core.status import Balance, BucketState

SETTING = (
    "zae-limiter entity set-limits user-123 --resource gpt-4 -l rpm:1000 --inherit",
    "zae-limiter entity set-limits user-123 -l rpm:100 -l tpm:10000/min:burst=15000 --principal ops",
    "zae-limiter entity set-limits project-1 --all-resources -l rpm:2k",
    "zae-limiter entity set-limits user-123 -l spend:20usd/month@Europe/Berlin --inherit",
)
GETTING = ("zae-limiter entity get-limits user-123 --resource gpt-4", "zae-limiter entity get-limits user-123 --json")
DELETING = "zae-limiter entity delete-limits user-123 --resource gpt-4 --yes"
RESOURCES = "zae-limiter entity list-resources"
RESOLVING = ("zae-limiter entity resolve user-123 gpt-4", "zae-limiter entity resolve user-123 --all-resources")
BUCKETS = ("zae-limiter entity buckets user-123", "zae-limiter entity buckets user-123 --resource gpt-4 --json")
SHAPE = json_shape("{entity_id, resource, limits: [LIMIT]}", *LIMIT_KEYS)
RESOLVED = json_shape(
    "{entity_id, resource, limits: [LIMIT], on_unavailable: allow, block or null,",
    " source: entity, entity_default, resource, system or null, sources: {limit: source},",
    " all_resources: [LIMIT] (those that apply in addition)}",
    *LIMIT_KEYS,
)
DELETED = json_shape("{entity_id, resource, deleted: whether limits existed}")
BUCKETS_SHAPE = json_shape(
    "[{entity_id, resource, limit_name, tokens_milli, last_refill_ms,",
    "  capacity_milli, refill_amount_milli, refill_period_ms, total_consumed_milli}],",
    " and {hold_seconds, cohorts: [[end in seconds, millislots]], in_use} of slots,",
    " {schedule, resets_at} of quotas, and if set {unit, enforce: false, warn_at}",
)
BUCKET_COLUMNS = [
    Column("resource"),
    Column("limit"),
    Column("tokens", True),
    Column("capacity", True),
    Column("refill"),
    Column("consumed", True),
]
BALANCES = ("zae-limiter entity balances user-123", "zae-limiter entity balances user-123 --json")
BALANCES_SHAPE = json_shape(
    "[{entity_id, resource, limit_name, kind: rate, slots or quota, capacity,",
    "  available, used, used_pct, unit, enforce, schedule, resets_at, full_at,",
    "  in_use}], with times in seconds since the epoch, money in micro-units,",
    " and null for what does not apply",
)
BALANCE_COLUMNS = [
    Column("resource"),
    Column("limit"),
    Column("available", True),
    Column("used", True),
    Column("refill"),
]
OF_SLOTS = ("hold_seconds", "cohorts")
OF_QUOTAS = ("schedule", "resets_at")
OF_SOME = ("unit", "enforce", "warn_at")
"""The fields of a bucket that only some limits have."""
PURPOSE = "Resource of the limits. Default: all resources without their own limits."
LEVELS = {
    "entity": "entity's own limits for this resource",
    "entity_default": "entity's own limits for all resources",
    "resource": "defaults of the resource",
    "system": "system defaults",
}
LEVELS_ACROSS = {
    "entity": "entity's own limits across resources",
    "resource": "limits across resources of all entities",
}


@click.command(
    "set-limits", short_help="Set the limits of an entity.", epilog=help_of(examples(*SETTING), FORMS, SHAPE)
)
@click.argument("entity_id", metavar="ENTITY")
@resource_option(PURPOSE, DEFAULT_RESOURCE)
@limits_option("Limits to set; they replace those that are stored here.", required=True)
@inherit_option("the next level: the entity's limits for all resources, the resource, the system")
@yes_option
@changing_options
def set_limits(
    entity_id: str, resource: str, limits: tuple[Limit, ...], inherit: bool, yes: bool, changing: Changing
) -> None:
    """Set the limits of an entity, for one resource or for all. They override all other limits.

    With --all-resources, all resources of the entity share these limits, in addition to the limits
    of each resource.

    If a limit in force would be removed, the command names it and asks for confirmation.
    """
    with opened(changing.store, create=True) as limiter:
        if not yes:
            named = of_entity(limiter, entity_id, resource)
            confirm_dropped(named, limits, whose=whose(entity_id, resource), inherit=inherit)
        limiter.set_limits(entity_id, list(limits), resource, changing.principal, inherit)
        stored = limiter.get_limits(entity_id, resource)
    print_limits(entity_id, resource, stored, changing.as_json)
    if inherit:
        print_note("All other limits are inherited.")


@click.command("get-limits", short_help="Show the limits of an entity.", epilog=help_of(examples(*GETTING), SHAPE))
@click.argument("entity_id", metavar="ENTITY")
@resource_option(PURPOSE, DEFAULT_RESOURCE)
@view_options
def get_limits(entity_id: str, resource: str, as_json: bool, store: StoreChoice) -> None:
    """Show the limits that are stored for an entity. To see the limits in force, use: entity resolve."""
    with opened(store) as limiter:
        stored = limiter.get_limits(entity_id, resource)
    print_limits(entity_id, resource, stored, as_json)


@click.command(
    "delete-limits", short_help="Delete the limits of an entity.", epilog=help_of(examples(DELETING), DELETED)
)
@click.argument("entity_id", metavar="ENTITY")
@resource_option(PURPOSE, DEFAULT_RESOURCE)
@yes_option
@changing_options
def delete_limits(entity_id: str, resource: str, yes: bool, changing: Changing) -> None:
    """Delete the limits of an entity, so that those of the resource or the system apply."""
    named = whose(entity_id, resource)
    with opened(changing.store) as limiter:
        is_there = bool(limiter.get_limits(entity_id, resource))
        if is_there and not yes:
            require_consent(f"Delete the limits for {named} in namespace {changing.store.namespace}?")
        limiter.delete_limits(entity_id, resource, changing.principal)
    if changing.as_json:
        print_json({"entity_id": entity_id, "resource": resource, "deleted": is_there})
    else:
        none = f"There are no limits for {named}; nothing was deleted."
        print_line(f"Deleted the limits for {named}." if is_there else none)


@click.command(
    "list-resources",
    short_help="List the resources with limits of entities.",
    epilog=help_of(examples(RESOURCES), json_shape("[names]")),
)
@view_options
def list_resources(as_json: bool, store: StoreChoice) -> None:
    """List the resources for which entities have their own limits.

    _default_ means all other resources, and _all_ means limits across resources.
    """
    with opened(store) as limiter:
        found = limiter.list_resources_with_entity_configs()
    if as_json:
        print_json(found)
    elif found:
        print_grid(Grid([Column("resource")], [[name] for name in found]))
    else:
        store_some = calling("entity set-limits user-123 --resource gpt-4 -l rpm:1000")
        print_note(f"No entity has its own limits. Set some: {store_some}")


@click.command("resolve", short_help="Show the limits in force.", epilog=help_of(examples(*RESOLVING), RESOLVED))
@click.argument("entity_id", metavar="ENTITY")
@resource_argument
@view_options
def resolve(entity_id: str, resource: str, as_json: bool, store: StoreChoice) -> None:
    """Show the limits in force for an entity and a resource, and their source."""
    with opened(store) as limiter:
        found = limiter.resolve_limits(entity_id, resource)
        is_across = resource == ALL_RESOURCES
        across = [] if is_across else limiter.resolve_limits(entity_id, ALL_RESOURCES).limits or []
    if as_json:
        facts = {"entity_id": entity_id, "resource": resource, "limits": limit_facts(found.limits or [])}
        where = {"source": found.source, "sources": dict(found.sources), "all_resources": limit_facts(across)}
        print_json(facts | {"on_unavailable": found.on_unavailable} | where)
        return
    print_resolved(found, is_across=is_across)
    if across:
        written = ", ".join(write_limit(limit) for limit in across)
        print_line(f"In addition, all resources of the entity share: {written}.")


@click.command(
    "buckets", short_help="Show the buckets of an entity.", epilog=help_of(examples(*BUCKETS), BUCKETS_SHAPE)
)
@click.argument("entity_id", metavar="ENTITY")
@resource_option("Show only the bucket of this resource.", None)
@view_options
def buckets(entity_id: str, resource: str | None, as_json: bool, store: StoreChoice) -> None:
    """Show the buckets of an entity as they are stored: the tokens are those of the last refill.

    Slots of limits of concurrent use are those in use and free now.

    To see the tokens that are left now, use: zae-limiter available.
    """
    with opened(store) as limiter:
        found = limiter.get_buckets(entity_id, resource)
    now_ms = SystemClock().now_ms()
    if as_json:
        print_json([bucket_facts(one, now_ms) for one in found])
    elif found:
        print_grid(Grid(BUCKET_COLUMNS, [bucket_row(one, now_ms) for one in found]))
    else:
        shown = "gpt-4" if resource in (None, ALL_RESOURCES) else resource
        take = calling(f"acquire {quote(entity_id)} {quote(shown)} -c rpm:1")
        what = "bucket across resources" if resource == ALL_RESOURCES else "buckets"
        print_note(f"Entity {entity_id} has no {what} yet. The first acquire creates one: {take}")


@click.command(
    "balances",
    short_help="Show what is left of every limit of an entity.",
    epilog=help_of(examples(*BALANCES), BALANCES_SHAPE),
)
@click.argument("entity_id", metavar="ENTITY")
@view_options
def balances(entity_id: str, as_json: bool, store: StoreChoice) -> None:
    """Show what is left now of every limit of an entity, for all resources that it has used or has limits for.

    _all_ means limits across resources. _default_ means the entity's limits for all other resources,
    which it has not used yet.
    """
    with opened(store) as limiter:
        found = limiter.get_balances(entity_id)
    if as_json:
        print_json([one.as_dict() for one in found])
    elif found:
        now_s = SystemClock().now_ms() / 1000
        print_grid(Grid(BALANCE_COLUMNS, [balance_row(one, now_s) for one in found]))
    else:
        store_some = calling(f"entity set-limits {quote(entity_id)} -l rpm:1000")
        print_note(f"Entity {entity_id} has used nothing yet, and has no limits of its own. Set some: {store_some}")


def balance_row(balance: Balance, now_s: float) -> Sequence[str]:
    """Return what is left of a limit as a row; ``now_s`` is the time in seconds since the epoch."""
    limit = balance.limit
    words = [describe_refill(limit, balance.resets_at)]
    if balance.in_use is not None:
        words.insert(0, f"{balance.in_use} in use")
    elif balance.resets_at is None and balance.full_at is not None:
        words.append(f"full in {max(1, ceil(balance.full_at - now_s))} s")
    left = left_text(limit, balance.available)
    return (balance.resource, limit.name, left, f"{balance.used_pct:.1f} %", ", ".join(words))


def print_limits(entity_id: str, resource: str, limits: Sequence[Limit], as_json: bool) -> None:
    """Print the limits that are stored for an entity."""
    if as_json:
        print_json({"entity_id": entity_id, "resource": resource, "limits": limit_facts(limits)})
    elif limits:
        print_grid(limits_grid(limits))
    else:
        options = {DEFAULT_RESOURCE: "", ALL_RESOURCES: " --all-resources"}
        option = options.get(resource, f" --resource {quote(resource)}")
        store_some = calling(f"entity set-limits {quote(entity_id)}{option} -l rpm:1000")
        print_note(f"There are no limits for {whose(entity_id, resource)}. Set some: {store_some}")


def print_resolved(found: ResolvedLimits, *, is_across: bool) -> None:
    """Print the limits in force, and their source."""
    if not found.limits:
        command = (
            "resource set-defaults --all-resources -l rpm:1000" if is_across else "system set-defaults -l rpm:1000"
        )
        print_note(f"No limits are in force{' across resources' if is_across else ''}. Set some: {calling(command)}")
        return
    print_grid(limits_grid(found.limits))
    levels = LEVELS_ACROSS if is_across else LEVELS
    if found.source is not None:
        click.echo(f"Source: the {levels[found.source]}.")
    inherited = [name for name, source in found.sources.items() if source != found.source]
    if inherited:
        sources = ", ".join(f"{name} from the {levels[found.sources[name]]}" for name in inherited)
        click.echo(f"Inherited: {sources}.")
    if found.on_unavailable is not None:
        click.echo(f"If the store is unavailable: {found.on_unavailable}")


def whose(entity_id: str, resource: str) -> str:
    """Describe the owner and the resource of limits."""
    if resource == ALL_RESOURCES:
        return f"entity {entity_id} across resources"
    return f"entity {entity_id} and " + ("all resources" if resource == DEFAULT_RESOURCE else f"resource {resource}")


def bucket_row(state: BucketState, now_ms: int) -> Sequence[str]:
    """Return a limit of a bucket as a row; slots are those that are free and in use at ``now_ms``."""
    tokens, consumed, limit = state.tokens, state.total_consumed_milli // 1000, state.limit
    if state.hold_seconds:
        tokens = calculate_available(state, now_ms)
        used = f"{left_text(limit, state.in_use(now_ms))} in use, {tokens} free"
        refill = ", ".join([used, *option_words(limit)])
    else:
        refill = describe_refill(limit, state.resets_at)
    amounts = [format_with_unit(amount, limit.unit) for amount in (tokens, limit.capacity, consumed)]
    return (state.resource, state.limit_name, *amounts[:2], refill, amounts[2])


def bucket_facts(state: BucketState, now_ms: int) -> dict[str, object]:
    """Return a limit of a bucket ready for JSON; only slots have a hold, cohorts and a number in use."""
    facts = asdict(state)
    optional = {name: facts.pop(name) for name in (*OF_SLOTS, *OF_QUOTAS, *OF_SOME)}
    if state.hold_seconds:
        facts |= {name: optional[name] for name in OF_SLOTS} | {"in_use": state.in_use(now_ms)}
    if state.schedule is not None:
        facts |= {"schedule": state.schedule.text, "resets_at": state.resets_at}
    given = {"unit": state.unit is not None, "enforce": not state.enforce, "warn_at": bool(state.warn_at)}
    return facts | {name: optional[name] for name, is_given in given.items() if is_given}


COMMANDS = (set_limits, get_limits, delete_limits, list_resources, resolve, buckets, balances)
