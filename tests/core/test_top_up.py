"""Tokens withheld at the creation of a bucket are returned, and never more than a correct bucket would hold."""

from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.one_bucket import NOON, balance, created, stored
from zae_limiter.core import top_up as tops
from zae_limiter.core.acquire import Progress, Take, next_step
from zae_limiter.core.bucket import TimeBounds, grid
from zae_limiter.core.bucket_changes import expiry_s
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Refused
from zae_limiter.core.reserve import Reserve
from zae_limiter.core.top_up import Creation, Known, TopUp
from zae_limiter.core.view import EffectiveLimits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView, view_of
from zae_limiter.schema.operations import Equals
from zae_limiter.tables import evaluate

RPS = Limit("rps", 50, 50, 1)
AHEAD_MS = NOON - 5_000
"""The difference of the server's clock and the local one."""


@dataclass
class Creator:
    """A client that has created a bucket, whose clock shows up to ``wide_ms`` more than the true time."""

    terms: EffectiveLimits
    wide_ms: int
    item: dict[str, Any]
    true_ms: int = NOON

    def __post_init__(self) -> None:
        view = view_of(self.item, self.true_ms, None, self.terms)
        now = (self.true_ms - 3, self.true_ms + self.wide_ms)
        found = tops.created(view, now, self.local_ms)
        assert found is not None
        self.creation: Creation = found
        self.view: BucketView = view
        # The balances of the same limits if the bucket had been created at the true time.
        self.true = [[balance(self.item, limit.name), NOON] for limit in self.terms.limits]

    @property
    def local_ms(self) -> int:
        return self.true_ms - AHEAD_MS

    def wait(self, ms: int) -> None:
        self.true_ms += ms

    def spend_truly(self, position: int, milli: int) -> None:
        limit, (level, at_ms) = self.terms.limits[position], self.true[position]
        rate = limit.refill_amount_milli, limit.refill_period_ms
        level = min(limit.capacity_milli, level + grid(self.true_ms, *rate) - grid(at_ms, *rate))
        self.true[position] = [level - milli, self.true_ms]

    def take(self, tokens: int, wide_ms: int) -> bool:
        """Take in the usual way, and return whether it was admitted."""
        now = (self.true_ms, self.true_ms + wide_ms)
        amounts = [(0, tokens * 1000)]
        step = next_step(self.view, self.terms, amounts, now, Progress(trust_ms=10**9))
        if not isinstance(step, Take):
            return False
        self.apply(bucket_writes.take(self.view, step, 7), amounts)
        return True

    def apply(self, update: Any, amounts: list[tuple[int, int]]) -> None:
        new = evaluate.apply(update, self.item)
        assert isinstance(new, dict), new
        self.item = new
        self.view = view_of(new, self.true_ms, self.view, self.terms, amounts)
        self.creation = self.creation.after(self.view, amounts, self.local_ms)
        for position in range(len(self.terms.limits)):
            self.spend_truly(position, dict(amounts).get(position, 0))

    def due(self, tokens: int, created_ms: int, now: TimeBounds | None = None) -> TopUp | None:
        known = Known(now or (self.true_ms, self.true_ms), created_ms, self.local_ms)
        return tops.top_up(self.creation, self.view, self.terms, [(0, tokens * 1000)], known)

    def held(self, position: int = 0) -> int:
        """Return what the item holds now, beyond its capacity too."""
        return self.view.numbers[position] + self.view.layout.baselines[position].earned(self.true_ms)


def creator(*limits: Limit, wide_ms: int = 1_000, spent: int = 1, ttl: int = 0) -> Creator:
    """Return the creator of a bucket that is dated ``wide_ms`` too late."""
    terms = stored(*(limits or (RPS,)), ttl=ttl)
    return Creator(terms, wide_ms, created(terms, {"rps": spent}, NOON + wide_ms))


takes = st.lists(st.tuples(st.integers(0, 400), st.integers(1, 50), st.sampled_from([0, 20, 1_000])), max_size=12)


@given(takes, st.integers(50, 1_100), st.integers(0, 60), st.integers(1, 50), st.integers(0, 2_000))
def test_topped_up_bucket_never_holds_more_than_one_created_at_the_true_time(
    history: list[tuple[int, int, int]], wide_ms: int, error_ms: int, tokens: int, later_ms: int
):
    """Whatever the creator took before, at any times, and however well it knew the time."""
    one = creator(wide_ms=wide_ms)
    for pause_ms, amount, wide in history:
        one.wait(pause_ms)
        one.take(amount, wide)
    for _ in range(2):
        one.wait(later_ms)
        found = one.due(tokens, NOON + error_ms)
        if found is not None:
            amounts = [(0, tokens * 1000)]
            one.apply(bucket_writes.top_up(one.view, found, 9), amounts)

            assert one.creation.is_certain(one.view)
            assert -tokens * 1000 < 0 <= one.held()
            assert one.held() <= one.true[0][0]


def test_top_up_returns_everything_that_was_withheld():
    """A second of refill for an empty bucket that is dated a second late."""
    one = creator(spent=50)
    one.wait(1_000)
    found = one.due(40, NOON)
    assert found is not None
    one.apply(bucket_writes.top_up(one.view, found, 9), [(0, 40_000)])

    assert 50_000 - 200 <= found.returned[0] <= 50_000
    assert one.true[0][0] - 200 <= one.held() <= one.true[0][0]


def test_top_up_before_the_baseline_returns_the_refill_until_then():
    """Half a second's refill after half a second, though the bucket is dated a second late."""
    one = creator(spent=50)
    one.wait(500)
    found = one.due(24, NOON)

    assert found is not None
    assert 25_000 - 200 <= found.returned[0] <= 25_000


def test_top_up_also_returns_tokens_of_limits_that_are_not_requested():
    """Each limit has its own rate."""
    other = Limit("tps", 500, 100, 1)
    one = creator(RPS, other, spent=50)
    one.item = evaluate.apply(_spent(one, "tps", 400_000), one.item)  # type: ignore[assignment] # it is applied
    one.view = view_of(one.item, one.true_ms, one.view, one.terms)
    one.creation = one.creation.after(one.view, [(1, 400_000)], one.local_ms)
    one.wait(1_000)
    found = one.due(1, NOON)

    assert found is not None
    assert [50_000, 100_000] == [round(milli, -3) for milli in found.returned]


def _spent(one: Creator, name: str, milli: int) -> Any:
    taking = Take([(1, milli, -(10**9), 10**9, None)], None, ())
    assert one.terms.limits[1].name == name
    return bucket_writes.take(one.view, taking, 5)


@pytest.mark.parametrize(
    ("tokens", "created_ms", "after_ms", "why"),
    [
        (1, NOON, 10, "nothing is earned yet"),
        (46, NOON, 900, "it is not enough before the baseline"),
        (1, NOON - 10, 1_100, "the time contradicts what was known at the creation"),
        (1, NOON + 1_000, 1_100, "nothing was withheld"),
        (50, NOON + 500, 1_100, "it is not enough"),
    ],
)
def test_no_top_up_is_due_without_enough_withheld_tokens_or_with_a_contradicting_time(
    tokens: int, created_ms: int, after_ms: int, why: str
):
    """The request is judged as usual then."""
    one = creator(spent=50)
    one.wait(after_ms)

    assert one.due(tokens, created_ms) is None, why


def test_no_top_up_is_due_to_a_bucket_that_was_always_full():
    """A full bucket does not refill."""
    one = creator(spent=0)
    one.wait(2_500)

    assert one.due(1, NOON) is None


def test_top_up_is_refused_if_another_client_wrote_in_between():
    """The other client has cut an overflow; with the top-up, the bucket would exceed its capacity."""
    one = creator(spent=50, wide_ms=400)
    one.wait(400)
    found = one.due(1, NOON)
    assert found is not None
    write = bucket_writes.top_up(one.view, found, 9)
    one.wait(1_200)
    one.take(5, 0)
    without = replace(write, when=tuple(one for one in write.when if one != Equals("b_wcu_tc", 1)))
    overfull = evaluate.apply(without, one.item)

    assert isinstance(evaluate.apply(write, one.item), Refused)
    assert isinstance(overfull, dict)
    assert overfull["b_rps_tk"] + one.view.layout.baselines[0].earned(one.true_ms) > RPS.capacity_milli


def test_creation_is_not_certain_after_a_write_by_another_client():
    """The same holds after a rebase."""
    one = creator()
    other = view_of({**one.item, "b_wcu_tc": 2}, NOON, one.view, one.terms)
    rebased = view_of({**one.item, "gn": 2}, NOON, one.view, one.terms)

    assert one.creation.is_certain(one.view)
    assert not one.creation.is_certain(other)
    assert not one.creation.is_certain(rebased)


def test_creation_at_a_well_known_time_is_not_recorded():
    """An uncertainty of twenty milliseconds is too small to matter."""
    one = creator()

    assert tops.created(one.view, (NOON, NOON + 20), 0) is None


def test_a_time_is_worth_narrowing_if_that_can_return_a_token():
    """It must be a token of a requested limit."""
    slow = creator(Limit("rps", 50, 1, 60))
    fast = creator()
    wide = NOON, NOON + 1_000

    assert fast.creation.is_worth_narrowing([(0, 1_000)], wide)
    assert not fast.creation.is_worth_narrowing([], wide)
    assert not fast.creation.is_worth_narrowing([(0, 1_000)], (NOON, NOON + 20))
    assert not slow.creation.is_worth_narrowing([(0, 1_000)], wide)


def test_top_up_sets_the_ttl_like_a_take():
    """A bucket of default limits gets a ttl, but not while it is in debt."""
    one = creator(spent=50, ttl=7)
    one.wait(1_100)
    found = one.due(1, NOON)
    in_debt = creator(RPS, Limit("tps", 5, 1, 1), spent=50, ttl=7)
    in_debt.view.numbers = (in_debt.view.numbers[0], -60_000, *in_debt.view.numbers[2:])
    in_debt.wait(1_100)
    kept = in_debt.due(1, NOON)

    assert found is not None
    assert kept is not None
    assert found.taking.expires_s is not None
    assert kept.taking.expires_s is None


def test_top_up_before_the_baseline_sets_the_ttl_from_the_baseline():
    """The bucket does not refill before its baseline, which is later than the creator's narrowed clock."""
    one = creator(spent=50, ttl=2, wide_ms=10_000)
    one.wait(1_100)
    found = one.due(1, NOON)

    assert found is not None
    assert one.true_ms < one.view.layout.start_ms
    assert expiry_s(one.view.layout.start_ms, one.view.layout.fill_time_ms, 2) == found.taking.expires_s


@pytest.mark.parametrize(("tokens", "left"), [(30, 10_000), (31, None)])
def test_top_up_leaves_the_reserve_of_its_priority(tokens: int, left: int | None) -> None:
    """Of 50, 20 were left, 20 were earned since the true creation, and 10 must remain. So 30 may be taken."""
    one = creator(spent=30)
    one.wait(400)
    known = Known((one.true_ms, one.true_ms), NOON, one.local_ms)
    found = tops.top_up(one.creation, one.view, one.terms, [(0, tokens * 1000)], known, Reserve(1, 5))
    new = found and evaluate.apply(bucket_writes.top_up(one.view, found, 7), one.item)

    assert left == (balance(new, "rps") if isinstance(new, dict) else None)
