"""Explain why no usage was found, and suggest what to do."""

from zae_limiter._sync.limiter.limiter import SyncRateLimiter
from zae_limiter.cli._hints import PLACE, calling
from zae_limiter.cli._place import StoreChoice, StoreLocation
from zae_limiter.cli._usage_options import Asked
from zae_limiter.core.errors import StackOperationError
from zae_limiter.core.names import ALL_RESOURCES
from zae_limiter.core.status import Status
from zae_limiter.core.usage import WINDOW_TYPES
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.stack import Stack


def why_nothing(limiter: SyncRateLimiter, asked: Asked, store: StoreChoice) -> str:
    """Describe what was not found, and why it may not have been counted."""
    return f"{_nothing(asked)} {_advice(limiter, asked, store)}"


def _nothing(asked: Asked) -> str:
    whom = "" if asked.entity_id is None else f" by {asked.entity_id}"
    what = "" if asked.resource is None else f" of {asked.resource}"
    times = {"from": asked.start_time, "to": asked.end_time}
    span = "".join(f" {word} {time[:16].replace('T', ' ')}" for word, time in times.items() if time is not None)
    kind = "any" if asked.window_type is None else asked.window_type
    return f"There is no usage{whom}{what} in {kind} windows{f'{span} UTC' if span else ''}."


def _advice(limiter: SyncRateLimiter, asked: Asked, store: StoreChoice) -> str:
    if not limiter.repository.capabilities.supports_infrastructure_management:
        return _elsewhere(asked)
    status = limiter.get_status()
    if not status.aggregator_enabled:
        return _without_aggregator(status, store.target.place)
    soon = "The aggregator counts within a minute or two, in the windows of deploy --snapshot-windows."
    return _not_counted(asked, store.target.place) or f"{soon} {_elsewhere(asked)}"


def _not_counted(asked: Asked, place: StoreLocation | None) -> str | None:
    """Say that a stack does not count the windows asked for, and how to change it; None if it does."""
    known = None if place is None else _windows_of(place)
    windows = (known or StackOptions().snapshot_windows).split(",")
    if asked.window_type is None or asked.window_type in windows:
        return None
    every = ",".join(one for one in WINDOW_TYPES if one in (*windows, asked.window_type))
    which = f"{asked.window_type} windows{'' if known else ' by default'}, only {' and '.join(windows)} ones"
    deploy = _deploying(f"--snapshot-windows {every}", place)
    return f"The aggregator does not count {which}. Count them from now on: {deploy}"


def _windows_of(place: StoreLocation) -> str | None:
    """Return the windows that a stack counts, None if they are unknown, as for a stack of the CDK."""
    try:
        found = Stack(place.name, place.region.clients()).describe()
    except StackOperationError:
        return None
    return None if found is None else found.parameters.get("SnapshotWindows")


def _elsewhere(asked: Asked) -> str:
    """Suggest another time range, or a command that causes usage."""
    if asked.start_time is not None or asked.end_time is not None:
        return "Extend the time range, in UTC, with --start and --end."
    if asked.resource == ALL_RESOURCES:
        set_some = calling(f"entity set-limits {asked.entity_id or 'user-1'} --all-resources -l rpm:100")
        return f"It is counted for entities with limits across resources. Set some: {set_some}"
    acquire = f"acquire {asked.entity_id or 'user-1'} {asked.resource or 'gpt-4'} -c rpm:1 -l rpm:100"
    return f"Every acquire is counted, for example: {calling(acquire)}"


def _without_aggregator(status: Status, place: StoreLocation | None) -> str:
    counts = "On DynamoDB the aggregator of the stack counts usage"
    if status.stack_status is None:
        look = calling("status", PLACE)
        return f"{counts}, but no stack was found for this table; check with: {look}"
    add = _deploying("--enable-aggregator", place)
    return f"{counts}, but {status.name} was deployed without it; add it: {add}"


def _deploying(option: str, place: StoreLocation | None) -> str:
    """Return the command that deploys a stack with one more option. It takes a name, and no URL."""
    return f"zae-limiter deploy {option}{'' if place is None else place.options}"
