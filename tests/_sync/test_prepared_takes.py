"""Takes that the one before has prepared do what planned takes do, and return their slots once."""  # generated from _async by tools/mirror.py; do not edit

from random import Random

import pytest

from zae_limiter import LeaseExpiredError, Limit, SyncRateLimiter, SyncRepository, ValidationError
from zae_limiter.caches.request import AcquireRequest, Cascaded, Rejected
from zae_limiter.caches.slot_holds import SlotHold
from zae_limiter.core.tracked import AdmittedMixed
from zae_limiter.schema.prepared_takes import PreparedAdmitted

from .clients import SettableClock, another, buckets_in

BUCKET = ("user-1", "gpt-4")
STEPS = 200
RATES = [Limit.per_minute("rpm", 100), Limit.per_second("tps", 20)]
SLOTS = Limit.concurrent("slots", 5, hold_seconds=20)
SPEND = Limit.quota("spend", 400, every="hour")
SOFT = Limit.per_minute("soft", 10, enforce=False)
KINDS = {
    "slots": [*RATES, SLOTS],
    "a quota": [*RATES, SPEND],
    "slots and a quota": [*RATES, SLOTS, SPEND],
    "a soft limit": [*RATES, SLOTS, SOFT],
    "two limits of slots": [RATES[0], SLOTS, Limit.concurrent("more", 3, hold_seconds=7)],
}
DRAWN = ("op", "bi", "PK", "GSI2PK", "GSI3PK", "GSI4PK", "GSI4SK", "ttl")
"""Attributes that are random numbers, or depend on them. A prepared take leaves an expiry that is late enough."""


class Twin:
    """A client on a table of its own, that takes as prepared or only by plans."""

    def __init__(self, repo, limits, clock, by_plan):
        self.repo, self.limits, self.clock, self.by_plan = repo, limits, clock, by_plan
        self.client = SyncRateLimiter(repo)._client
        self.holds = []
        self.prepared = 0

    def act(self, act):
        """Carry out an action, and return the result and everything that it changed."""
        kind, argument = act
        if kind == "wait":
            return self.clock.advance(argument)
        if kind == "limits":
            others = [limit for limit in self.limits if limit.name != "rpm"]
            return self.repo.set_limits(BUCKET[0], [Limit.per_minute("rpm", 80 + argument), *others])
        if kind == "return":
            return self.give_back(argument)
        return self.take(argument)

    def take(self, consume):
        """Take, and return what was taken and the bucket after it."""
        client = self.client
        try:
            result = None if self.by_plan else client.take(BUCKET, consume, None)
            if result is None:
                result = client.take_part(AcquireRequest(BUCKET, consume, None, client.until_s()))
        except ValidationError as error:
            return str(error)
        if isinstance(result, Rejected):
            return result.statuses()
        hold = result if isinstance(result, SlotHold) else None
        admitted = hold.admitted if hold else result.admitted if isinstance(result, Cascaded) else result
        if isinstance(admitted, AdmittedMixed):
            self.prepared += isinstance(admitted, PreparedAdmitted)
            if admitted.claims:
                self.holds.append(hold or client.slots.open(BUCKET, admitted, None))
            return admitted.terms.stamp, admitted.claims, admitted.charges, self.seen()
        return admitted.terms.stamp, self.seen()

    def give_back(self, argument):
        """Return the slots of one of the takes."""
        if not self.holds:
            return None
        hold = self.holds.pop(argument % len(self.holds))
        if not self.client.return_prepared(hold):
            self.client.return_slots(hold)
        return hold.claims, hold.is_closed, self.seen()

    def seen(self):
        """Return the bucket as it is stored and as the client has cached it."""
        view = self.client.caches.of(BUCKET).view
        items = [{name: item[name] for name in item if name not in DRAWN} for item in buckets_in(self.repo)]
        return view.numbers, view.seen_ms, view.pace, getattr(view, "cohorts", None), items


def twin(limits, by_plan):
    clock = SettableClock()
    repo = SyncRepository.open("memory://", clock=clock, deadline_s=60)
    repo.set_system_defaults(limits)
    return Twin(repo, limits, clock, by_plan)


def drawn(random, limits):
    """Return an action: a take, a return, a wait, or a change of limits."""
    kind = random.choices(("take", "return", "wait", "limits"), (50, 30, 18, 1))[0]
    if kind == "take":
        names = [limit.name for limit in limits]
        if random.random() < 0.3:
            names = random.sample(names, random.randrange(1, len(names) + 1))
        return kind, {name: random.choice((0, 1, 1, 1, 2, 6)) for name in names}
    return kind, random.choice((1, 40, random.randrange(3_000), random.randrange(30_000), random.randrange(900_000)))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kinds", KINDS)
def test_prepared_takes_do_what_planned_takes_do(kinds, seed):
    """They repeat the decisions for speed, so results, items and views must stay equal."""
    limits = KINDS[kinds]
    twins = [twin(limits, by_plan) for by_plan in (False, True)]
    random = Random(seed)
    for _ in range(STEPS):
        action = drawn(random, limits)

        prepared, planned = [one.act(action) for one in twins]
        assert prepared == planned
    # Two limits of slots in one bucket are left to plans.
    assert (twins[0].prepared > 3) == (kinds != "two limits of slots")
    assert not twins[1].prepared
    for one in twins:
        one.repo.close()


@pytest.fixture
def limiter(repo):
    repo.set_system_defaults(KINDS["slots"])
    limiter = SyncRateLimiter(repo)
    # The first take creates the bucket, and the second one joins its cohort.
    for _ in range(2):
        with limiter.acquire(*BUCKET, {"rpm": 1, "tps": 1, "slots": 1}):
            pass
    return limiter


def free(limiter):
    """Return the free slots."""
    return (limiter.available(*BUCKET))["slots"]


def test_prepared_lease_returns_its_slot_once(limiter):
    """A second exit finds nothing to return."""
    lease = limiter.acquire(*BUCKET, {"rpm": 1, "slots": 1})
    lease.__enter__()

    assert isinstance(lease._admitted, PreparedAdmitted)
    assert 4 == free(limiter)
    for _ in range(2):
        lease.__exit__(None, None, None)
        assert 5 == free(limiter)


@pytest.mark.parametrize("wait_ms", [0, 30_000], ids=["prepared", "planned"])
def test_slot_is_returned_although_another_client_has_removed_a_limit(limiter, repo, clock, wait_ms):
    """A return of slots fits any limits, so its answer may have others than the client has cached."""
    # The first take of a cohort is planned.
    clock.advance(wait_ms)
    lease = limiter.acquire(*BUCKET, {"slots": 1})
    lease.__enter__()
    is_prepared = isinstance(lease._admitted, PreparedAdmitted)
    clock.advance(1_000)
    other = another(repo)
    other.set_system_defaults([RATES[0], SLOTS])
    with SyncRateLimiter(other).acquire(*BUCKET, {"rpm": 1}):
        pass
    lease.__exit__(None, None, None)

    assert 5 == free(limiter)
    assert (is_prepared, False) == (not wait_ms, "b_tps_tk" in buckets_in(repo)[0])


def test_slots_that_are_consumed_while_the_lease_ends_are_given_back(limiter):
    """An exit does not wait for a call that takes more, so that call notices the end."""
    lease = limiter.acquire(*BUCKET, {"rpm": 1, "slots": 1})
    lease.__enter__()
    (hold,) = lease._slots.values()
    # The exit of another thread has come this far.
    assert limiter._client.return_prepared(hold)

    with pytest.raises(LeaseExpiredError):
        lease.consume(rpm=1, slots=2)
    assert 5 == free(limiter)


def test_prepared_lease_can_do_everything_that_other_leases_can(limiter):
    """What a prepared take has claimed is found when it is needed."""
    with limiter.acquire(*BUCKET, {"rpm": 1, "slots": 2}) as lease:
        assert isinstance(lease._admitted, PreparedAdmitted)
        lease.release(slots=1)
        assert 4 == free(limiter)
        lease.consume(slots=3)
        lease.adjust(rpm=4)
        assert 1 == free(limiter)
        assert not lease.lost
    assert 5 == free(limiter)


def test_failed_block_gives_everything_back_that_a_prepared_take_has_taken(limiter):
    """The slots, and the tokens."""
    before = limiter.available(*BUCKET)
    with pytest.raises(RuntimeError):
        with limiter.acquire(*BUCKET, {"rpm": 5, "slots": 2}):
            raise RuntimeError
    after = limiter.available(*BUCKET)

    assert before["slots"] == after["slots"]
    assert before["rpm"] <= after["rpm"]
