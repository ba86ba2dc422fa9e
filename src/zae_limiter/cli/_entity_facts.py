"""Describe entities: their parents, whom they charge, their blocks and their bypass."""

from collections.abc import Sequence
from datetime import datetime
from json import dumps
from typing import TYPE_CHECKING, Any, NamedTuple

from zae_limiter.cli._output import Column, Grid, print_grid, visible
from zae_limiter.clock import SystemClock
from zae_limiter.core.entity import Entity, EntityBlock
from zae_limiter.core.lazy_dataclass import asdict
from zae_limiter.core.timestamp import ms_from_utc

if TYPE_CHECKING:
    from zae_limiter._sync.limiter.limiter import SyncRateLimiter

ENTITY_KEYS = (
    "ENTITY is {id, name, parent_id, cascade, metadata, created_at,",
    " cascade_resources: [names] or null for all, blocks: [BLOCK], bypass}",
    "BLOCK is {resource: null for all, reason, until: null for no end}",
)
"""The JSON keys of an entity, for the help."""


class Charged(NamedTuple):
    """An ancestor that an entity cascades to, and the resources for which it does, None for all."""

    entity: Entity
    resources: frozenset[str] | None

    @property
    def in_words(self) -> str:
        """The ancestor, and the resources if they are not all: ``team-1 (gpt-4 only)``."""
        only = "" if self.resources is None else f" ({', '.join(sorted(self.resources))} only)"
        return f"{self.entity.id}{only}"


def ancestors_of(limiter: "SyncRateLimiter", entity: Entity) -> list[Entity]:
    """Return the entities above an entity, the parent first."""
    found: dict[str, Entity] = {}
    above = entity.parent_id
    # A move at the same time may bring an entity up again.
    while above is not None and above not in found:
        one = limiter.get_entity(above)
        if one is None:
            break
        found[above] = one
        above = one.parent_id
    return list(found.values())


def charged_by(entity: Entity, ancestors: Sequence[Entity]) -> list[Charged]:
    """Return the ancestors that an entity cascades to, as far as each level cascades, the parent first."""
    found: list[Charged] = []
    resources: frozenset[str] | None = None
    below = entity
    for one in ancestors:
        chosen = None if below.cascade_resources is None else frozenset(below.cascade_resources)
        resources = chosen if resources is None else resources if chosen is None else resources & chosen
        if not below.cascade or (resources is not None and not resources):
            break
        found.append(Charged(one, resources))
        below = one
    return found


def entity_facts(entity: Entity) -> dict[str, Any]:
    """Return an entity, ready for JSON."""
    return {**asdict(entity), "blocks": [block_facts(one) for one in entity.blocks]}


def block_facts(block: EntityBlock) -> dict[str, Any]:
    """Return a block, ready for JSON."""
    until = None if block.until is None else block.until.isoformat()
    return {"resource": block.resource, "reason": block.reason, "until": until}


def print_entity(found: Entity, ancestors: Sequence[Entity] = ()) -> None:
    """Print an entity; with its ancestors also whom it charges, and which of them is blocked."""
    charged = charged_by(found, ancestors)
    now_ms = SystemClock().now_ms()
    several = len(ancestors) > 1
    rows = [
        ("id", found.id),
        ("name", found.name or ""),
        ("parent", found.parent_id or ""),
        ("cascade", "" if found.parent_id is None else cascade_words(found)),
        ("ancestors", ", ".join(one.id for one in ancestors) if several else ""),
        ("charges", ", ".join(one.in_words for one in charged) if several else ""),
        *(("blocked", block_words(block, now_ms)) for block in found.blocks),
        *_blocks_above(charged, now_ms),
        ("bypass", "yes" if found.bypass else ""),
        *(
            (f"metadata {key}", value if isinstance(value, str) else dumps(value, ensure_ascii=False))
            for key, value in sorted(found.metadata.items())
        ),
        ("created", found.created_at or ""),
    ]
    print_grid(Grid([Column("entity"), Column("")], [row for row in rows if row[1]]))


def cascade_words(entity: Entity) -> str:
    """Return "yes", "no", or the resources for which an entity cascades."""
    if entity.cascade and entity.cascade_resources is not None:
        return f"for {', '.join(entity.cascade_resources)}"
    return "yes" if entity.cascade else "no"


def block_words(block: EntityBlock, now_ms: int | None = None) -> str:
    """Describe a block: ``gpt-4 until 2026-12-01 10:00:00 UTC: unpaid invoice``; with a time, also if it has ended."""
    of_what = "all resources" if block.resource is None else block.resource
    until = "" if block.until is None else f" until {time_words(block.until)}"
    ended = " (ended)" if now_ms is not None and not is_in_force(block, now_ms) else ""
    # The reason is free text. Characters that a terminal would interpret are escaped.
    reason = "" if block.reason is None else f": {visible(block.reason)}"
    return f"{of_what}{until}{ended}{reason}"


def time_words(moment: datetime) -> str:
    """Return a time to the second, in UTC."""
    return f"{moment:%Y-%m-%d %H:%M:%S} UTC"


def is_in_force(block: EntityBlock, now_ms: int) -> bool:
    """Return whether a block has not ended."""
    return block.until is None or now_ms < ms_from_utc(block.until)


def status_words(entity: Entity, now_ms: int) -> str:
    """Return "blocked", with the resources if they are not all, and "bypass"; empty if neither applies."""
    blocked = [one.resource for one in entity.blocks if is_in_force(one, now_ms)]
    words = []
    if blocked:
        named = f"for {blocked[0]}" if len(blocked) == 1 else f"for {len(blocked)} resources"
        words.append("blocked" if None in blocked else f"blocked {named}")
    return ", ".join([*words, "bypass"] if entity.bypass else words)


def _blocks_above(charged: Sequence[Charged], now_ms: int) -> list[tuple[str, str]]:
    """Return a row for each block in force of an ancestor that refuses requests of the entity too."""
    return [
        ("blocked", f"through {one.entity.id}: {block_words(block)}")
        for one in charged
        for block in one.entity.blocks
        if is_in_force(block, now_ms)
        if block.resource is None or one.resources is None or block.resource in one.resources
    ]
