"""Order the requests that wait for one bucket.

The request with the highest priority goes first. If several have it, each entity gets a fair share of the bucket, by
weighted fair queueing. Every request has a *tag*: the virtual time at which its entity is entitled to it. A request of
a lower priority goes before that one if it has waited longer, by ``AGE_S`` seconds for each step of priority.

The first request blocks all others, so that small requests do not starve a large one. But a request that must leave a
reserve goes after all that may take from it, however long it has waited. It waits for tokens that these leave.
"""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Generic, NamedTuple, TypeVar

from zae_limiter.core.reserve import Reserve
from zae_limiter.core.waiting import AGE_S, Demand

_GROUPS = 256

_BLOCK = 128
"""A block of requests is split in two above this number. With blocks, no step visits all requests."""


_Group = tuple[float, int]
"""A reserve as a fraction, and a priority with the opposite sign: the smallest group goes first."""


@lru_cache(_GROUPS)
def _group_of(reserve: Reserve | None, priority: int) -> _Group:
    """Return the group of a request. All requests of a group share it, because each that waits keeps it."""
    return 0.0 if reserve is None else reserve.fraction, -priority


class WaitingRequest:
    """A request that waits. ``number`` is its place in the order of arrival, which it keeps in another line.

    ``flow`` is the entity that its turn is charged to. ``reserve`` is what it must leave; None if it may take
    everything. ``group`` follows from that and from the priority.
    """

    __slots__ = (
        "consume",
        "cost",
        "ends_s",
        "flow",
        "group",
        "number",
        "reserve",
        "since_s",
        "tag",
        "weight",
    )

    def __init__(
        self,
        number: int,
        priority: int,
        since_s: float,
        ends_s: float,
        consume: Demand,
        reserve: Reserve | None = None,
    ) -> None:
        self.number = number
        self.since_s = since_s
        self.ends_s = ends_s
        self.consume = consume
        self.flow = ""
        self.weight = 1.0
        self.cost = self.tag = 0.0
        self.reserve = reserve
        # The requests that it is in fair order with: those of the same reserve and priority.
        self.group = _group_of(reserve, priority)

    @property
    def priority(self) -> int:
        """The priority."""
        return -self.group[1]

    @property
    def reserved(self) -> float:
        """The part of each capacity that it must leave."""
        return self.group[0]

    @property
    def rank(self) -> float:
        """Since when the request waits; a step of priority counts as a longer wait."""
        return self.since_s - self.priority * AGE_S

    def precedes(self, other: "WaitingRequest") -> bool:
        """Return whether this request goes first: it has a smaller reserve, or the same and has waited longer."""
        return (self.reserved, self.rank, self.number) < (other.reserved, other.rank, other.number)


W = TypeVar("W", bound=WaitingRequest)


class Ahead(NamedTuple):
    """How many requests are ahead of another one, and the tokens that they ask for."""

    requests: int
    demand: dict[str, int]


class _Flow:
    """The turns of one entity: the virtual times at which its last waiting, and its last admitted request, ends."""

    __slots__ = ("admitted", "finish", "waiting", "weight")

    def __init__(self, virtual: float) -> None:
        self.finish = self.admitted = virtual
        self.waiting = 0
        self.weight = 1.0


class _Block(Generic[W]):
    """Some consecutive requests, their keys, and the sum of what they ask for."""

    __slots__ = ("demand", "keys", "requests")

    def __init__(self, requests: list[W]) -> None:
        self.requests = requests
        self.keys = [(one.tag, one.number) for one in requests]
        self.demand: dict[str, int] = {}
        for one in requests:
            _add(self.demand, one.consume, 1)


def _add(demand: dict[str, int], other: Demand, sign: int) -> None:
    for name, amount in other.items():
        if name in demand:
            demand[name] += sign * amount
        else:
            demand[name] = sign * amount


class _Class(Generic[W]):
    """The waiting requests of one reserve and priority, in fair order."""

    __slots__ = ("_blocks", "_flows", "_in_order", "_members", "_virtual", "_weight", "count", "demand", "newest")

    def __init__(self) -> None:
        self.count = 0
        self.demand: dict[str, int] = {}
        # By number, in the order in which they joined.
        self._members: dict[int, W] = {}
        self._in_order = True
        self.newest = -1
        self._blocks: list[_Block[W]] = []
        self._flows: dict[str, _Flow] = {}
        self._virtual = 0.0
        # The sum of the weights of the flows that wait.
        self._weight = 0.0

    def __iter__(self) -> Iterator[W]:
        for block in self._blocks:
            yield from block.requests

    def add(self, one: W) -> None:
        flow = self._flows.get(one.flow)
        if flow is None:
            self._flows[one.flow] = flow = _Flow(self._virtual)
        if not flow.waiting:
            flow.weight = one.weight
            self._weight += flow.weight
        flow.waiting += 1
        one.tag = start = max(self._virtual, flow.finish)
        flow.finish = start + one.cost / flow.weight
        if one.number < self.newest:
            self._in_order = False
            # It comes from another line. It goes before the later requests of its own flow.
            one.tag = min([other.tag for other in self._later(one)], default=start)
        self.newest = max(self.newest, one.number)
        self._members[one.number] = one
        self._insert(one)
        self.count += 1
        _add(self.demand, one.consume, 1)

    def _later(self, one: W) -> Iterator[W]:
        return (other for other in self if other.flow == one.flow and other.number > one.number)

    def _insert(self, one: W) -> None:
        key = (one.tag, one.number)
        if not self._blocks:
            self._blocks.append(_Block([one]))
            return
        at = self._block_of(key)
        block = self._blocks[at]
        if key > block.keys[-1]:
            if len(block.keys) >= _BLOCK:
                # Not split: requests that come in order fill one block after the other.
                self._blocks.insert(at + 1, _Block([one]))
                return
            place = len(block.keys)
        else:
            place = bisect_left(block.keys, key)
        block.keys.insert(place, key)
        block.requests.insert(place, one)
        _add(block.demand, one.consume, 1)
        if len(block.keys) > _BLOCK:
            half = len(block.keys) // 2
            self._blocks[at : at + 1] = [_Block(block.requests[:half]), _Block(block.requests[half:])]

    def _block_of(self, key: tuple[float, int]) -> int:
        """Return the index of the block that has a key, or that it belongs to."""
        if key >= self._blocks[-1].keys[0]:
            return len(self._blocks) - 1
        return bisect_left(self._blocks, key, key=lambda block: block.keys[-1])

    def remove(self, one: W, *, admitted: bool) -> None:
        flow = self._flows[one.flow]
        if admitted:
            # Not below the weight of the flow, whatever rounding has left of the sum.
            weight = max(self._weight, flow.weight)
            self._virtual = max(self._virtual + one.cost / weight, one.tag)
            flow.admitted = max(flow.admitted, one.tag + one.cost / flow.weight)
        at = place = 0
        if self._blocks[0].requests[0] is not one:
            at = self._block_of((one.tag, one.number))
            place = bisect_left(self._blocks[at].keys, (one.tag, one.number))
        block = self._blocks[at]
        del block.keys[place], block.requests[place]
        _add(block.demand, one.consume, -1)
        if not block.keys:
            del self._blocks[at]
        del self._members[one.number]
        self.count -= 1
        _add(self.demand, one.consume, -1)
        self._leave(flow, one, admitted=admitted)

    def _leave(self, flow: _Flow, one: W, *, admitted: bool) -> None:
        flow.waiting -= 1
        if not flow.waiting:
            self._weight -= flow.weight
            # Turns of requests that were not admitted are not charged to the entity.
            flow.finish = flow.admitted
        elif not admitted and flow.finish == one.tag + one.cost / flow.weight:
            flow.finish = one.tag
        if len(self._flows) > 2 * self.count + 16:
            self._flows = {
                name: flow for name, flow in self._flows.items() if flow.waiting or flow.finish > self._virtual
            }

    def first(self) -> W:
        return self._blocks[0].requests[0]

    def oldest(self) -> W:
        members = self._members
        return members[next(iter(members)) if self._in_order else min(members)]

    def ahead(self, one: W) -> Ahead:
        """Return the requests of the same priority that are ahead of one of them."""
        key = (one.tag, one.number)
        at = self._block_of(key)
        block = self._blocks[at]
        place = bisect_left(block.keys, key)
        blocks, after = self._blocks[:at], self._blocks[at + 1 :]
        if len(after) < len(blocks):
            # The requests behind are fewer.
            demand, behind = dict(self.demand), [one.consume, *_consumed(block.requests[place + 1 :])]
            for consumed in [*(other.demand for other in after), *behind]:
                _add(demand, consumed, -1)
            return Ahead(self.count - sum(len(other.keys) for other in after) - (len(block.keys) - place), demand)
        demand = {}
        if place > len(block.keys) // 2:
            demand = dict(block.demand)
            for consumed in _consumed(block.requests[place:]):
                _add(demand, consumed, -1)
        else:
            for consumed in _consumed(block.requests[:place]):
                _add(demand, consumed, 1)
        for other in blocks:
            _add(demand, other.demand, 1)
        return Ahead(sum(len(other.keys) for other in blocks) + place, demand)


def _consumed(requests: Sequence[WaitingRequest]) -> list[Demand]:
    return [one.consume for one in requests]


class WaitingLine(Generic[W]):
    """The requests that wait for one bucket, in the order in which they are admitted."""

    __slots__ = ("_classes", "_first", "count")

    def __init__(self) -> None:
        self.count = 0
        # The request that is admitted next; None if it is not known.
        self._first: W | None = None
        # In order: the smallest reserve first, then the highest priority.
        self._classes: dict[_Group, _Class[W]] = {}

    def __iter__(self) -> Iterator[W]:
        """Return all requests, those of the highest priority first."""
        for one in self._classes.values():
            yield from one

    def join(self, one: W, cost: float) -> None:
        """Add a request. It keeps its number and its age. ``cost`` is what its turn costs its flow."""
        one.cost = cost
        group = one.group
        found = self._classes.get(group)
        if found is None:
            found = _Class()
            groups = sorted([*self._classes, group])
            self._classes = {known: self._classes.get(known, found) for known in groups}
        found.add(one)
        self.count += 1
        first = self._first
        # With one priority, a request that is not before the first one leaves it the first.
        if first is None or len(self._classes) > 1 or (one.tag, one.number) < (first.tag, first.number):
            self._first = None

    def leave(self, one: W) -> None:
        """Remove a request that is not admitted here. Its turn is not charged to its flow."""
        self._remove(one, admitted=False)

    def admit(self, one: W) -> None:
        """Remove a request that was admitted."""
        self._remove(one, admitted=True)

    def _remove(self, one: W, *, admitted: bool) -> None:
        group = one.group
        found = self._classes[group]
        found.remove(one, admitted=admitted)
        if not found.count:
            del self._classes[group]
        self.count -= 1
        if one is self._first or len(self._classes) > 1:
            self._first = None

    def total(self) -> Demand | None:
        """Return what all requests ask for; None if they differ in priority or reserve."""
        if len(self._classes) != 1:
            return None
        (only,) = self._classes.values()
        return only.demand

    def first(self) -> W | None:
        """Return the request that is admitted next, None if none waits."""
        if self._first is None:
            self._first = self._next()
        return self._first

    def _next(self) -> W | None:
        best: W | None = None
        least = 0.0
        for (reserved, _), one in self._classes.items():
            if best is None:
                best, least = one.first(), reserved
            elif reserved > least:
                # Hazard: the first one blocks all others. One that waits for more than the reserve would let the
                # reserve fill up, though it is there to be used by the others.
                break
            elif one.oldest().rank < best.rank:
                best = one.oldest()
        return best

    def ahead(self, one: W) -> Ahead:
        """Return what is ahead of a request that waits here."""
        group = reserved, lowered = one.group
        count, demand = self._classes[group].ahead(one)
        for (other_reserved, other_lowered), others in self._classes.items():
            if other_reserved > reserved:
                break
            is_higher = other_lowered < lowered
            if other_reserved < reserved or (is_higher and others.newest < one.number):
                count += others.count
                _add(demand, others.demand, 1)
            elif is_higher or (other_lowered > lowered and others.oldest().rank < one.rank):
                older = [other for other in others if other.rank < one.rank]
                count += len(older)
                for other in older:
                    _add(demand, other.consume, 1)
        return Ahead(count, demand)
