"""Ask before a command drops limits that are in force, and name them."""

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from zae_limiter.cli._confirm import require_consent
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import ALL_RESOURCES, DEFAULT_RESOURCE

if TYPE_CHECKING:
    from zae_limiter._sync.limiter.limiter import SyncRateLimiter

_ANY_OTHER = "any-other-name"
"""Stands for all entities, or all resources, without a record of their own."""

_MOST_RESOURCES = 20
"""At most this many resources with their own limits are compared, because each costs three reads."""


@dataclass(frozen=True, slots=True)
class LimitNames:
    """The names of the limits in force for one resource, and of those that the next levels have for it."""

    in_force: frozenset[str]
    inherited: frozenset[str]


def of_entity(limiter: "SyncRateLimiter", entity_id: str, resource: str) -> list[LimitNames]:
    """Return the names for the limits of an entity; ``_default_`` concerns all resources without their own."""
    if resource == ALL_RESOURCES:
        # Limits across resources inherit from those for each entity, and from nothing else.
        in_force = names_of(limiter.resolve_limits(entity_id, resource).limits)
        return [LimitNames(in_force, names_of(limiter.get_resource_defaults(resource)))]
    if resource != DEFAULT_RESOURCE:
        in_force = names_of(limiter.resolve_limits(entity_id, resource).limits)
        (below,) = of_resource(limiter, resource)
        return [LimitNames(in_force, _below_entity(limiter, entity_id, below.in_force))]
    found = []
    for one in [*limiter.list_resources_with_defaults()[:_MOST_RESOURCES], _ANY_OTHER]:
        resolved = limiter.resolve_limits(entity_id, one)
        # The limits of the entity for one resource stay in force there. Those that they inherit may be dropped.
        in_force = frozenset(name for name, source in resolved.sources.items() if source != "entity")
        if in_force:
            (below,) = of_resource(limiter, one)
            found.append(LimitNames(in_force, below.in_force))
    return found


def _below_entity(limiter: "SyncRateLimiter", entity_id: str, below: frozenset[str]) -> frozenset[str]:
    """Return the names that limits of an entity for one resource inherit.

    If it is unknown whether the limits for all resources inherit, they count as if they did not.
    """
    default = names_of(limiter.get_limits(entity_id))
    through = limiter.resolve_limits(entity_id, _ANY_OTHER).sources.values()
    passes = not default or any(source != "entity_default" for source in through)
    return default | below if passes else default


def of_resource(limiter: "SyncRateLimiter", resource: str) -> list[LimitNames]:
    """Return the names for the defaults of a resource. Those across resources inherit nothing."""
    system = [] if resource == ALL_RESOURCES else limiter.get_system_defaults()[0]
    return [LimitNames(names_of(limiter.resolve_limits(_ANY_OTHER, resource).limits), names_of(system))]


def of_system(limiter: "SyncRateLimiter") -> list[LimitNames]:
    """Return the names for the system defaults, which inherit nothing."""
    system, _ = limiter.get_system_defaults()
    return [LimitNames(names_of(system), frozenset())]


def names_of(limits: Iterable[Limit] | None) -> frozenset[str]:
    """Return the names of limits; empty if there are none."""
    return frozenset(limit.name for limit in limits or ())


def dropped_names(named: Iterable[LimitNames], limits: Sequence[Limit], *, inherit: bool) -> list[str]:
    """Return the limits in force that would be dropped for at least one resource, sorted."""
    given: frozenset[str] = names_of(limits)
    dropped = [one.in_force - given - (one.inherited if inherit else frozenset()) for one in named]
    return sorted(frozenset[str]().union(*dropped))


def confirm_dropped(named: Sequence[LimitNames], limits: Sequence[Limit], *, whose: str, inherit: bool = False) -> None:
    """Ask before limits in force are dropped, and end the command unless the user agrees.

    Raises:
        click.UsageError: There is no terminal.
    """
    dropped = ", ".join(dropped_names(named, limits, inherit=inherit))
    if dropped:
        could_inherit = not inherit and any(one.inherited for one in named)
        keep = "--inherit to keep what the next level has" if could_inherit else ""
        require_consent(
            f"This removes limits that are in force for {whose}: {dropped}. Continue?",
            "Nothing was changed." + (f" Pass {keep}." if keep else ""),
            f"remove {dropped}, which is in force for {whose}" + (f", or {keep}" if keep else ""),
        )
