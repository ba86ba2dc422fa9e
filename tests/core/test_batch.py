"""Requests that travel together: their sum, those a balance admits, and how a limit stands once some are admitted."""

from hypothesis import given
from hypothesis import strategies as st

from tests.one_bucket import NOON, at, created, own, stored, view, with_balances
from zae_limiter.core.acquire import LimitLevel
from zae_limiter.core.batch import admitted, capacities_of, fitting, room_of, together
from zae_limiter.core.bucket import Baseline
from zae_limiter.core.limit import Limit
from zae_limiter.core.multi_shard import Combined

RPS = Limit("rps", 10, 10, 1)
RPM = Limit("rpm", 100, 100, 60)
TERMS = stored(RPS, RPM)

names = st.sampled_from(["rpm", "rps", "tpm"])
requests = st.lists(st.dictionaries(names, st.integers(0, 9), max_size=3), max_size=12)
levels = st.dictionaries(names, st.integers(-5, 30), max_size=3)


class TestTogether:
    """What requests ask for in all."""

    @given(requests)
    def test_every_amount_is_counted_once(self, some: list[dict[str, int]]) -> None:
        """By the name of its limit."""
        named = {name for request in some for name in request}

        assert {name: sum(request.get(name, 0) for request in some) for name in named} == together(some)

    def test_nothing_asks_for_nothing(self) -> None:
        """The sum of no requests is empty."""
        assert {} == together([])


class TestAdmitted:
    """Which of a queue of requests a balance admits."""

    @given(requests, levels)
    def test_as_if_each_had_come_alone(self, some: list[dict[str, int]], available: dict[str, int]) -> None:
        """One after the other, each is judged by what those that were admitted before it have left."""
        left, expected = dict(available), []
        for request in some:
            lacks = [name for name in request if name in left and left[name] < request[name] > 0]
            expected.append(not lacks)
            if not lacks:
                left = {name: level - request.get(name, 0) for name, level in left.items()}

        assert expected == admitted(some, available)

    @given(requests, st.dictionaries(names, st.integers(0, 30), max_size=3))
    def test_never_more_than_there_is(self, some: list[dict[str, int]], available: dict[str, int]) -> None:
        """Those that are admitted fit together."""
        taken = together(request for request, fits in zip(some, admitted(some, available), strict=True) if fits)

        assert all(taken.get(name, 0) <= level for name, level in available.items())

    def test_who_came_first_is_served_first(self) -> None:
        """One that does not fit holds up none behind it."""
        some = [{"rpm": 4}, {"rpm": 7}, {"rpm": 6}, {"rpm": 1}, {"rpm": 0}]

        assert [True, False, True, False, True] == admitted(some, {"rpm": 10})

    def test_a_limit_in_debt_rejects_only_those_that_take_from_it(self) -> None:
        """A request of 0 takes nothing, which is how a single request is judged too."""
        assert [True, False, True] == admitted([{"rpm": 0}, {"rpm": 1}, {"rps": 1}], {"rpm": -1, "rps": 1})

    def test_all_limits_of_a_request_or_none(self) -> None:
        """What one limit lacks is not taken from another."""
        assert [False, True] == admitted([{"rpm": 5, "rps": 2}, {"rpm": 5}], {"rpm": 5, "rps": 1})


class TestFitting:
    """How many, from the first, fit together."""

    @given(requests, st.dictionaries(names, st.integers(0, 30), max_size=3))
    def test_the_most_that_fit(self, some: list[dict[str, int]], room: dict[str, int]) -> None:
        """Those counted fit, and with the next they would not."""
        count = fitting(some, room)
        sums = [together(some[:length]) for length in range(len(some) + 1)]
        fit = [all(total.get(name, 0) <= most for name, most in room.items()) for total in sums]

        assert [True] * (count + 1) == fit[: count + 1]
        assert [False] == fit[count + 1 : count + 2] or count == len(some)

    def test_the_room_is_what_limits_in_force_have_now(self) -> None:
        """In whole tokens, what was earned since included; limits that are dormant have no room."""
        item = with_balances(created(TERMS), rps=2_500, rpm=-4_000)

        assert {"rps": 3, "rpm": -4} == room_of(view(item), TERMS, at(NOON + 50))
        assert {"rps": 3} == room_of(view(item), own(RPS), at(NOON + 50))

    def test_at_an_unsure_time_the_room_is_what_is_surely_there(self) -> None:
        """What may not have been earned yet has no room for anyone."""
        item = with_balances(created(TERMS), rps=2_500)

        assert {"rps": 3, "rpm": 100} == room_of(view(item), TERMS, (NOON + 50, NOON + 500))

    def test_the_most_at_once_is_the_capacity(self) -> None:
        """Of each limit."""
        assert {"rps": 10, "rpm": 100} == capacities_of(TERMS)


class TestLess:
    """How a limit stands once so much was taken from it."""

    @given(
        st.integers(-20_000, 40_000),
        st.integers(0, 10_000),
        st.tuples(st.integers(0, 3_000), st.integers(0, 900)),
        st.integers(0, 9_000),
    )
    def test_what_was_taken_is_no_longer_there(
        self, balance: int, taken: int, ages_ms: tuple[int, int], later_ms: int
    ) -> None:
        """Now, at the early end of an unsure time, and as time goes on: what had overflowed does not come back."""
        age_ms, wide_ms = ages_ms
        stand, now = LimitLevel(Baseline.of(RPS, NOON), balance), (NOON + age_ms, NOON + age_ms + wide_ms)
        before = stand.available_milli(now)
        after = stand.less(taken, now)
        grown = after.available_milli(at(NOON + age_ms + later_ms)) if taken else 0

        assert before - taken == after.available_milli(now)
        assert not taken or grown == min(10_000, before - taken + later_ms * 10)

    def test_nothing_taken_changes_nothing(self) -> None:
        """It stands as it stood."""
        stand = LimitLevel(Baseline.of(RPS, NOON), 99_000)

        assert stand is stand.less(0, at(NOON))

    @given(st.lists(st.integers(-3_000, 5_000), min_size=2, max_size=2), st.data())
    def test_of_shards_together_just_as_much_is_gone(self, balances: list[int], data: st.DataObject) -> None:
        """Whatever of it is available may be taken, of the fullest first, and no shard gets into debt by it."""
        now = at(NOON)
        parts = tuple(LimitLevel(Baseline.of(RPS, NOON, shard, 2), tk) for shard, tk in enumerate(balances))
        stand = Combined(parts)
        there = max(0, stand.available_milli(now))
        taken = data.draw(st.integers(0, there))
        left = stand.less(taken, now)

        assert max(0, left.available_milli(now)) == there - taken
        assert sum(min(0, tk) for tk in balances) == sum(min(0, part.available_milli(now)) for part in left.parts)
