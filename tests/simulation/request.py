"""One user's request: make it, use its lease, and record in the holdings what the user was told."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.holdings import Amounts, Holdings
from tests.simulation.invariants import BucketId, Violation
from tests.simulation.levels import ALSO
from tests.simulation.plan import CANCEL_SETTLING, SLOT_LIMIT, SLOTS
from zae_limiter import (
    Also,
    EntityBlockedError,
    Limit,
    RateLimiter,
    RateLimiterUnavailable,
    RateLimitExceeded,
    TooManyBucketsError,
    ValidationError,
)
from zae_limiter._async.limiter.lease import Lease
from zae_limiter._async.limiter.lease_facts import LeaseEntry, LeaseFacts
from zae_limiter._async.limiter.lease_part import LeasePart
from zae_limiter.caches.request import AcquireRequest
from zae_limiter.core.status import OnUnavailable

if TYPE_CHECKING:
    from tests.simulation.fleet import Fleet, Process


class UserRequest(NamedTuple):
    """The tokens that a user asks for; ``own`` are limits that the request brings itself.

    ``also`` are requests for other entities or resources, which are admitted together with it.
    """

    entity_id: str
    resource: str
    consume: dict[str, int]
    own: tuple[Limit, ...] | None
    also: tuple[Also, ...] = ()

    @property
    def bucket(self) -> BucketId:
        return self.entity_id, self.resource

    @property
    def each(self) -> list[tuple[BucketId, Amounts]]:
        """The entity and resource of each request, and what it asks for."""
        return [(self.bucket, self.consume), *(((one.entity_id, one.resource), one.consume) for one in self.also)]


class Begun(NamedTuple):
    """What is known when a request begins.

    ``alone``: no other request of the process is in flight. ``short``: the cache shows that it must be rejected.
    ``requests`` and ``writes`` are those of the process so far. No cached fact is older than ``oldest_s``. ``at_ms`` is
    the server's time, and ``early_s`` the earliest second by the clock of the process.
    """

    alone: bool
    short: bool
    requests: int
    writes: int
    oldest_s: float
    at_ms: int
    early_s: int


class WorkFailedError(Exception):
    """The work that the lease was for has failed."""


_CANCELLED_SETTLING = 0.2
_LONGEST_SETTLING_S = 0.03
"""Seconds. Longer than most settlements take: some are cancelled at each of their awaits, some not at all."""

_LATE_S = 4.0
"""The most seconds that a cached fact may outlive its lifetime: the read took time, and may have lagged."""

_ENDINGS = (RateLimitExceeded, RateLimiterUnavailable, ValidationError, EntityBlockedError, asyncio.CancelledError)
_FAILING = (WorkFailedError, asyncio.CancelledError, RateLimitExceeded, RateLimiterUnavailable)
"""What ends the work of a lease early."""


class Requests:
    """The requests of one client's users."""

    def __init__(self, fleet: "Fleet", process: "Process", limiter: RateLimiter) -> None:
        self._fleet = fleet
        self._timeline = fleet.timeline
        self._holdings: Holdings = fleet.holdings
        self._process = process
        self._port = process.port
        self._limiter = limiter
        self._random = process.random
        self._most_s = 4 * fleet.scenario.deadline_s + 2
        self._habits = fleet.scenario.habits
        self._blocks = limiter._client.choice(None) is OnUnavailable.BLOCK
        self._defers = limiter._client._scope.settings.settle_within_s > 0
        # A lease that is never left renews its slots forever. Without slots, such a lease changes nothing.
        blocks = (EntityBlockedError,) if SLOTS in fleet.plan.faults else ()
        self._failing = (*_FAILING, *blocks)
        # The settlements that were put off: what is charged and credited, by bucket, and when they began.
        self._put_off: list[tuple[BucketId, Amounts, Amounts, int]] = []
        self._failures = self._port.failures
        # Requests in flight, and how many ever began: writes are attributed to a request only if it was alone.
        self._active = self._begun = 0
        # Separate random numbers, so that the rest of the run is the same without them.
        settling = CANCEL_SETTLING in fleet.plan.faults
        self._settling = fleet.plan.part(f"settling of {process.name}") if settling else None

    async def run(self, ask: UserRequest) -> None:
        """Make a request and use its lease."""
        self._active += 1
        self._begun += 1
        try:
            await self._run(ask)
        except Violation as violation:
            self._timeline.fail(violation)
        except asyncio.CancelledError:
            pass
        except (RateLimitExceeded, RateLimiterUnavailable, ValidationError, EntityBlockedError):
            pass
        finally:
            self._active -= 1

    async def _run(self, ask: UserRequest) -> None:
        possible = self._fleet.hierarchy.possible
        may = [(bucket, consume) for first, consume in ask.each for bucket in possible(first)]
        lease = self._limiter.acquire(*ask[:3], limits=ask.own, also=ask.also)
        tally = self._fleet.tally
        tally["acquires"] += 1
        failures = self._port.failures
        for bucket, consume in may:
            self._holdings.may_take(bucket, consume)
        begun = self._begin(ask)
        try:
            await self._timed("acquire", lease.__aenter__)
        except BaseException as error:
            self._ended(error)
            self._check_refusal(ask, begun, error)
            if failures == self._port.failures:
                for bucket, consume in may:
                    self._holdings.did_not_take(bucket, consume)
            raise
        tally["degraded" if lease.degraded else "granted"] += 1
        self._note_slots(lease, begun.at_ms)
        self._check_grant(ask, begun, lease)
        for part, (first, consume) in zip(_parts(lease), ask.each, strict=True):
            self._granted(part, possible(first), consume, failures)
        await self._use(lease, dict(ask.consume))

    def _begin(self, ask: UserRequest) -> "Begun":
        """Return what is known when a request begins."""
        # Only for a request that is alone from its beginning to its end: others of the process write too.
        # A settlement that was put off is written by the next request, even if that is rejected.
        alone = self._active == 1 and not self._defers
        short = alone and self._is_known_short(ask)
        oldest_s = self._timeline.now_s - self._fleet.scenario.cache_s - self._fleet.scenario.deadline_s - _LATE_S
        return Begun(
            alone,
            short,
            self._begun,
            self._port.writes,
            oldest_s,
            self._fleet.server.now_ms(),
            self._early_s(),
        )

    def _early_s(self) -> int:
        """Return the earliest second that it may be by the clock of the process, 0 if it does not know the time yet."""
        clock = self._port._server_clock
        return self._port.now()[0] // 1000 if clock.known and not clock.unconfirmed else 0

    def _check_refusal(self, ask: UserRequest, begun: "Begun", error: BaseException) -> None:
        """A request that is known to be too large, or is blocked, costs no write; and only a block is a block."""
        if isinstance(error, RateLimitExceeded) and not isinstance(error, ValidationError):
            self._fleet.quotas.judge(self._process.name, begun.early_s, error)
        blocked = isinstance(error, EntityBlockedError)
        if (begun.alone and blocked) or (begun.short and isinstance(error, RateLimitExceeded)):
            wasted = self._port.writes - begun.writes
            if wasted and begun.requests == self._begun:
                raise Violation("wasted", wasted, "writes for a request that is known to fail:", ask, error) from error
        # The client's time counts: it may not have noticed yet that the server's clock was set forward.
        then_ms = min(begun.at_ms, self._port.now()[0]) - int(_LATE_S * 1000)
        hierarchy = self._fleet.hierarchy
        if blocked and not any(hierarchy.may_be_blocked(one, begun.oldest_s, then_ms) for one, _ in ask.each):
            raise Violation("blocked", ask, "was refused, but nothing is blocked:", error) from error

    def _check_grant(self, ask: UserRequest, begun: "Begun", lease: Lease) -> None:
        """A lease has taken from every bucket of its chain, and from no other; and none of its entities is blocked."""
        hierarchy = self._fleet.hierarchy
        if lease.degraded:
            return
        now_ms = self._fleet.server.now_ms()
        expected: set[BucketId] | None = set()
        for first, _ in ask.each:
            blocker = hierarchy.blocker(first, begun.oldest_s, now_ms)
            if blocker is not None:
                raise Violation("blocked", ask, "was admitted, although this entity is blocked:", blocker)
            found = hierarchy.buckets(first, begun.oldest_s)
            expected = None if expected is None or found is None else expected | found
        charged = {bucket for part in _parts(lease) for bucket in _names_by_bucket(part)}
        if expected is None:
            return
        self._fleet.tally["chains checked"] += 1
        self._fleet.tally[f"chains of {len(expected)} buckets"] += 1
        if charged != expected:
            raise Violation("chain", ask, "took from", sorted(charged), "instead of", sorted(expected))

    def _is_known_short(self, ask: UserRequest) -> bool:
        """Return whether the client's cache shows that one of several buckets lacks the requested tokens."""
        client = self._limiter._client
        parts: list[AcquireRequest] = []
        try:
            for number, (bucket, consume) in enumerate(ask.each):
                chain = client.chains.known(bucket)
                if chain is None:
                    return False
                own = None if number else ask.own
                parts += client.chains.requests(chain, AcquireRequest(bucket, consume, own, client.until_s()))
        except ValidationError:
            return False
        if ask.own is not None and len({part.bucket for part in parts}) < len(parts):
            # A bucket that occurs several times is judged once, by the limits of the caller.
            return False
        return len(parts) > 1 and any(self._is_bucket_short(part) for part in parts)

    def _is_bucket_short(self, part: AcquireRequest) -> bool:
        client, bucket = self._limiter._client, part.bucket
        view, terms = client.buckets.remembered(bucket), client.resolver.known_terms(bucket, part.own)
        if view is None or terms is None or view.layout.shared.is_mixed:
            return False
        now = self._port.now()
        fresh = 0 <= now[1] - view.seen_ms < self._fleet.scenario.reject_s * 1000
        if not fresh or not view.layout.follows(terms) or view.layout.shard_count != 1:
            return False
        levels = {
            name: view.layout.baseline(position).level(view.numbers[position], now[0])
            for name, position in terms.positions.items()
        }
        return any(amount and amount * 1000 > levels.get(name, amount * 1000) for name, amount in part.consume.items())

    def _granted(self, lease: LeasePart, buckets: list[BucketId], amounts: Amounts, failures: int) -> None:
        """Record what a lease holds of each bucket; of other buckets it holds nothing."""
        held = _names_by_bucket(lease)
        for bucket in buckets:
            names = held.get(bucket, ())
            self._holdings.did_take(bucket, {name: one for name, one in amounts.items() if name in names})
            if failures == self._port.failures:
                self._holdings.did_not_take(bucket, {name: one for name, one in amounts.items() if name not in names})

    def _note_slots(self, lease: Lease, began_ms: int) -> None:
        """Record the slots that a lease holds since a call that began at a time."""
        for part in _parts(lease):
            for bucket, hold in part._slots.items():
                self._fleet.slots.open(bucket, hold, began_ms)

    async def _use(self, lease: Lease, held: Amounts) -> None:
        """Hold a lease for a while, perhaps change it, and close it with success or with an error."""
        pending: Amounts = {}
        try:
            await self._work(lease, held, pending)
        except self._failing as error:
            failure = error
            given = {name: -amount for name, amount in held.items()}
            # What was taken also is given back with it.
            also = [(part, {name: -amount for name, amount in part.consumed.items()}) for part in lease.also]
            exit_failed = lambda: lease.__aexit__(type(failure), failure, None)  # noqa: E731 - for the length of a line
            await self._settle(lease, given, exit_failed, also=also)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            await self._settle(lease, pending, lambda: lease.__aexit__(None, None, None))

    async def _work(self, lease: Lease, held: Amounts, pending: Amounts) -> None:
        random = self._random
        drawn = random.random()
        if drawn < 0.4:
            return
        longest_s = 3.0 if random.random() < 0.1 else 0.3
        if self._habits.long_leases and random.random() < self._habits.long_leases:
            longest_s = 25.0
        await asyncio.sleep(longest_s * random.random() * random.random())
        if self._habits.greedy and any(2 * held[name] > self._fleet.capacity(name) for name in held):
            raise WorkFailedError
        if drawn < 0.7:
            return
        name = random.choice(list(held))
        if drawn < 0.8 and name != SLOT_LIMIT:
            most = max(1, self._fleet.scenario.amounts.get(name, 1))
            if random.random() < self._fleet.scenario.deep:
                most = 8 * self._fleet.capacity(name)
            pending[name] = random.randint(0, most) if random.random() < 0.6 else -random.randint(0, held[name])
            await lease.adjust(**pending)
        elif drawn < 0.86:
            await self._consume_more(lease, name, held)
        elif drawn < 0.92:
            amount = random.randint(0, held[name])
            held[name] -= amount
            await self._settle(lease, {name: -amount}, lambda: lease.release(**{name: amount}), now=True)
        else:
            raise WorkFailedError

    async def _consume_more(self, lease: Lease, name: str, held: Amounts) -> None:
        """Take more of a limit from every bucket of the lease."""
        more = {name: self._random.randint(1, max(1, held[name]))}
        ask = self._lease_buckets(lease)
        failures, before, began_ms = self._port.failures, _given(lease), self._fleet.server.now_ms()
        self._may_take(ask, more)
        try:
            await self._timed("consume", lambda: lease.consume(**more))
        except BaseException as error:
            self._ended(error)
            if failures == self._port.failures:
                for bucket in ask:
                    self._holdings.did_not_take(bucket, more)
            if isinstance(error, ValidationError):
                return
            raise
        self._note_slots(lease, began_ms)
        if lease.degraded or lease._pending:
            # Allowed because the store is unavailable; it may be charged at the end of the lease. What some buckets
            # gave before may stay charged too, because their credits may have failed as well.
            self._may_take(ask if failures != self._port.failures else (), more)
            return
        held[name] += more[name]
        after = _given(lease)
        for bucket in ask:
            # After a move or a change of limits, a bucket may have given nothing of it.
            if after.get(bucket, {}).get(name, 0) > before.get(bucket, {}).get(name, 0):
                self._holdings.did_take(bucket, more)
            elif failures == self._port.failures:
                self._holdings.did_not_take(bucket, more)

    def _may_take(self, buckets: Sequence[BucketId], amounts: Amounts) -> None:
        for bucket in buckets:
            self._holdings.may_take(bucket, amounts)

    async def flush(self) -> None:
        """Write what was put off. If no call of the client ever failed, all of it must have been counted."""
        await self._limiter._client.flush()
        if self._failures != self._port.failures:
            return
        for bucket, up, down, begun in self._put_off:
            charged = [name for name in up if not self._fleet.invariants.lacked(bucket, name, begun)]
            self._holdings.did_take(bucket, _of(up, charged))
            self._holdings.did_not_take(bucket, down)

    async def _settle(
        self,
        lease: Lease,
        changes: Amounts,
        call: Callable[[], Awaitable[object]],
        *,
        now: bool = False,
        also: Sequence[tuple[LeasePart, Amounts]] = (),
    ) -> None:
        """Record what is charged or credited, before the call and after it."""
        owed = [one for part, amounts in ((lease, changes), *also) for one in _owed(part, amounts)]
        failures, invariants = self._port.failures, self._fleet.invariants
        begun = invariants.steps
        for bucket, up, down in owed:
            self._holdings.may_take(bucket, up)
            self._holdings.may_give_back(bucket, down)
        cancelled = None
        cancellations = self._cancellations()
        try:
            await self._timed("settle", call)
        except asyncio.CancelledError as error:
            # The settlement was completed nevertheless.
            cancelled = error
        except BaseException as error:
            self._ended(error)
            raise
        finally:
            for cancellation in cancellations:
                cancellation.cancel()
        if self._defers and not now:
            self._put_off += [(*one, begun) for one in owed]
            owed = []
        for bucket, up, down in owed:
            if (self._blocks and cancelled is None) or failures == self._port.failures:
                # Despite the faults: a blocking client that reports no error has charged everything.
                # Except limits that the bucket lacked meanwhile: their charges are dropped.
                charged = [name for name in up if not invariants.lacked(bucket, name, begun)]
                self._holdings.did_take(bucket, _of(up, charged))
            if failures == self._port.failures:
                self._holdings.did_not_take(bucket, down)
        if cancelled is not None:
            raise cancelled

    def _cancellations(self) -> list[asyncio.TimerHandle]:
        """Schedule cancellations of the user while its lease settles: one or more, or none."""
        chance, task = self._settling, asyncio.current_task()
        if chance is None or task is None or chance.random() >= _CANCELLED_SETTLING:
            return []
        self._fleet.tally["settling cancelled"] += 1
        delays_s = [_LONGEST_SETTLING_S * chance.random() ** 2 for _ in range(chance.randint(1, 3))]
        return [self._process.loop.call_later(delay_s, task.cancel) for delay_s in delays_s]

    def _lease_buckets(self, lease: Lease) -> list[BucketId]:
        """Return every bucket that a lease may take from: entities may have moved or got limits since."""
        found = list(_names_by_bucket(lease))
        possible = self._fleet.hierarchy.possible((lease.entity_id, lease.resource)) if found else []
        return list(dict.fromkeys([*found, *possible]))

    async def _timed(self, what: str, call: Callable[[], Awaitable[object]]) -> None:
        """Make a call. It must end within its deadline plus a tolerance."""
        started_s = self._timeline.now_s
        try:
            await call()
        finally:
            took_s = self._timeline.now_s - started_s
            if took_s > self._most_s and self._process.loop.alive:
                self._timeline.fail(Violation("waited", what, "took", round(took_s, 3), "s at", self._timeline.now_s))

    def _ended(self, error: BaseException) -> None:
        """Count how a request ended. An undocumented exception fails the run."""
        if not self._process.loop.alive:
            # The task was discarded after a crash: no user is there to see the error.
            return
        self._fleet.tally[type(error).__name__] += 1
        # No tree has more levels or buckets than an acquire may take from. Several requests may have more of them.
        too_many = isinstance(error, TooManyBucketsError) and ALSO not in self._fleet.plan.faults
        if too_many or not isinstance(error, _ENDINGS):
            self._timeline.fail(error)


def _parts(lease: Lease) -> list[LeasePart]:
    """Return what a lease holds of each of its requests."""
    return [lease, *lease.also]


def _names_by_bucket(part: LeasePart) -> dict[BucketId, list[str]]:
    """Return the buckets of one request, without those of the others of its lease."""
    entries: list[LeaseEntry] = LeaseFacts.entries.__get__(part)
    return {(entry.entity_id, entry.resource): list(entry.consumed) for entry in entries}


def _owed(part: LeasePart, changes: Amounts) -> list[tuple[BucketId, Amounts, Amounts]]:
    """Return what changes mean for each bucket of a request: what is charged, and what is credited."""
    up = {name: amount for name, amount in changes.items() if amount > 0}
    down = {name: -amount for name, amount in changes.items() if amount < 0}
    given = _given(part)
    return [
        (
            bucket,
            _of(up, held),
            {name: min(amount, given[bucket].get(name, 0)) for name, amount in _of(down, held).items()},
        )
        for bucket, held in _names_by_bucket(part).items()
    ]


def _given(part: LeasePart) -> dict[BucketId, Amounts]:
    """Return what each bucket of a request has given, adjustments that are not written yet left out."""
    return {one.bucket: one.gave(part._taken or {}) for one in part._buckets()}


def _of(amounts: Amounts, names: Collection[str]) -> Amounts:
    return {name: amount for name, amount in amounts.items() if name in names}
