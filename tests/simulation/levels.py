"""Draw trees of entities: up to five levels, that cascade, do not, or do so for one resource; and their own limits."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from random import Random
from typing import NamedTuple

from zae_limiter import Limit

RESOURCE, OTHER_RESOURCE = "api", "chat"

LEVELS, ACROSS, MOVE, BLOCK, ALSO = "levels", "all-resources", "move", "block", "also"
TREE_FAULTS = (LEVELS, ACROSS, MOVE, BLOCK, ALSO)
"""Trees of several levels, limits across resources, moves, blocks, and requests for several entities.

Each has random numbers of its own.
"""

ONLY_ACROSS = "spend"
"""A limit that exists only across resources."""

_NAMES = ("key", "user", "team", "org", "top")
_MOST_ENTITIES = 9


class Link(NamedTuple):
    """The parent of an entity, whether it cascades, and for which resources; None for all."""

    parent_id: str
    cascade: bool = True
    resources: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Tree:
    """The entities above others, and the limits of single entities.

    ``links`` has the parent of each entity that has one. ``own`` are limits of single entities for ``RESOURCE``.
    ``across`` are limits across resources of single entities; ``across_all`` are those of each entity.
    """

    links: Mapping[str, Link] = field(default_factory=dict)
    own: Mapping[str, tuple[Limit, ...]] = field(default_factory=dict)
    across: Mapping[str, tuple[Limit, ...]] = field(default_factory=dict)
    across_all: tuple[Limit, ...] = ()

    @property
    def uppers(self) -> list[str]:
        """The entities that are above others."""
        return list(dict.fromkeys(link.parent_id for link in self.links.values()))

    @property
    def depth(self) -> int:
        """The number of levels."""
        most = 1
        for entity in self.links:
            levels, above = 1, self.links.get(entity)
            while above is not None:
                levels, above = levels + 1, self.links.get(above.parent_id)
            most = max(most, levels)
        return most

    def created(self) -> list[tuple[str, Link | None]]:
        """Return the entities that must be created, each after its parent."""
        found: dict[str, Link | None] = {}

        def add(entity: str) -> None:
            link = self.links.get(entity)
            if link is not None and link.parent_id not in found:
                add(link.parent_id)
            found.setdefault(entity, link)

        for entity in (*self.uppers, *self.links):
            add(entity)
        return list(found.items())


def tree_faults(seed: int, kept: float) -> set[str]:
    """Return those of ``TREE_FAULTS`` that a seed has; ``kept`` is how likely its other faults are."""
    random = Random(f"levels {seed}")
    has = {LEVELS} if random.random() < 0.3 else set()
    several = LEVELS in has
    chances = {ACROSS: 0.5 if several else 0.08, MOVE: (0.4 + kept) / 2 if several else 0.0, BLOCK: 0.3 * several}
    chances[ALSO] = 0.4 if several else 0.05
    return has | {fault for fault, chance in chances.items() if random.random() < chance}


def some_tree(limits: Sequence[Limit], random: Random) -> tuple[tuple[str, ...], Tree]:
    """Return the entities that requests are for, and the tree above them."""
    depth = random.choice((2, 3, 3, 4, 5, 5))
    rows: list[list[str]] = []
    for name in _NAMES[:depth]:
        left = _MOST_ENTITIES - sum(map(len, rows)) - (depth - len(rows) - 1)
        count = random.randint(1, 3) if not rows else random.choice((1, 1, 2))
        rows.append([f"{name}-{number}" for number in range(1, min(count, left) + 1)])
    links = {}
    for row, above in pairwise(rows):
        for entity in row:
            resources = None if random.random() < 0.75 else (random.choice((RESOURCE, OTHER_RESOURCE)),)
            cascades = random.random() < 0.85
            links[entity] = Link(random.choice(above), cascades, resources if cascades else None)
    uppers = [entity for row in rows[1:] for entity in row]
    own = {entity: larger(limits, random) for entity in uppers if random.random() < 0.6}
    entities = [*rows[0], *(entity for entity in uppers if random.random() < 0.15)]
    return tuple(entities), Tree(links, own)


def with_across(tree: Tree, entities: Sequence[str], limits: Sequence[Limit], random: Random) -> Tree:
    """Return a tree some of whose entities have limits across resources."""
    everyone = list(dict.fromkeys((*entities, *tree.uppers)))
    chosen = random.sample(everyone, random.randint(1, min(3, len(everyone))))
    across = {entity: across_limits(limits, random) for entity in chosen}
    return replace(tree, across=across, across_all=across_limits(limits, random) if random.random() < 0.2 else ())


def larger(limits: Sequence[Limit], random: Random) -> tuple[Limit, ...]:
    """Return some of the limits, for an entity above others: larger and faster."""
    chosen = [limit for limit in limits if random.random() < 0.8] or [limits[0]]
    factor = random.choice((1, 2, 4))
    return tuple(
        replace(limit, capacity=limit.capacity * factor, refill_amount=limit.refill_amount * factor) for limit in chosen
    )


def across_limits(limits: Sequence[Limit], random: Random) -> tuple[Limit, ...]:
    """Return limits across resources: larger ones of the same names, and sometimes one that exists only there."""
    found = larger(limits, random)
    if random.random() < 0.4:
        found = (*found, replace(limits[0], name=ONLY_ACROSS))
    return found
