"""Clients with wrong clocks share a bucket correctly: the server's clock is the reference.

Time is simulated; the engine is real. The proxy reports the simulated time, and like AWS refuses
signatures that are more than five minutes off.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import pytest

from tests.dynamodb import skew
from tests.dynamodb.engines import fresh_table_name
from tests.dynamodb.faults import Refuse
from tests.dynamodb.ledgers import Ledger, quick_engine, table_url
from tests.dynamodb.messages import Message
from tests.dynamodb.proxy import Proxy, ResponseSettings
from tests.dynamodb.simulated import Machine, ServerTime
from tests.dynamodb.trees import KINDS, tree, wait_for_time
from zae_limiter import Limit, RateLimiterUnavailable, RateLimitExceeded

AHEAD_S = (0, 5, -5, 300, -300, 3600, -3600)
MOST_DRIFT_PPM = 100
LIMIT = Limit.per_minute("rpm", 120)
PER_SECOND = LIMIT.capacity / 60
SMALL = Limit.per_minute("rpm", 30)
RUN_S = 600
STEP_S = 0.4
HOUR_S = 3600


class UndatedResponses(ResponseSettings):
    """Responses without a Date, as some proxies forward them."""

    def finished(self, answer: Message) -> Message:
        return super().finished(answer).without_header("Date")


class Site:
    """A server with its time, and clients on machines of their own."""

    def __init__(
        self, kind: str, stack: ExitStack, settings: Callable[..., ResponseSettings] = ResponseSettings
    ) -> None:
        self.time = ServerTime()
        engine = quick_engine()
        manners = settings(date_s=self.time.date_s, signatures_s=lambda: self.time.now_s)
        self.proxy = stack.enter_context(Proxy(engine.url, manners))
        self._table = fresh_table_name()
        self._url = table_url(self._table, self.proxy.url)
        self._stack = stack
        self._tree = stack.enter_context(tree(kind))

    def limiter(self, machine: Machine, **settings: Any) -> Any:
        """Return a client on a machine."""
        repo = self._tree.open(self._url, clock=machine, **settings)
        self._stack.callback(repo.close)
        return self._tree.limiter(repo)

    def machine(self, ahead_s: float = 0.0, drift_ppm: float = 0.0) -> Machine:
        return Machine(self.time, ahead_s, drift_ppm)

    def settled(self, limiter: Any) -> None:
        """Wait until another connection has confirmed or refuted the time of the last response."""
        wait_for_time(limiter.repository.scope.table)

    def used(self, limiter: Any) -> dict[str, int]:
        """Return what the table itself has counted."""
        return Ledger(quick_engine().url, self._table, limiter.repository.scope.namespace_id).used("user-1")

    @property
    def refused(self) -> list[str]:
        """Return the calls that were refused because of their signing time."""
        return [
            seen.target for seen in self.proxy.seen if isinstance(seen.fault, Refuse) and seen.fault.code == skew.CODE
        ]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def site(kind: str) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(kind, stack)


def admitted(limiter: Any) -> bool:
    try:
        with limiter.acquire("user-1", "api", {"rpm": 1}):
            return True
    except RateLimitExceeded:
        return False


def burst(limiter: Any) -> int:
    """Take until nothing is left, and return how much there was."""
    count = 0
    while admitted(limiter):
        count += 1
    return count


def near(found: float, offered: float) -> bool:
    """Return whether the amount is the available one, within the refill during the takes."""
    return offered - 1 <= found <= offered + 2


def fleet(site: Site) -> list[Any]:
    """Return clients on machines that are hours and seconds off, and drift."""
    random = Random(11)
    drifts = [random.uniform(-MOST_DRIFT_PPM, MOST_DRIFT_PPM) for _ in AHEAD_S]
    limiters = [site.limiter(site.machine(*off)) for off in zip(AHEAD_S, drifts, strict=True)]
    limiters[0].set_system_defaults([LIMIT])
    return limiters


def run(site: Site, limiters: list[Any], pause: Callable[[Random], float]) -> list[float]:
    """Request continuously with clients in turn; return the times of admitted requests, from the first."""
    random = Random(13)
    times: list[float] = []
    while not times or site.time.elapsed_s - times[0] < RUN_S:
        if admitted(random.choice(limiters)):
            times.append(site.time.elapsed_s)
        site.time.advance(pause(random))
    return times


def most_above_refill(times: list[float]) -> float:
    """Return the most that any period admitted above its refill."""
    least, most = 0.0, 0.0
    for number, time_s in enumerate(times):
        earned = time_s * PER_SECOND
        least = min(least, number - earned) if number else number - earned
        most = max(most, number + 1 - earned - least)
    return most


class TestFleet:
    def test_clients_with_wrong_clocks_together_admit_what_the_limit_allows(self, site: Site):
        """Clocks are seconds, minutes and an hour off.

        In ten minutes at most 1 % above and at least 98 % is admitted.
        """
        limiters = fleet(site)
        times = run(site, limiters, lambda random: random.uniform(0.5, 1.5) * STEP_S)
        offered = LIMIT.capacity + PER_SECOND * RUN_S

        assert 0.98 * offered <= len(times) <= 1.01 * offered
        assert most_above_refill(times) <= 1.01 * LIMIT.capacity
        assert {"rpm": len(times)} == site.used(limiters[0])

    def test_idle_periods_refill_no_more_than_the_capacity(self, site: Site):
        """A client with a clock an hour ahead gets no more than the others."""

        def pause(random: Random) -> float:
            return random.uniform(30, 120) if random.random() < 0.01 else 0.02

        times = run(site, fleet(site), pause)

        assert most_above_refill(times) <= 1.01 * LIMIT.capacity

    def test_a_call_refused_for_its_signing_time_is_signed_again(self, site: Site):
        """The refusal has the server's time: the same call succeeds, and none is refused again."""
        limiters = []
        refusals = []
        for ahead_s in AHEAD_S:
            site.proxy.forget()
            limiters.append(site.limiter(site.machine(ahead_s)))
            refusals.append(len(site.refused))
            assert site.proxy.targets[0] == site.proxy.targets[refusals[-1]]
        limiters[0].set_system_defaults([LIMIT])
        site.proxy.forget()
        admissions = [admitted(limiter) for limiter in limiters * 3]

        assert [0, 0, 0] == refusals[:3]
        assert max(refusals[3:5]) <= 1
        assert [1, 1] == refusals[5:]
        assert all(admissions)
        assert [] == site.refused

    @pytest.mark.parametrize("ahead_s", AHEAD_S)
    def test_a_new_client_rejects_on_an_exhausted_bucket(self, site: Site, ahead_s: float):
        """No write is sent before a response has given the time."""
        first = site.limiter(site.machine())
        first.set_system_defaults([Limit.per_minute("rpm", 5)])

        assert 5 == burst(first)
        assert not admitted(site.limiter(site.machine(ahead_s)))


class TestAdjustedClocks:
    @pytest.mark.parametrize("step_s", [5, -5, HOUR_S, -HOUR_S])
    def test_a_step_of_the_wall_clock_has_no_effect(self, site: Site, step_s: float):
        """After the first response, only the monotonic clock is used."""
        machine = site.machine()
        limiter = site.limiter(machine)
        limiter.set_system_defaults([SMALL])
        before = burst(limiter)
        machine.ahead_s += step_s
        at_once = admitted(limiter)
        site.time.advance(30)
        after = burst(limiter)

        assert near(before, SMALL.capacity)
        assert not at_once
        assert near(after, SMALL.capacity / 2)
        assert [] == site.refused

    @pytest.mark.parametrize("asleep_s", [30, 2 * HOUR_S])
    def test_a_machine_that_slept_continues(self, site: Site, asleep_s: float):
        """Its clock continued, and so did the refill."""
        limiter = site.limiter(site.machine())
        limiter.set_system_defaults([SMALL])
        burst(limiter)
        site.time.advance(asleep_s)
        after = burst(limiter)

        offered = min(SMALL.capacity, asleep_s * SMALL.capacity / 60)
        assert near(after, offered)
        assert [] == site.refused

    @pytest.mark.parametrize("asleep_s", [30, 2 * HOUR_S])
    def test_a_clock_that_stopped_during_sleep_is_corrected(self, site: Site, asleep_s: float):
        """If the machine's clock stops, two responses on two connections show for how long."""
        machine = site.machine()
        limiter = site.limiter(machine)
        limiter.set_system_defaults([SMALL])
        burst(limiter)
        site.time.advance(asleep_s)
        machine.booted_s -= asleep_s
        site.time.advance(1.1)
        admitted(limiter)
        site.settled(limiter)
        after = burst(limiter)

        offered = min(SMALL.capacity, asleep_s * SMALL.capacity / 60)
        assert near(after, offered)


class TestWithoutDate:
    @pytest.fixture
    def undated(self, kind: str) -> Iterator[Site]:
        with ExitStack() as stack:
            yield Site(kind, stack, UndatedResponses)

    @pytest.mark.parametrize("ahead_s", [0, 5, -5, 200, -200])
    def test_without_dates_the_machines_clock_is_used(self, undated: Site, ahead_s: float):
        """Responses without a date leave the machine's own clock."""
        limiter = undated.limiter(undated.machine(ahead_s))
        limiter.set_system_defaults([SMALL])
        before = burst(limiter)
        undated.time.advance(30)
        after = burst(limiter)

        assert near(before, SMALL.capacity)
        assert near(after, SMALL.capacity / 2)

    @pytest.mark.parametrize("ahead_s", [HOUR_S, -HOUR_S])
    def test_without_dates_a_refused_signature_names_the_clock(self, undated: Site, ahead_s: float):
        """Without a server time, the error says that the signing time is wrong."""
        with pytest.raises(RateLimiterUnavailable, match=r"(?i)signature"):
            undated.limiter(undated.machine(ahead_s))
