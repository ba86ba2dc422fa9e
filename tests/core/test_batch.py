"""Requests that share a write: their sum, which of them a balance admits, and the level that remains."""

from hypothesis import given
from hypothesis import strategies as st

from tests.one_bucket import NOON, at, created, own, stored, view, with_balances
from zae_limiter.core.batch import admitted, capacities_of, fitting, room_of, together
from zae_limiter.core.bucket import Baseline
from zae_limiter.core.levels import LimitLevel
from zae_limiter.core.limit import Limit
from zae_limiter.core.multi_shard import Combined

RPS = Limit("rps", 10, 10, 1)
RPM = Limit("rpm", 100, 100, 60)
TERMS = stored(RPS, RPM)

names = st.sampled_from(["rpm", "rps", "tpm"])
requests = st.lists(st.dictionaries(names, st.integers(0, 9), max_size=3), max_size=12)
levels = st.dictionaries(names, st.integers(-5, 30), max_size=3)


class TestSum:
    """The sum of the amounts of several requests."""

    @given(requests)
    def test_sum_of_requests_adds_the_amounts_per_limit(self, some: list[dict[str, int]]) -> None:
        """Every amount is counted once."""
        named = {name for request in some for name in request}

        assert {name: sum(request.get(name, 0) for request in some) for name in named} == together(some)

    def test_sum_of_no_requests_is_empty(self) -> None:
        """There are no limits in it."""
        assert {} == together([])


class TestAdmitted:
    """Which requests of a queue a balance admits."""

    @given(requests, levels)
    def test_admission_of_a_queue_equals_admission_one_by_one(
        self, some: list[dict[str, int]], available: dict[str, int]
    ) -> None:
        """Each is judged by what the admitted requests before it have left."""
        left, expected = dict(available), []
        for request in some:
            lacks = [name for name in request if name in left and left[name] < request[name] > 0]
            expected.append(not lacks)
            if not lacks:
                left = {name: level - request.get(name, 0) for name, level in left.items()}

        assert expected == admitted(some, available)

    @given(requests, st.dictionaries(names, st.integers(0, 30), max_size=3))
    def test_admitted_requests_together_fit_the_balance(
        self, some: list[dict[str, int]], available: dict[str, int]
    ) -> None:
        """Their sum is at most the balance."""
        taken = together(request for request, fits in zip(some, admitted(some, available), strict=True) if fits)

        assert all(taken.get(name, 0) <= level for name, level in available.items())

    def test_requests_are_admitted_in_order_without_blocking_later_ones(self) -> None:
        """A request that does not fit does not stop those behind it."""
        some = [{"rpm": 4}, {"rpm": 7}, {"rpm": 6}, {"rpm": 1}, {"rpm": 0}]

        assert [True, False, True, False, True] == admitted(some, {"rpm": 10})

    def test_limit_in_debt_rejects_only_requests_that_take_from_it(self) -> None:
        """A request for 0 takes nothing, as for a single request."""
        assert [True, False, True] == admitted([{"rpm": 0}, {"rpm": 1}, {"rps": 1}], {"rpm": -1, "rps": 1})

    def test_request_rejected_by_one_limit_takes_nothing_from_the_others(self) -> None:
        """All limits of a request are debited, or none."""
        assert [False, True] == admitted([{"rpm": 5, "rps": 2}, {"rpm": 5}], {"rpm": 5, "rps": 1})


class TestFitting:
    """How many requests from the start of a queue fit together."""

    @given(requests, st.dictionaries(names, st.integers(0, 30), max_size=3))
    def test_fitting_returns_the_longest_prefix_that_fits(
        self, some: list[dict[str, int]], room: dict[str, int]
    ) -> None:
        """With one more request it would not fit."""
        count = fitting(some, room)
        sums = [together(some[:length]) for length in range(len(some) + 1)]
        fit = [all(total.get(name, 0) <= most for name, most in room.items()) for total in sums]

        assert [True] * (count + 1) == fit[: count + 1]
        assert [False] == fit[count + 1 : count + 2] or count == len(some)

    def test_room_is_the_current_level_of_the_limits_in_force(self) -> None:
        """In whole tokens, refill included; dormant limits are left out."""
        item = with_balances(created(TERMS), rps=2_500, rpm=-4_000)

        assert {"rps": 3, "rpm": -4} == room_of(view(item), TERMS, at(NOON + 50))
        assert {"rps": 3} == room_of(view(item), own(RPS), at(NOON + 50))

    def test_room_at_an_uncertain_time_is_the_level_at_the_early_bound(self) -> None:
        """Tokens that may not have been refilled yet are not offered."""
        item = with_balances(created(TERMS), rps=2_500)

        assert {"rps": 3, "rpm": 100} == room_of(view(item), TERMS, (NOON + 50, NOON + 500))

    def test_capacities_are_returned_per_limit(self) -> None:
        """A batch never takes more than the capacity."""
        assert {"rps": 10, "rpm": 100} == capacities_of(TERMS)


class TestLess:
    """The level of a limit after an amount was taken from it."""

    @given(
        st.integers(-20_000, 40_000),
        st.integers(0, 10_000),
        st.tuples(st.integers(0, 3_000), st.integers(0, 900)),
        st.integers(0, 9_000),
    )
    def test_less_reduces_the_level_now_and_later(
        self, balance: int, taken: int, ages_ms: tuple[int, int], later_ms: int
    ) -> None:
        """Overflow that was lost does not return."""
        age_ms, wide_ms = ages_ms
        limit_level, now = LimitLevel(Baseline.of(RPS, NOON), balance), (NOON + age_ms, NOON + age_ms + wide_ms)
        before = limit_level.available_milli(now)
        after = limit_level.less(taken, now)
        grown = after.available_milli(at(NOON + age_ms + later_ms)) if taken else 0

        assert before - taken == after.available_milli(now)
        assert not taken or grown == min(10_000, before - taken + later_ms * 10)

    def test_less_of_zero_returns_the_same_level(self) -> None:
        """The same object is returned."""
        limit_level = LimitLevel(Baseline.of(RPS, NOON), 99_000)

        assert limit_level is limit_level.less(0, at(NOON))

    @given(st.lists(st.integers(-3_000, 5_000), min_size=2, max_size=2), st.data())
    def test_less_of_combined_shards_takes_from_the_fullest_without_debt(
        self, balances: list[int], data: st.DataObject
    ) -> None:
        """All that is available may be taken."""
        now = at(NOON)
        parts = tuple(LimitLevel(Baseline.of(RPS, NOON, shard, 2), tk) for shard, tk in enumerate(balances))
        limit_level = Combined(parts)
        there = max(0, limit_level.available_milli(now))
        taken = data.draw(st.integers(0, there))
        left = limit_level.less(taken, now)

        assert max(0, left.available_milli(now)) == there - taken
        assert sum(min(0, tk) for tk in balances) == sum(min(0, part.available_milli(now)) for part in left.parts)
