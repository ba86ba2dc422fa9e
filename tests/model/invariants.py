"""The invariants of the model, by name, and the reference ledger that they are compared with.

The promise is checked for every span at the same time. ``used`` is the most that any span ending now has used beyond
what it earned. Time lowers this number, use raises it and a credit lowers it, never below zero.
"""

from collections.abc import Callable, Mapping
from itertools import product

from tests.many_shards import part_of, shard_of
from tests.model.config import Config, Milli, Order
from tests.model.plans import Plan
from tests.model.pool import Item, Pool
from tests.model.state import ABSENT, Job, State
from tests.one_bucket import Client, at
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.multi_shard import take_across
from zae_limiter.core.reserve import Reserve
from zae_limiter.schema.bucket_item import BucketView

PROMISE = "promise"
EXACT = "exact"
TOTALS = "totals"
CLAMP = "clamp"
KEPT = "kept"
DEBT = "debt"
BELIEF = "belief"
SHARDS = "shards"
ADMITTED = "admitted"
ONCE = "once"
RESERVE = "reserve"
ALL = frozenset({PROMISE, EXACT, TOTALS, CLAMP, KEPT, DEBT, BELIEF, SHARDS, ADMITTED, ONCE, RESERVE})

Items = tuple[int, ...]


class ViolationError(AssertionError):
    """An invariant does not hold."""

    def __init__(self, invariant: str, message: str) -> None:
        super().__init__(f"{invariant}: {message}")
        self.invariant = invariant
        self.message = message


class Invariants:
    """The checks of one exploration; those that are not in ``checked`` pass."""

    def __init__(
        self,
        config: Config,
        pool: Pool,
        checked: frozenset[str] = ALL,
        decide_across: Callable[..., object] = take_across,
    ) -> None:
        self._config = config
        self._pool = pool
        self._checked = checked
        self._decide_across = decide_across
        self._admitted: set[object] = set()
        self._late = [config.most_earned(name, config.deadline_ticks) for name in config.names]

    def require(self, invariant: str, holds: bool, message: str) -> None:
        """Raise ViolationError unless the invariant holds or is not checked."""
        if not holds and invariant in self._checked:
            raise ViolationError(invariant, message)

    # The reference ledger.

    def after_tick(self, state: State) -> tuple[Milli, ...]:
        """Return the ledger one tick later: every limit has earned."""
        now_ms, ledger = self._config.now_ms(state.phase), []
        for name, used in zip(self._config.names, state.ledger, strict=True):
            rates = [self._rate(self._pool.items[one], name) for one in state.items if one != ABSENT]
            known = [rate for rate in rates if rate is not None] or [self._configured(name, state.version)]
            earned = max((now_ms + self._config.tick_ms) * a // p - now_ms * a // p for a, p in known)
            ledger.append(tuple(max(0, one - earned) for one in used))
        return tuple(ledger)

    def after_write(self, state: State, items: Items, plan: Plan, given: bool) -> tuple[Milli, ...]:
        """Return the ledger after a write, and check the promise; ``given``: the write credits what was held.

        A reset grants what it raises a level by: at most one capacity, and the debt that it ends.
        """
        self.require(ONCE, plan.kind != "grant" or not state.recorded, "a credit was given twice with one key")
        ledger = []
        for at_limit, (name, capacities) in enumerate(zip(self._config.names, self._config.capacities, strict=True)):
            credit = plan.credits[at_limit] if given else 0
            if plan.kind == "reset":
                had, has = (
                    sum(self._pool.level(one, name, state.phase) for one in numbers) for numbers in (state.items, items)
                )
                credit = max(0, has - had)
            spent = plan.takes[at_limit] + plan.debits[at_limit]
            in_force = max(self._capacity(state.items, name), self._capacity(items, name))
            used = tuple(
                max(0, before - credit) + spent if in_force <= capacity else 0
                for capacity, before in zip(capacities, state.ledger[at_limit], strict=True)
            )
            if plan.takes[at_limit]:
                self._check_promise(at_limit, used, items, state.phase)
            ledger.append(used)
        return tuple(ledger)

    def _check_promise(self, at_limit: int, used: Milli, items: Items, phase: int) -> None:
        name = self._config.names[at_limit]
        owed = sum(-min(0, self._pool.level(one, name, phase)) for one in items) if sum(map(bool, items)) > 1 else 0
        for capacity, most in zip(self._config.capacities[at_limit], used, strict=True):
            bound = capacity + self._late[at_limit] + owed
            self.require(PROMISE, most <= bound, f"{most} of {name} used beyond what was earned, of {bound} at most")

    # The effect of one write.

    def check_write(self, before: Items, after: Mapping[int, Item], written: tuple[Plan, Order], phase: int) -> None:
        """Check the balances and totals that a write leaves; ``after`` still has its totals."""
        plan, order = written
        if order.reserve is not None:
            self._check_reserve(before, after, written, phase)
        for at_limit, name in enumerate(self._config.names):
            counted = sum(self._pool.items[before[shard]].get(f"b_{name}_tc", 0) for shard in after)
            total = sum(item.get(f"b_{name}_tc", 0) for item in after.values()) - counted
            self.require(TOTALS, total == plan.net[at_limit], f"{name} counts {total}, used were {plan.net[at_limit]}")
        if plan.kind != "create":
            self._check_kept(before, after, written, phase)
        if plan.kind == "reset":
            left = [shard for shard, one in enumerate(before) if one != ABSENT and shard not in after]
            self.require(KEPT, not left, f"shards {left} were not reset")

    def _check_kept(self, before: Items, after: Mapping[int, Item], written: tuple[Plan, Order], phase: int) -> None:
        """No write creates a token, none decided just now loses one, and none leaves more than fits."""
        plan, order = written
        pool = self._pool
        for at_limit, name in enumerate(self._config.names):
            had = [before[shard] for shard in after if f"b_{name}_tk" in pool.items[before[shard]]]
            has = [pool.number(item) for item in after.values() if f"b_{name}_tk" in item]
            if not had or not has:
                continue
            room = sum(_share(pool.items[one], name) for one in has)
            late = self._late[at_limit] * len(has)
            # A take cuts off what may overflow by the latest time that its sender considers possible.
            cut = self._config.most_earned(name, self._config.unsure) if plan.unsure else 0
            spent = plan.takes[at_limit] + plan.debits[at_limit]
            if spent or plan.kind == "reset":
                left = sum(pool.offered(one, name, phase) for one in has)
                most = room - spent + late
                self.require(CLAMP, left <= most, f"{left} of {name} left, {most} at most")
            level = sum(pool.level(one, name, phase) for one in has)
            held = sum(pool.level(one, name, phase) for one in had)
            if not plan.debits[at_limit]:
                owed = [sum(-min(0, pool.level(one, name, phase)) for one in numbers) for numbers in (had, has)]
                self.require(DEBT, owed[1] <= owed[0] + late + cut, f"{owed[1]} of {name} owed where {owed[0]} were")
            returned = plan.returned[at_limit] if plan.returned else 0
            # A credit comes first: what does not fit is lost, even if tokens are then taken.
            credited = min(room, min(held, room) + plan.credits[at_limit])
            due = min(room, credited + returned - spent)
            if plan.kind == "grant":
                # All that an operator gives back has room.
                due = held + plan.credits[at_limit]
            elif plan.kind == "reset":
                due = room
            self.require(KEPT, level <= due + late, f"{level} of {name} left where {due} are due: tokens were made")
            if not order.effort or plan.kind == "take across":
                self.require(
                    KEPT, level >= due - late - cut, f"{level} of {name} left where {due} are due: tokens were lost"
                )

    def _check_reserve(self, before: Items, after: Mapping[int, Item], written: tuple[Plan, Order], phase: int) -> None:
        """A take leaves its reserve, on every shard that it takes from."""
        (plan, order), pool = written, self._pool
        assert order.reserve is not None, "the caller has checked it"
        for name, taken in zip(self._config.names, plan.takes, strict=True):
            for shard, item in after.items():
                counted = pool.items[before[shard]].get(f"b_{name}_tc", 0)
                if not taken or (len(after) > 1 and item[f"b_{name}_tc"] <= counted):
                    continue
                whole = -(-item[f"b_{name}_cp"] // 1000 * order.reserve.numerator // order.reserve.denominator) * 1000
                least = part_of(whole, shard, item["shard_count"])
                left = pool.level(pool.number(item), name, phase)
                self.require(RESERVE, left >= least, f"{left} of {name} left on shard {shard}, {least} are reserved")

    def check_belief(self, job: Job, *, granted: bool) -> None:
        """A client that treats a write as applied is right. So is one that does not, unless others came between."""
        self.require(BELIEF, not granted or job.acted > 0, "a client treats a write as applied that was not")
        if not job.disturbed:
            message = f"a write was applied {job.acted} times, and treated as {'applied' if granted else 'refused'}"
            self.require(BELIEF, job.acted == granted, message)

    # Every state.

    def check_state(self, state: State) -> None:
        """Check what must hold in a state, whatever led to it."""
        items = state.items
        if SHARDS in self._checked and len(items) > 1:
            self._check_shards(items)
        if (self._config.exact or self._config.unsure) and items[0] != ABSENT:
            for name, capacities, used in zip(self._config.names, self._config.capacities, state.ledger, strict=True):
                level, due = self._pool.level(items[0], name, state.phase), capacities[-1] - used[-1]
                holds = level == due if self._config.exact else level <= due
                self.require(EXACT, holds, f"{level} of {name} offered where {due} are due")
        if ADMITTED in self._checked:
            self._check_admitted(state)

    def _check_shards(self, items: Items) -> None:
        counts = {shard: self._pool.items[one]["shard_count"] for shard, one in enumerate(items) if one}
        owners = [sum(number % count == shard for shard, count in counts.items()) for number in range(64)]
        self.require(SHARDS, not counts or owners == [1] * 64, f"shards do not cover every number once: {counts}")
        expiring = [shard for shard, one in enumerate(items) if "ttl" in self._pool.items[one]]
        self.require(SHARDS, not expiring or len(counts) == 1, f"one of several shards may expire: {expiring}")

    def _check_admitted(self, state: State) -> None:
        """A request made while all others pause is admitted if the tokens exist, however old its view is."""
        items, phase = state.items, state.phase
        whole = sum(map(bool, items)) == 1 and items[0] != ABSENT
        for actor in state.actors[: self._config.clients]:
            for seen in {ABSENT, actor.views[0]} if whole else {ABSENT}:
                key = items, phase, seen, actor.terms
                if key not in self._admitted:
                    self._admitted.add(key)
                    self._ask_alone(items, phase, (seen, actor.terms))

    def _ask_alone(self, items: Items, phase: int, seen: tuple[int, int]) -> None:
        pool, (number, index) = self._pool, seen
        terms = self._config.terms[index]
        if items[0] == ABSENT or any(pool.items[one]["cv"] > terms.stamp for one in items if one):
            return
        now = at(self._config.now_ms(phase))
        for consume, reserve in product(self._config.consumes, self._config.reserves):
            if not consume.keys() <= terms.positions.keys():
                continue
            limits = {name: terms.limits[terms.positions[name]] for name in consume}
            floors = {name: _reserved(limit.capacity, reserve) for name, limit in limits.items()}
            if any(limits[name].capacity < n + floors[name] // 1000 for name, n in consume.items()):
                continue
            enough = all(
                min(self._have(items, name, phase, floors[name]), limits[name].capacity_milli - floors[name])
                >= n * 1000
                for name, n in consume.items()
            )
            views = {k: pool.view(one, index) for k, one in enumerate(items) if one}
            if len(views) == 1:
                client = Client(terms, pool.items[items[0]], pool.view(number, index), trust_ms=0, reserve=reserve)
                admitted = not client.request(consume, now)
            else:
                admitted = self._across(views, (consume, reserve), index, now)
            message = "admitted although it does not fit" if admitted else "rejected although it fits"
            self.require(ADMITTED, admitted == enough, f"{dict(consume)} {message}")

    def _across(
        self,
        views: Mapping[int, BucketView | None],
        asked: tuple[Mapping[str, int], Reserve | None],
        index: int,
        now: TimeBounds,
    ) -> bool:
        terms, (consume, reserve) = self._config.terms[index], asked
        amounts = [(terms.positions[name], n * 1000) for name, n in consume.items()]
        known = {shard: view for shard, view in views.items() if view is not None}
        return self._decide_across(known, amounts, now, 0, reserve) is not None

    def _have(self, items: Items, name: str, phase: int, floor: int) -> int:
        """Return what can be taken of a limit from all shards, of which each leaves its part of a floor.

        A limit that the bucket lacks would be full.
        """
        having = {shard: one for shard, one in enumerate(items) if f"b_{name}_tk" in self._pool.items[one]}
        if not having:
            return max(self._config.capacities[self._config.names.index(name)])
        counts = {shard: self._pool.items[one]["shard_count"] for shard, one in having.items()}
        return sum(
            max(0, self._pool.level(one, name, phase) - part_of(floor, shard, counts[shard]))
            for shard, one in having.items()
        )

    def _capacity(self, items: Items, name: str) -> int:
        return max((self._pool.items[one].get(f"b_{name}_cp", 0) for one in items), default=0)

    @staticmethod
    def _rate(item: Item, name: str) -> tuple[int, int] | None:
        return (item[f"b_{name}_ra"], item[f"b_{name}_rp"]) if f"b_{name}_ra" in item else None

    def _configured(self, name: str, version: int) -> tuple[int, int]:
        limits = [limit for terms in self._config.terms[version:] for limit in terms.limits if limit.name == name]
        limits = limits or [limit for terms in self._config.terms for limit in terms.limits if limit.name == name]
        return limits[0].refill_amount_milli, limits[0].refill_period_ms


def _share(item: Item, name: str) -> int:
    return part_of(item[f"b_{name}_cp"], shard_of(item), item["shard_count"])


def _reserved(capacity: int, reserve: Reserve | None) -> int:
    """Return the millitokens that a request must leave of a capacity in tokens."""
    return 0 if reserve is None else -(-capacity * reserve.numerator // reserve.denominator) * 1000
