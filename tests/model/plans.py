"""The writes of an actor, decided by ``core`` on its views and made by the rules."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from tests.model.config import Config, Milli, Order
from tests.model.creators import Creators
from tests.model.pool import Pool
from tests.model.rules import Rules
from tests.model.state import Creator
from tests.one_bucket import OWNER
from zae_limiter.core.acquire import Progress, Rebase, Resolve, Take
from zae_limiter.core.add_or_set import Effort
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement, Settling, settle
from zae_limiter.core.reserve import floor_of
from zae_limiter.core.sharding import is_complete
from zae_limiter.core.splitting import merge, split
from zae_limiter.schema.bucket_item import BucketView
from zae_limiter.schema.bucket_writes import Signature


class Plan(NamedTuple):
    """Writes to shards, of one transaction if ``token``, and what they take, charge and credit.

    ``kind`` is the resulting write: a take may turn out to be a create or a rebase. ``returned`` is what a top-up
    returns. ``unsure``: the sender knew the time only roughly.
    """

    kind: str
    writes: tuple[tuple[int, Any], ...]
    takes: Milli
    debits: Milli
    credits: Milli
    token: bool = False
    returned: Milli = ()
    unsure: bool = False

    @property
    def net(self) -> Milli:
        """What is used of each limit."""
        return tuple(t + d - c for t, d, c in zip(self.takes, self.debits, self.credits, strict=True))


class Learn(NamedTuple):
    """Nothing is written: the configuration must be read again."""


class Marks(NamedTuple):
    """The nonce of a write, the birth number that it draws if it creates, and that of the charged bucket.

    ``unsure`` and ``creator`` are what the sender knew when it decided.
    """

    nonce: int
    fresh: int
    birth: int
    unsure: int = 0
    creator: Creator | None = None


Writes = Iterable[tuple[int, Any]]
"""Operations, each with its shard."""

Decision = Plan | Learn | None
"""None: nothing can be written, because the request would be rejected, or its shard was never read."""


class Planner:
    """Decides, and makes the writes; each case is computed once."""

    def __init__(self, config: Config, pool: Pool, rules: Rules) -> None:
        self._config = config
        self._pool = pool
        self._rules = rules
        self._creators = Creators(config, pool)
        self._none = config.milli({})
        self._known: dict[object, Decision] = {}

    def plan(
        self, order: Order, seen: tuple[tuple[int, ...], int], now_ms: int, marks: Marks, *, again: bool = False
    ) -> Decision:
        """Return the writes of an actor with these views and limits for an order; ``again``: sent again."""
        key = order, seen, now_ms, marks, again
        if key not in self._known:
            now = self._creators.moment(now_ms, marks.unsure)
            decided = self._decide(order, seen, now, marks, again)
            if isinstance(decided, Plan) and marks.unsure:
                decided = decided._replace(unsure=True)
            if decided is None and order.kind == "ask" and marks.creator is not None:
                decided = self._top_up(order, seen, now_ms, marks)
            if again and isinstance(decided, Plan) and not decided.token:
                birth = self._rules.birth(marks.fresh, marks.nonce)
                writes = tuple((shard, self._rules.sent_again(write, birth)) for shard, write in decided.writes)
                decided = decided._replace(writes=writes)
            self._known[key] = decided
        return self._known[key]

    def _decide(
        self, order: Order, seen: tuple[tuple[int, ...], int], now: TimeBounds, marks: Marks, again: bool
    ) -> Decision:
        numbers, terms = seen
        nonce = marks.nonce
        views = {shard: view for shard, one in enumerate(numbers) if (view := self._pool.view(one, terms)) is not None}
        match order.kind:
            case "ask":
                return self._ask(order, (views.get(order.shard), terms), now, marks)
            case "across":
                return self._across(order, views, terms, now, nonce)
            case "combine":
                return self._combine(order, (views.get(order.shard), terms), now, marks, again)
            case "settle":
                return self._settle(order, views.get(order.shard), now, marks, again)
            case "split":
                return self._split(order, views.get(order.shard), now, nonce)
            case "reset" | "grant":
                return self._operate(order, views, now, nonce)
            case _:
                return self._merge(order, views, now, nonce)

    def _amounts(self, order: Order, terms: int) -> list[tuple[int, int]] | None:
        """Return the amounts by position, None if a limit is not in force, or is too small for amount and reserve."""
        known = self._config.terms[terms]
        amounts = []
        for name, milli in zip(self._config.names, order.takes, strict=True):
            if milli:
                position = known.positions.get(name)
                if position is None:
                    return None
                limit = known.limits[position]
                if milli + floor_of(limit, order.reserve) * 1000 > limit.capacity_milli:
                    return None
                amounts.append((position, milli))
        return amounts

    def _ask(self, order: Order, seen: tuple[BucketView | None, int], now: TimeBounds, marks: Marks) -> Decision:
        view, index = seen
        nonce = marks.nonce
        terms, amounts = self._config.terms[index], self._amounts(order, index)
        if amounts is None:
            return None
        if view is None:
            if order.shard or order.effort:
                return None
            spent = {terms.limits[position].name: milli for position, milli in amounts}
            birth = self._rules.birth(marks.fresh, nonce)
            write = self._rules.create(OWNER, terms, spent, now[1], Signature(nonce, birth))
            return self._plan("create", [(0, write)], order, takes=True)
        effort = Effort(sure=True, yielding=order.effort)
        progress = Progress(trust_ms=0, looked=True, effort=effort)
        match self._rules.next_step(view, terms, amounts, now, progress, order.reserve):
            case Take() as step:
                return self._plan("take", [(order.shard, self._rules.take(view, step, nonce))], order, takes=True)
            case Rebase(rebasing=rebasing, takes=takes):
                if order.effort:
                    return None
                write = self._rules.rebase(view, rebasing, nonce)
                return self._plan("rebase", [(order.shard, write)], order, takes=takes)
            case Resolve():
                return Learn()
            case _:
                return None

    def _top_up(self, order: Order, seen: tuple[tuple[int, ...], int], now_ms: int, marks: Marks) -> Decision:
        """Return a take that would be rejected, together with what the creation of the bucket withheld."""
        numbers, index = seen
        view, known, terms = self._pool.view(numbers[0], index), marks.creator, self._config.terms[index]
        amounts = self._amounts(order, index)
        if view is None or known is None or amounts is None:
            return None
        creation = self._creators.creation(known, view, now_ms)
        topping = self._rules.topped_up(
            creation, view, terms, amounts, self._creators.known(known, now_ms, marks.unsure)
        )
        if topping is None:
            return None
        plan = self._plan("top-up", [(0, self._rules.top_up(view, topping, marks.nonce))], order, takes=True)
        returned = tuple(topping.returned[terms.positions[name]] for name in self._config.names)
        return plan._replace(returned=returned, unsure=marks.unsure > 0)

    def _across(self, order: Order, views: dict[int, BucketView], index: int, now: TimeBounds, nonce: int) -> Decision:
        terms, amounts = self._config.terms[index], self._amounts(order, index)
        if amounts is None or len(views) < 2 or not all(view.layout.follows(terms) for view in views.values()):
            return None
        if not is_complete({shard: view.layout.shard_count for shard, view in views.items()}):
            return None
        written = self._rules.take_across(views, amounts, now, order.effort, order.reserve)
        if written is None:
            return None
        writes = [(k, self._rules.take(views[k], taking, nonce)) for k, taking in written.items()]
        return self._plan("take across", writes, order, takes=True, token=True)

    def _settle(self, order: Order, view: BucketView | None, now: TimeBounds, marks: Marks, again: bool) -> Decision:
        if view is None:
            return None
        birth = None if self._rules.credits_any else marks.birth
        owed = Settlement(self._named(order.debits), self._named(order.credits), birth)
        settling = settle(view, owed, now, 0)
        credits = order.credits if self._rules.credits_any or view.layout.birth == marks.birth else self._none
        if again and not self._rules.resends_credits:
            settling = Settling([part for part in settling.parts if part.spent >= 0], settling.held)
            credits = self._none
        if not settling.parts:
            return None
        kind = "debit" if any(order.debits) else "credit"
        write = self._rules.settle(view, settling, marks.nonce)
        return self._plan(kind, [(order.shard, write)], order._replace(credits=credits))

    def _combine(
        self, order: Order, seen: tuple[BucketView | None, int], now: TimeBounds, marks: Marks, again: bool
    ) -> Decision:
        """Return a take that also settles. Sent again, it has no credits."""
        view, index = seen
        terms, amounts = self._config.terms[index], self._amounts(order, index)
        if view is None or amounts is None:
            return None
        birth = None if self._rules.credits_any else marks.birth
        owed = Settlement(self._named(order.debits), self._named(order.credits), birth)
        progress = Progress(trust_ms=0, looked=True, effort=Effort(sure=True, yielding=order.effort))
        combined = self._rules.combined(view, terms, amounts, owed, now, progress, order.reserve)
        if combined is None:
            return None
        taking, parts, credits = combined.taking, combined.parts, order.credits
        if again and not self._rules.resends_credits:
            taking, parts, credits = combined.again, combined.debit_parts, self._none
        write = self._rules.take_and_settle(view, taking, parts, marks.nonce)
        kind = "take + credit" if any(order.credits) else "take + debit"
        return self._plan(kind, [(order.shard, write)], order._replace(credits=credits), takes=True)

    def _split(self, order: Order, view: BucketView | None, now: TimeBounds, nonce: int) -> Decision:
        if view is None or view.layout.shard_count * 2 > self._config.most_shards:
            return None
        levels = [base.level(view.numbers[at], now[0]) for at, base in enumerate(view.layout.baselines)]
        splitting = split(view, now)
        if splitting is None or any(max(0, level) // 2 % self._config.grain for level in levels):
            return None
        old, new = self._rules.split(view, splitting, nonce)
        return self._plan("split", [(order.shard, old), (splitting.new_shard, new)], order, token=True)

    def _merge(self, order: Order, views: dict[int, BucketView], now: TimeBounds, nonce: int) -> Decision:
        staying = views.get(order.shard)
        half = 0 if staying is None else staying.layout.shard_count // 2
        leaving = views.get(order.shard + half) if half else None
        if staying is None or leaving is None:
            return None
        merging = merge(staying, leaving, now)
        if merging is None:
            return None
        stays, goes = self._rules.merge(staying, leaving, merging, nonce)
        return self._plan("merge", [(order.shard, stays), (order.shard + half, goes)], order, token=True)

    def _operate(self, order: Order, views: dict[int, BucketView], now: TimeBounds, nonce: int) -> Decision:
        """Return what an operator writes to all shards, None if some were not seen or there is nothing to write."""
        if not is_complete({shard: view.layout.shard_count for shard, view in views.items()}):
            return None
        if order.kind == "reset":
            filled = self._rules.filled(views, now)
            writes = [(k, self._rules.reset(views[k], parts, nonce)) for k, parts in sorted(filled.items())]
            return self._plan("reset", writes, order, token=True)
        wanted = {name: milli // 1000 for name, milli in self._named(order.credits)}
        found = self._rules.granted(views, wanted, now)
        if not found.parts:
            return None
        writes = [(k, self._rules.operator_credit(views[k], parts, nonce)) for k, parts in sorted(found.parts.items())]
        return self._plan("grant", writes, order._replace(credits=self._config.milli(found.given)), token=True)

    def _plan(self, kind: str, writes: Writes, order: Order, *, takes: bool = False, token: bool = False) -> Plan:
        return Plan(kind, tuple(writes), order.takes if takes else self._none, order.debits, order.credits, token)

    def _named(self, milli: Milli) -> tuple[tuple[str, int], ...]:
        return tuple((name, amount) for name, amount in zip(self._config.names, milli, strict=True) if amount)
