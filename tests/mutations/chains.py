"""Mutations of an acquire from several buckets: chains of entities, limits across resources, moves and blocks."""

import asyncio
import sys
from collections.abc import Callable
from typing import Any

from tests.mutations import functions
from tests.mutations.mutation import MISCOUNTED, Mutation, mutation, patch, simulation
from tests.simulation.levels import ACROSS, ALSO, BLOCK, LEVELS, MOVE
from tests.simulation.needs import CASCADE, THREE_LEVELS
from tests.simulation.plan import CANCEL
from zae_limiter import ALL_RESOURCES
from zae_limiter._async.limiter import cascade
from zae_limiter._async.limiter.chains import Chain, ChainReader
from zae_limiter._async.limiter.levels import BucketLevels
from zae_limiter.caches.buckets import KnownLimits
from zae_limiter.core.config import EntityFacts
from zae_limiter.schema import entity_item
from zae_limiter.schema.operations import Check

Real = Callable[..., Any]


def _without_last(requests: Real) -> Real:
    """Leave out the last bucket of a chain."""

    def parts(self: Any, chain: Any, request: Any) -> Any:
        found = requests(self, chain, request)
        return found[:-1] if len(found) > 1 else found

    return parts


def _without_across(requests: Real) -> Real:
    """Leave out the buckets across resources."""

    def parts(self: Any, chain: Any, request: Any) -> Any:
        found = requests(self, chain, request)
        return [one for one in found if one.bucket[1] != ALL_RESOURCES] or found

    return parts


def _two_levels(walk: Real) -> Real:
    """Follow a chain to the first parent only."""

    def levels(self: Any, bucket: Any, read: Any) -> Any:
        found, missing = walk(self, bucket, read)
        return (found[:2], None) if len(found) >= 2 else (found, missing)

    return levels


def _but_one(give_all_back: Real) -> Real:
    """Do not credit the first of the buckets that were taken from."""

    async def give(client: Any, parts: Any, held: Any) -> None:
        await give_all_back(client, parts, held[1:])

    return give


def _unless_cancelled(give_all_back: Real) -> Real:
    """Credit nothing if the caller was cancelled."""

    async def give(client: Any, parts: Any, held: Any) -> None:
        if not isinstance(sys.exception(), asyncio.CancelledError):
            await give_all_back(client, parts, held)

    return give


def _own_block_only(require_unblocked: Real) -> Real:
    """Check the blocks of the first entity only."""
    return lambda self, chain, resource: require_unblocked(self, Chain(chain.levels[:1]), resource)


def _once(summed: Real) -> Real:
    """Ask a bucket that occurs several times only for the first amounts."""

    def parts(asked: Any) -> Any:
        found: dict[Any, Any] = {}
        for part in (one for each in asked for one in each):
            found.setdefault(part.bucket, part)
        return list(found.values())

    return parts


CHAINS: tuple[Mutation, ...] = (
    mutation(
        "known-short view of an ancestor ignored",
        "a fresh view of any bucket that is short rejects before anything is written",
        patch(BucketLevels, "known_rejection", functions.ancestors_ignored),
        simulation("wasted", CASCADE),
    ),
    mutation(
        "other buckets not credited back",
        "all or none: the buckets that were taken from are credited if another one refuses",
        patch(cascade, "give_back", functions.nothing),
        simulation(MISCOUNTED, CASCADE),
    ),
    mutation(
        "one of the other buckets not credited back",
        "all of them are credited, not only some",
        patch(cascade, "_give_all_back", _but_one),
        simulation(MISCOUNTED, THREE_LEVELS),
    ),
    mutation(
        "buckets of a cancelled caller not credited back",
        "a caller that is cancelled between two buckets credits all that were taken from",
        patch(cascade, "_give_all_back", _unless_cancelled),
        simulation(MISCOUNTED, LEVELS, CANCEL),
    ),
    mutation(
        "one level not charged",
        "every level of the chain is charged",
        patch(ChainReader, "requests", _without_last),
        simulation("chain", LEVELS),
    ),
    mutation(
        "chain followed only to the first parent",
        "a chain is followed as far as each entity cascades",
        patch(ChainReader, "_walk", _two_levels),
        simulation("chain", THREE_LEVELS),
    ),
    mutation(
        "cascade for other resources",
        "an entity cascades only for the resources that it names",
        patch(EntityFacts, "cascades", lambda real: lambda self, resource: self.cascade and self.parent_id is not None),
        simulation("chain", LEVELS),
    ),
    mutation(
        "bucket across resources not charged",
        "an entity with limits across resources is also charged in the bucket of these",
        patch(ChainReader, "requests", _without_across),
        simulation("chain", ACROSS),
    ),
    mutation(
        "bucket that occurs twice charged once",
        "a bucket that occurs several times is charged the sum",
        patch(cascade, "_summed", _once),
        simulation(MISCOUNTED, ALSO),
    ),
    mutation(
        "links used after the cache lifetime",
        "limits and links are read again after the cache lifetime",
        patch(KnownLimits, "is_fresh", lambda real: lambda self, now_ms: True),
        simulation(frozenset(("chain", "blocked")), MOVE),
    ),
    mutation(
        "block of an ancestor ignored",
        "a blocked entity blocks all that cascade to it",
        patch(ChainReader, "require_unblocked", _own_block_only),
        simulation("blocked", BLOCK),
    ),
    mutation(
        "move that does not check the entities above",
        "a move requires the entities above as they were read",
        (
            *patch(
                entity_item,
                "unchanged",
                lambda real: lambda namespace, one, seen: Check(entity_item.key(namespace, one), ()),
            ),
            *patch(entity_item, "adopt", lambda real: lambda namespace, parent, seen=None: real(namespace, parent)),
        ),
        simulation("cycle", MOVE),
    ),
)
