"""Explain why no usage was found, and suggest what to do."""

from zae_limiter._sync.limiter.limiter import SyncRateLimiter
from zae_limiter.cli._hints import PLACE, calling
from zae_limiter.cli._usage_options import Asked
from zae_limiter.core.status import Status


def why_nothing(limiter: SyncRateLimiter, asked: Asked) -> str:
    """Describe what was not found, and why it may not have been counted."""
    return f"{_nothing(asked)} {_advice(limiter, asked)}"


def _nothing(asked: Asked) -> str:
    whom = "" if asked.entity_id is None else f" by {asked.entity_id}"
    what = "" if asked.resource is None else f" of {asked.resource}"
    times = {"from": asked.start_time, "to": asked.end_time}
    span = "".join(f" {word} {time[:16].replace('T', ' ')}" for word, time in times.items() if time is not None)
    kind = "any" if asked.window_type is None else asked.window_type
    return f"There is no usage{whom}{what} in {kind} windows{f'{span} UTC' if span else ''}."


def _advice(limiter: SyncRateLimiter, asked: Asked) -> str:
    if not limiter.repository.capabilities.supports_infrastructure_management:
        return _elsewhere(asked)
    status = limiter.get_status()
    if status.aggregator_enabled:
        counts = "The aggregator counts within a minute or two, in the windows of deploy --snapshot-windows."
        return f"{counts} {_elsewhere(asked)}"
    return _without_aggregator(status)


def _elsewhere(asked: Asked) -> str:
    """Suggest another time range, or a command that causes usage."""
    if asked.start_time is not None or asked.end_time is not None:
        return "Extend the time range, in UTC, with --start and --end."
    acquire = f"acquire {asked.entity_id or 'user-1'} {asked.resource or 'gpt-4'} -c rpm:1 -l rpm:100"
    return f"Every acquire is counted, for example: {calling(acquire)}"


def _without_aggregator(status: Status) -> str:
    counts = "On DynamoDB the aggregator of the stack counts usage"
    if status.stack_status is None:
        look = calling("status", PLACE)
        return f"{counts}, but no stack was found for this table; check with: {look}"
    return f"{counts}, but {status.name} was deployed without it; add it: {calling('deploy --aggregator', PLACE)}"
