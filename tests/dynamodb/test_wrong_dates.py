"""A single wrong Date has no effect, and a real step of the server's clock is followed.

Time is simulated; the engine is real. The proxy reports the simulated time, and changes single
dates.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.dynamodb.faults import Misdated
from tests.dynamodb.test_clocks import HOUR_S, Site, admitted, burst
from tests.dynamodb.trees import KINDS
from zae_limiter import Limit, RateLimitExceeded

LIMIT = Limit.custom("rpm", 100, 100, 600)
EARN_ONE_S = 6
LEFT = 20
WARMING = 10
OFF_S = (HOUR_S, -HOUR_S, 240)


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """A server that accepts signatures of any time, since a refusal would hide a wrong write."""
    with ExitStack() as stack:
        made = Site(str(request.param), stack)
        made.proxy.settings.signatures_s = None
        yield made


WHEN = ("opening", "meeting")
"""The first response of a client, or the last one before it writes: the read in which it meets a bucket."""


def opened(site: Site, ahead_s: float = 0) -> Any:
    """Return a client whose limits are cached for longer than any date is off, so that no read precedes a take."""
    return site.limiter(site.machine(ahead_s), config_cache_ttl=10 * HOUR_S)


def misled(site: Site, when: str, off_s: int, ahead_s: float = 0) -> Any:
    """Return a new client that gets one wrong date."""
    if when == "opening":
        site.proxy.next(Misdated(off_s))
        return opened(site, ahead_s)
    limiter = opened(site, ahead_s)
    site.proxy.next(Misdated(off_s), target="BatchGetItem")
    return limiter


def many(limiter: Any) -> bool:
    """Return whether more than the available tokens was admitted at the same time."""
    try:
        with limiter.acquire("user-1", "api", {"rpm": 3 * LEFT}):
            return True
    except RateLimitExceeded:
        return False


def warm(site: Site) -> Any:
    """Return a client that knows the server's time well, and a bucket with `LEFT` tokens."""
    limiter = opened(site)
    limiter.set_system_defaults([LIMIT])
    with limiter.acquire("user-1", "api", {"rpm": LIMIT.capacity - LEFT - WARMING}):
        pass
    for _ in range(WARMING):
        admitted(limiter)
    return limiter


def earned_in(site: Site, limiter: Any, tokens: int) -> int:
    """Return what is admitted after the time that refills this many tokens."""
    site.time.advance(tokens * EARN_ONE_S)
    return burst(limiter)


class TestSingleWrongDate:
    @pytest.mark.parametrize("off_s", OFF_S)
    def test_a_warm_client_with_a_wrong_date_admits_what_is_available(self, site: Site, off_s: int) -> None:
        """It admits no more than the bucket has, and does not reject for as long as the date was off."""
        limiter = warm(site)
        site.proxy.next(Misdated(off_s))
        one, too_many = admitted(limiter), many(limiter)
        rest = burst(limiter)
        later = earned_in(site, limiter, 10)

        assert one
        assert not too_many
        assert LEFT - 1 <= rest <= LEFT + 2
        assert 9 <= later <= 12

    @pytest.mark.parametrize("off_s", OFF_S)
    @pytest.mark.parametrize("when", WHEN)
    @pytest.mark.parametrize("ahead_s", [0, -HOUR_S])
    def test_a_new_client_with_a_wrong_date_admits_what_is_available(
        self, site: Site, off_s: int, when: str, ahead_s: int
    ) -> None:
        """Its first response is confirmed on another connection before anything is written."""
        other = warm(site)
        newcomer = misled(site, when, off_s, ahead_s)
        too_many, rest = many(newcomer), burst(newcomer)
        later = earned_in(site, newcomer, 10) + earned_in(site, other, 10)

        assert not too_many
        assert LEFT - 1 <= rest <= LEFT + 2
        assert 18 <= later <= 23

    @pytest.mark.parametrize("off_s", OFF_S)
    @pytest.mark.parametrize("when", WHEN)
    def test_a_new_bucket_is_created_at_the_servers_time(self, site: Site, off_s: int, when: str) -> None:
        """A bucket created an hour ahead would not refill for an hour."""
        other = opened(site)
        other.set_system_defaults([LIMIT])
        newcomer = misled(site, when, off_s)
        first = burst(newcomer)
        later = earned_in(site, newcomer, 10) + earned_in(site, other, 10)

        assert LIMIT.capacity <= first <= LIMIT.capacity + 2
        assert 18 <= later <= 22


class TestStep:
    @pytest.mark.parametrize("step_s", OFF_S)
    def test_a_step_of_the_server_clock_is_followed(self, site: Site, step_s: int) -> None:
        """A second connection confirms it in the background."""
        machine = site.machine()
        limiter = site.limiter(machine)
        limiter.set_system_defaults([LIMIT])
        admitted(limiter)
        site.time.advance(step_s)
        machine.booted_s -= step_s
        admitted(limiter)
        site.settled(limiter)
        low, high = limiter.repository.scope.table.now()

        assert low <= site.time.now_s * 1000 <= high
        assert high - low <= 1_100

    def test_wrong_dates_of_one_connection_are_never_followed(self, site: Site) -> None:
        """Any number of them makes no difference, with few reads on other connections."""
        limiter = warm(site)
        site.proxy.always(Misdated(HOUR_S), target="UpdateItem")
        site.proxy.forget()
        taken = sum(admitted(limiter) for _ in range(LEFT // 2))
        too_many = many(limiter)
        probes = site.proxy.targets.count("GetItem")
        site.proxy.clear_faults()
        later = earned_in(site, limiter, 10)

        assert LEFT // 2 == taken
        assert not too_many
        assert LEFT // 2 + 9 <= later <= LEFT // 2 + 12
        assert probes <= LEFT // 2
