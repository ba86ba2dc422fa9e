"""One user's request: make it, use its lease, and record in the holdings what the user was told."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, NamedTuple

from tests.simulation.holdings import Amounts, Holdings
from tests.simulation.invariants import BucketId, Violation
from tests.simulation.plan import CANCEL_SETTLING
from zae_limiter import Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded, ValidationError
from zae_limiter._async.limiter.lease import Lease
from zae_limiter.core.status import OnUnavailable

if TYPE_CHECKING:
    from tests.simulation.fleet import Fleet, Process


class UserRequest(NamedTuple):
    """The tokens that a user asks for; ``own`` are limits that the request brings itself."""

    entity_id: str
    resource: str
    consume: dict[str, int]
    own: tuple[Limit, ...] | None

    @property
    def bucket(self) -> BucketId:
        return self.entity_id, self.resource


class WorkFailedError(Exception):
    """The work that the lease was for has failed."""


_CANCELLED_SETTLING = 0.2
_LONGEST_SETTLING_S = 0.03
"""Seconds. Longer than most settlements take: some are cancelled at each of their awaits, some not at all."""

_ENDINGS = (RateLimitExceeded, RateLimiterUnavailable, ValidationError, asyncio.CancelledError)


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
        except (RateLimitExceeded, RateLimiterUnavailable, ValidationError):
            pass
        finally:
            self._active -= 1

    async def _run(self, ask: UserRequest) -> None:
        parent = self._fleet.scenario.parents.get(ask.entity_id)
        buckets = [ask.bucket] if parent is None else [ask.bucket, (parent, ask.resource)]
        lease = self._limiter.acquire(*ask[:3], limits=ask.own)
        tally = self._fleet.tally
        tally["acquires"] += 1
        failures = self._port.failures
        for bucket in buckets:
            self._holdings.may_take(bucket, ask.consume)
        # Only for a request that is alone from its beginning to its end: others of the process write too.
        # A settlement that was put off is written by the next request, even if that is rejected.
        alone = self._active == 1 and not self._defers
        known = parent is not None and alone and self._is_known_short((parent, ask.resource), ask)
        before = self._begun, self._port.writes
        try:
            await self._timed("acquire", lease.__aenter__)
        except BaseException as error:
            self._ended(error)
            if known and isinstance(error, RateLimitExceeded) and before[0] == self._begun:
                wasted = self._port.writes - before[1]
                if wasted:
                    raise Violation("wasted", wasted, "writes for a request known to be too large:", ask) from error
            if failures == self._port.failures:
                for bucket in buckets:
                    self._holdings.did_not_take(bucket, ask.consume)
            raise
        tally["degraded" if lease.degraded else "granted"] += 1
        self._granted(lease, buckets, ask.consume, failures)
        await self._use(lease, dict(ask.consume))

    def _is_known_short(self, bucket: BucketId, ask: UserRequest) -> bool:
        """Return whether the client's cache shows that the parent lacks the requested tokens."""
        client = self._limiter._client
        view, terms = client.buckets.remembered(bucket), client.resolver.known_terms(bucket, None)
        if view is None or terms is None or client.cascading_limits(ask.bucket) is None:
            return False
        now = self._port.now()
        fresh = 0 <= now[1] - view.seen_ms < self._fleet.scenario.reject_s * 1000
        if not fresh or not view.layout.follows(terms) or view.layout.shard_count != 1:
            return False
        levels = {
            name: view.layout.baseline(position).level(view.numbers[position], now[0])
            for name, position in terms.positions.items()
        }
        return any(amount and amount * 1000 > levels.get(name, amount * 1000) for name, amount in ask.consume.items())

    def _granted(self, lease: Lease, buckets: list[BucketId], amounts: Amounts, failures: int) -> None:
        """Record what a lease holds of each bucket; of other buckets it holds nothing."""
        held = _names_by_bucket(lease)
        for bucket in buckets:
            names = held.get(bucket, ())
            self._holdings.did_take(bucket, {name: one for name, one in amounts.items() if name in names})
            if failures == self._port.failures:
                self._holdings.did_not_take(bucket, {name: one for name, one in amounts.items() if name not in names})

    async def _use(self, lease: Lease, held: Amounts) -> None:
        """Hold a lease for a while, perhaps change it, and close it with success or with an error."""
        pending: Amounts = {}
        try:
            await self._work(lease, held, pending)
        except (WorkFailedError, asyncio.CancelledError, RateLimitExceeded, RateLimiterUnavailable) as error:
            failure = error
            given = {name: -amount for name, amount in held.items()}
            await self._settle(lease, given, lambda: lease.__aexit__(type(failure), failure, None))
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
        if drawn < 0.8:
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
        failures = self._port.failures
        for bucket in ask:
            self._holdings.may_take(bucket, more)
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
        if lease.degraded or lease._pending:
            # Allowed because the store is unavailable; it may be charged at the end of the lease.
            return
        held[name] += more[name]
        names = _names_by_bucket(lease)
        for bucket in ask:
            if name in names.get(bucket, ()):
                self._holdings.did_take(bucket, more)

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
        self, lease: Lease, changes: Amounts, call: Callable[[], Awaitable[object]], *, now: bool = False
    ) -> None:
        """Record what is charged or credited, before the call and after it."""
        changes = {name: amount for name, amount in changes.items() if amount}
        up = {name: amount for name, amount in changes.items() if amount > 0}
        down = {name: -amount for name, amount in changes.items() if amount < 0}
        names = _names_by_bucket(lease)
        failures, invariants = self._port.failures, self._fleet.invariants
        begun = invariants.steps
        for bucket, held in names.items():
            self._holdings.may_take(bucket, _of(up, held))
            self._holdings.may_give_back(bucket, _of(down, held))
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
            self._put_off += [(bucket, _of(up, held), _of(down, held), begun) for bucket, held in names.items()]
            names = {}
        for bucket, held in names.items():
            if (self._blocks and cancelled is None) or failures == self._port.failures:
                # Despite the faults: a blocking client that reports no error has charged everything.
                # Except limits that the bucket lacked meanwhile: their charges are dropped.
                charged = [name for name in held if not invariants.lacked(bucket, name, begun)]
                self._holdings.did_take(bucket, _of(up, charged))
            if failures == self._port.failures:
                self._holdings.did_not_take(bucket, _of(down, held))
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
        """Return every bucket that a lease may take from: a parent may have got limits since."""
        found = [(entry.entity_id, entry.resource) for entry in lease.entries]
        parent = self._fleet.scenario.parents.get(found[0][0]) if found else None
        above = [] if parent is None else [(parent, found[0][1])]
        return list(dict.fromkeys([*found, *above]))

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
        if not isinstance(error, _ENDINGS):
            self._timeline.fail(error)


def _names_by_bucket(lease: Lease) -> dict[BucketId, list[str]]:
    return {(entry.entity_id, entry.resource): list(entry.consumed) for entry in lease.entries}


def _of(amounts: Amounts, names: list[str]) -> Amounts:
    return {name: amount for name, amount in amounts.items() if name in names}
