"""The entities as the table has them: their parents, blocks and limits across resources, and when these changed.

It reads the attributes of the items, and knows neither the limiter's caches nor its decisions. It returns which buckets
a request has to take from once every cache has expired, and whether a block has to refuse it.
"""

import json
from collections.abc import Iterator, Sequence

from tests.simulation.invariants import BucketId, Violation
from tests.simulation.loop import Timeline
from tests.simulation.server import Change, Sent
from zae_limiter import ALL_RESOURCES
from zae_limiter.core.outcome import Item

_META, _ACROSS, _CONFIG = "#META", f"#CONFIG#{ALL_RESOURCES}", "#CONFIG"
_ACROSS_ALL = f"/RESOURCE#{ALL_RESOURCES}"
_NEVER_S = float("-inf")

Block = tuple[str | None, int | None]
"""The resource that is blocked, None for all, and when the block ends in milliseconds, None if never."""


class Known:
    """One entity as stored, and when its link, its blocks and its limits across resources changed last."""

    __slots__ = ("across", "across_s", "blocked_s", "blocks", "cascades", "moved_s", "parent_id", "resources")

    def __init__(self) -> None:
        self.parent_id: str | None = None
        self.cascades = False
        self.resources: frozenset[str] | None = None
        self.blocks: tuple[Block, ...] = ()
        self.across = False
        self.moved_s = self.blocked_s = self.across_s = _NEVER_S

    def above(self, resource: str) -> str | None:
        """Return the entity that a request for a resource also takes from, None if there is none."""
        if not self.cascades or (self.resources is not None and resource not in self.resources):
            return None
        return self.parent_id

    def refuses(self, resource: str, now_ms: int) -> bool:
        """Return whether a block refuses a request at a time."""
        return any(one in (None, resource) and (until is None or now_ms < until) for one, until in self.blocks)


class Hierarchy:
    """All entities of a run.

    ``movable`` may be moved below each other. ``limitable`` may have limits across resources.
    """

    def __init__(self, timeline: Timeline, movable: Sequence[str] = (), limitable: Sequence[str] = ()) -> None:
        self._timeline = timeline
        self._entities: dict[str, Known] = {}
        # What may ever be stored: requests in flight may follow it before or after that.
        self._parents = {entity: dict.fromkeys(movable) for entity in movable}
        self._limitable = frozenset(limitable)
        self._across_all = False
        self._across_all_s = _NEVER_S
        self._possible: dict[BucketId, list[BucketId]] = {}

    def begin(self) -> None:
        """Forget when facts changed: no client has cached any of them yet."""
        self._across_all_s = _NEVER_S
        for known in self._entities.values():
            known.moved_s = known.blocked_s = known.across_s = _NEVER_S

    def watch(self, now_ms: int, changes: Sequence[Change], sent: Sent) -> None:
        """Record one write or transaction, and check that no entity is above itself.

        Raises:
            Violation: The parents form a cycle.
        """
        moved = []
        for key, _, new, _ in changes:
            if key.sk == _META:
                entity = key.pk.rpartition("#")[2]
                if self._store(self._known(entity), entity, new or {}):
                    moved.append(entity)
            elif key.sk == _ACROSS:
                self._store_across(key.pk.rpartition("#")[2], _has_limits(new))
            elif key.sk == _CONFIG and key.pk.endswith(_ACROSS_ALL):
                has = _has_limits(new)
                if has != self._across_all:
                    self._across_all, self._across_all_s = has, self._timeline.now_s
        for entity in moved:
            self._check_no_cycle(entity)

    def possible(self, bucket: BucketId) -> list[BucketId]:
        """Return every bucket that a request may take from, by links and limits that it may find at any time."""
        found = self._possible.get(bucket)
        if found is None:
            entities = [bucket[0]]
            for one in entities:
                entities += [above for above in self._parents.get(one, ()) if above not in entities]
            found = [(one, bucket[1]) for one in entities]
            found += [(one, ALL_RESOURCES) for one in entities if one in self._limitable]
            self._possible[bucket] = found
        return found

    def buckets(self, bucket: BucketId, since_s: float) -> set[BucketId] | None:
        """Return the buckets that a request takes from; None if a link, or the limits, changed after a time."""
        found = set()
        complete = False
        for entity, known in self._chain(bucket, since_s):
            if known is None or max(known.across_s, self._across_all_s) > since_s:
                return None
            found.add((entity, bucket[1]))
            if known.across or self._across_all:
                found.add((entity, ALL_RESOURCES))
            complete = known.above(bucket[1]) is None
        return found if complete else None

    def blocker(self, bucket: BucketId, since_s: float, now_ms: int) -> str | None:
        """Return an entity whose block must refuse a request now; None if there is none, or it changed after a time."""
        for entity, known in self._chain(bucket, since_s):
            if known is not None and known.blocked_s <= since_s and known.refuses(bucket[1], now_ms):
                return entity
        return None

    def may_be_blocked(self, bucket: BucketId, since_s: float, then_ms: int) -> bool:
        """Return whether a block refused a request at a time, or anything that decides it changed after a time."""
        for _, known in self._chain(bucket, since_s):
            if known is None or known.blocked_s > since_s or known.refuses(bucket[1], then_ms):
                return True
        return False

    def _chain(self, bucket: BucketId, since_s: float) -> Iterator[tuple[str, Known | None]]:
        """Yield the entities that a request takes from; after one that moved since, an unknown one as None."""
        above: str | None = bucket[0]
        while above is not None:
            known = self._known(above)
            yield above, known
            if known.moved_s > since_s:
                yield above, None
                return
            above = known.above(bucket[1])

    def _known(self, entity: str) -> Known:
        found = self._entities.get(entity)
        if found is None:
            found = self._entities[entity] = Known()
        return found

    def _store(self, known: Known, entity: str, item: Item) -> bool:
        """Record the item of an entity; return whether its link has changed."""
        now_s = self._timeline.now_s
        resources = item.get("cascade_resources")
        chosen = None if resources is None else frozenset(resources.split("#"))
        link = item.get("parent_id"), bool(item.get("cascade")), chosen
        moved = link != (known.parent_id, known.cascades, known.resources)
        if moved:
            known.parent_id, known.cascades, known.resources = link
            known.moved_s = now_s
            if known.parent_id is not None and known.cascades:
                self._parents.setdefault(entity, {})[known.parent_id] = None
                self._possible.clear()
        blocks = tuple((resource, until) for resource, _, until in json.loads(item.get("blocks", "[]")))
        if blocks != known.blocks:
            known.blocks, known.blocked_s = blocks, now_s
        return moved

    def _store_across(self, entity: str, has: bool) -> None:
        known = self._known(entity)
        if has != known.across:
            known.across, known.across_s = has, self._timeline.now_s

    def _check_no_cycle(self, entity: str) -> None:
        seen = [entity]
        above = self._known(entity).parent_id
        while above is not None:
            if above in seen:
                raise Violation("cycle", "the parents form a cycle:", [*seen, above])
            seen.append(above)
            above = self._known(above).parent_id


def _has_limits(item: Item | None) -> bool:
    return item is not None and not item.get("deleted") and any(name.startswith("l_") for name in item)
