"""Lost responses, before or after the write took effect: every write counts once."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, SyncRateLimiter, RateLimiterUnavailable, RateLimitExceeded
from zae_limiter.core.outcome import Cancelled, Throttled, Unavailable

from .clients import Wrapped, another, balance_of, buckets_in, take
from .shards import OtherClient, used

LIMITS = [Limit.per_minute("rpm", 60)]
CAUSE = TimeoutError("no answer")


class LossyTable(Wrapped):
    """A table that loses responses as listed in ``fates``: each is 'applied', 'lost' or 'throttled'."""

    def __init__(self, table):
        super().__init__(table)
        self.fates = []
        self.writes = 0
        self.at_each_write = lambda: None

    def write(self, operation, until_s=None):
        self.writes += 1
        self.at_each_write()
        fate = self.fates.pop(0) if self.fates else None
        if fate == "throttled":
            return Throttled()
        if fate == "lost":
            return Unavailable(CAUSE, ambiguous=True)
        outcome = self.table.write(operation, until_s)
        return Unavailable(CAUSE, ambiguous=True) if fate == "applied" else outcome


@pytest.fixture
def lossy(repo):
    other = another(repo, LossyTable)
    other.set_system_defaults(LIMITS)
    return SyncRateLimiter(other)


def table_of(limiter):
    return limiter.repository.scope.table


def left(limiter):
    return (limiter.available("user-1", "gpt-4"))["rpm"]


FATES = pytest.mark.parametrize(
    "fates",
    [
        ["applied"],
        ["lost"],
        ["throttled"],
        ["applied", "applied"],
        ["lost", "applied"],
        ["applied", "lost", "throttled"],
    ],
    ids=" then ".join,
)


@FATES
def test_take_with_lost_responses_counts_once(lossy, fates):
    """A retry finds its own marker, or takes for the first time."""
    take(lossy, {"rpm": 1})
    table_of(lossy).fates = list(fates)

    take(lossy, {"rpm": 10})

    assert 49 == left(lossy)
    assert 11_000 == balance_of(lossy.repository, "rpm", "tc")


@FATES
def test_bucket_creation_with_lost_responses_counts_once(lossy, fates):
    """A retry recognizes the bucket that the first attempt created."""
    table_of(lossy).fates = list(fates)

    take(lossy, {"rpm": 10})

    assert 50 == left(lossy)


@FATES
def test_rebase_with_lost_responses_counts_once(lossy, fates):
    """New limits and take are one write."""
    take(lossy, {"rpm": 10})
    lossy.set_system_defaults([Limit.per_minute("rpm", 60, burst=90)])
    table_of(lossy).fates = list(fates)

    take(lossy, {"rpm": 10})

    assert 40 == left(lossy)


@FATES
def test_debit_with_lost_responses_counts_once(lossy, fates):
    """It is retried until it is confirmed."""
    with lossy.acquire("user-1", "gpt-4", {"rpm": 10}) as lease:
        lease.adjust(rpm=5)
        table_of(lossy).fates = list(fates)

    assert 45 == left(lossy)


@pytest.mark.parametrize(("fate", "expected"), [("applied", 60), ("lost", 50)])
def test_credit_with_a_lost_response_is_never_retried(lossy, fate, expected):
    """It may have been applied, and a second credit would add tokens."""

    def failing():
        with lossy.acquire("user-1", "gpt-4", {"rpm": 10}):
            table_of(lossy).fates = [fate]
            table_of(lossy).writes = 0
            raise KeyError

    with pytest.raises(KeyError):
        failing()

    assert 1 == table_of(lossy).writes
    assert expected == left(lossy)


class DelayedTable(Wrapped):
    """A table where one transaction arrives late: its retry came first and was refused."""

    def __init__(self, table):
        super().__init__(table)
        self.delays = False
        self.late = []

    def transact(self, operations, token, *, until_s=None):
        if self.delays:
            self.delays = False
            self.late = [operations, token]
            return Cancelled((None,) * len(operations), in_doubt=True)
        return self.table.transact(operations, token, until_s=until_s)

    def arrive(self):
        self.table.transact(*self.late)


def test_sharded_credit_in_doubt_is_not_sent_in_another_form(repo):
    """The delayed transaction may still be carried out, and both would count."""
    limiter = SyncRateLimiter(another(repo, DelayedTable))
    limiter.set_system_defaults(LIMITS)
    take(limiter, {"rpm": 0})
    OtherClient(repo).grow(2)

    def failing():
        with limiter.acquire("user-1", "gpt-4", {"rpm": 50}):
            OtherClient(repo).grow(8)
            table_of(limiter).delays = True
            raise KeyError

    with pytest.raises(KeyError):
        failing()
    table_of(limiter).arrive()

    assert 0 == used(repo, "rpm")


def test_throttled_credit_is_retried(lossy):
    """It was certainly not applied."""

    def failing():
        with lossy.acquire("user-1", "gpt-4", {"rpm": 10}):
            table_of(lossy).fates = ["throttled", "throttled"]
            raise KeyError

    with pytest.raises(KeyError):
        failing()

    assert 60 == left(lossy)


def test_lost_take_that_finds_too_few_tokens_on_retry_is_rejected(lossy):
    """Neither its marker nor the tokens are there."""
    take(lossy, {"rpm": 1})
    others = SyncRateLimiter(another(lossy.repository))
    take(others, {"rpm": 59})
    table_of(lossy).fates = ["lost"]

    with pytest.raises(RateLimitExceeded):
        take(lossy, {"rpm": 10})

    assert 0 == left(lossy)


def test_applied_take_with_a_lost_response_is_admitted_on_an_empty_bucket(lossy):
    """The lost response was an admission."""
    take(lossy, {"rpm": 1})
    table_of(lossy).fates = ["applied"]

    take(lossy, {"rpm": 59})

    assert 0 == left(lossy)


def test_take_that_is_throttled_until_the_deadline_raises_unavailable(lossy, clock):
    """Retries end at the deadline."""
    take(lossy, {"rpm": 1})
    table_of(lossy).fates = ["throttled"] * 1_000
    table_of(lossy).at_each_write = lambda: clock.advance(100)

    with pytest.raises(RateLimiterUnavailable):
        take(lossy, {"rpm": 10})

    assert 1_000 - 11 - 1 <= len(table_of(lossy).fates)
    assert 1 == len(buckets_in(lossy.repository))


class RivalTable(Wrapped):
    """A table that loses the answer of an applied write, after which another client changes the bucket."""

    rival = None

    def write(self, operation, until_s=None):
        outcome = super().write(operation, until_s)
        if self.rival is None:
            return outcome
        rival, self.rival = self.rival, None
        rival()
        return Unavailable(CAUSE, ambiguous=True)


def test_credit_beside_a_debit_is_not_given_again_after_a_lost_response(repo):
    """The repeated debit is refused by a changed bucket, and is tried again without the credit."""
    repo.set_system_defaults([*LIMITS, Limit.per_hour("tph", 1_000)])
    limiter, others = SyncRateLimiter(another(repo, RivalTable)), SyncRateLimiter(another(repo))
    take(others, {"rpm": 1, "tph": 500})

    def change():
        others.set_system_defaults([Limit.per_minute("rpm", 70), Limit.per_hour("tph", 1_000)])
        take(others, {"rpm": 1})

    with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tph": 300}) as lease:
        lease.adjust(rpm=5, tph=-300)
        table_of(limiter).rival = change

    assert 500_000 == balance_of(limiter.repository, "tph", "tc")
    assert 13_000 == balance_of(limiter.repository, "rpm", "tc")
