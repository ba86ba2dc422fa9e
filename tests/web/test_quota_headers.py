"""Headers and refusals of quotas and soft limits: exact edges, whole periods, and no trial that clients notice."""

import json
import math
from dataclasses import replace
from datetime import UTC, datetime
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import entity_ids, limit_names, resources
from tests.web.reported import check_headers, nanoseconds, rate_limits, rfc3339_time
from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository, usd
from zae_limiter.core.calendar import period_at
from zae_limiter.core.errors import AmountExceedsCapacityError
from zae_limiter.core.names import MAX_QUOTA
from zae_limiter.core.status import LimitStatus
from zae_limiter.web.ask import Ask
from zae_limiter.web.headers import LARGEST_INTEGER, headers_of_asks, limit_headers, retry_headers
from zae_limiter.web.refusals import refusal_of

DIALECTS = ("ietf", "openai", "anthropic")
BERLIN = ZoneInfo("Europe/Berlin")
SPEND = Limit.quota("spend", usd("500"), tz="Europe/Berlin", unit="USD")
# 2026-03-28 12:00 in Berlin. The clocks go forward in the next night.
NOON_S = int(datetime(2026, 3, 28, 12, tzinfo=BERLIN).timestamp())
APRIL_S = int(datetime(2026, 4, 1, tzinfo=BERLIN).timestamp())
MARCH_S = int(datetime(2026, 3, 1, tzinfo=BERLIN).timestamp())

_zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])
quotas = st.builds(
    lambda name, amount, every, tz: Limit.quota(name, amount, every, "UTC" if every == "hour" else tz),
    limit_names,
    st.integers(1, MAX_QUOTA),
    st.sampled_from(["month", "week", "day", "hour"]),
    _zones,
)
times_s = st.floats(0, 4e9)


def status(limit: Limit, available: int, now_s: float, *, requested: int = 1, name: str = "key-1") -> LimitStatus:
    """Return the status of a quota, as the engine makes it."""
    assert limit.schedule is not None
    ends_s = period_at(limit.schedule, int(now_s))[1]
    exceeded = requested > max(0, available)
    wait_s = ends_s - now_s if exceeded else 0.0
    return LimitStatus(name, "gpt-4", limit.name, limit, available, requested, exceeded, wait_s, resets_at=ends_s)


@st.composite
def reported(draw: st.DrawFn) -> tuple[LimitStatus, float]:
    """Return a status, and the time at which it is reported."""
    limit, now_s = draw(quotas), draw(times_s)
    available = draw(st.integers(-5 * 10**17, limit.capacity) | st.sampled_from([0, 1, limit.capacity]))
    found = status(limit, min(available, limit.capacity), now_s, requested=draw(st.integers(0, limit.capacity)))
    return replace(found, entity_id=draw(entity_ids), resource=draw(resources)), now_s


class TestEveryStatus:
    @given(reported(), st.floats(-1e4, 1e4))
    def test_headers_of_a_quota_follow_the_grammar_of_all_dialects(self, one: tuple[LimitStatus, float], off_s: float):
        """Also if the clock of this machine is hours off, so that the edge seems to be over."""
        found, now_s = one

        check_headers(limit_headers([found], DIALECTS, {found.limit_name: "tokens"}, max(0.0, now_s + off_s)))

    @given(reported())
    def test_ietf_headers_of_a_quota_have_its_period_and_its_exact_edge(self, one: tuple[LimitStatus, float]):
        """``w`` is the length of the current period, and ``t`` the time until it ends, absent if nothing is spent."""
        found, now_s = one

        headers = check_headers(limit_headers([found], ["ietf"], None, now_s))

        policy = rate_limits(headers, "ratelimit-policy")[found.limit_name]
        state = rate_limits(headers, "ratelimit")[found.limit_name]
        assert found.limit.schedule is not None
        assert found.resets_at is not None
        begin_s, end_s = period_at(found.limit.schedule, int(now_s))
        assert (min(found.limit.capacity, LARGEST_INTEGER), end_s - begin_s) == (policy["q"], policy["w"])
        assert max(0, found.available) == state["r"] or state["r"] == LARGEST_INTEGER
        assert state.get("t") == (
            None if found.available == found.limit.capacity else max(1, math.ceil(found.resets_at - now_s))
        )

    @given(reported())
    def test_reset_of_both_providers_is_the_edge(self, one: tuple[LimitStatus, float]):
        """It is now if nothing is spent."""
        found, now_s = one

        headers = check_headers(limit_headers([found], ["openai", "anthropic"], {found.limit_name: "tokens"}, now_s))

        shown_s = rfc3339_time(headers["anthropic-ratelimit-tokens-reset"]).timestamp()
        after_s = nanoseconds(headers["x-ratelimit-reset-tokens"]) / 10**9
        assert found.resets_at is not None
        if found.available == found.limit.capacity:
            assert (math.ceil(now_s), 0.0) == (shown_s, after_s)
        else:
            assert shown_s == found.resets_at
            assert 0 <= now_s + after_s - found.resets_at < 0.002

    @given(reported().filter(lambda one: one[0].exceeded))
    def test_retry_headers_of_a_quota_are_never_before_the_edge(self, one: tuple[LimitStatus, float]):
        """A month is not shortened: no header has a maximum."""
        found, now_s = one

        headers = check_headers(retry_headers(RateLimitExceeded([found])))

        assert found.resets_at is not None
        assert int(headers["retry-after"]) == max(1, math.ceil(found.resets_at - now_s))
        assert int(headers["retry-after-ms"]) / 1000 >= found.resets_at - now_s - 1e-6
        assert ("false" if found.retry_after_seconds > 120 else None) == headers.get("x-should-retry")

    @given(reported(), st.booleans())
    def test_soft_quota_is_in_no_header(self, one: tuple[LimitStatus, float], beside_another: bool):
        """It never rejects, so a client must not slow down for it."""
        found, now_s = one
        soft = replace(found, limit=replace(found.limit, enforce=False))
        other = status(SPEND, 1, NOON_S)
        beside = [other] if beside_another and other.limit_name != soft.limit_name else []

        headers = limit_headers([soft, *beside], DIALECTS, {soft.limit_name: "tokens"}, now_s)

        assert limit_headers(beside, DIALECTS, {soft.limit_name: "tokens"}, now_s) == headers


class TestAcrossShiftsOfTheClock:
    def test_month_with_a_shift_is_an_hour_shorter(self):
        """March has 31 days in Berlin, without the hour that is skipped."""
        headers = check_headers(limit_headers([status(SPEND, usd("1"), NOON_S)], ["ietf"], None, NOON_S))

        assert rate_limits(headers, "ratelimit-policy")["spend"]["w"] == 31 * 86_400 - 3_600 == APRIL_S - MARCH_S
        assert rate_limits(headers, "ratelimit")["spend"]["t"] == 3 * 86_400 + 12 * 3_600 - 3_600

    def test_rejection_reports_the_same_edge_everywhere(self):
        """The amounts are micro-units, and the edge is local midnight."""
        found = status(SPEND, 0, NOON_S, requested=usd("0.02"))
        ask = Ask("key-1", "gpt-4", {"spend": 1}, headers=DIALECTS, roles={"spend": "tokens"})

        headers = check_headers(
            headers_of_asks([ask], [found], NOON_S + 500.0) + retry_headers(RateLimitExceeded([found]))
        )

        left_s = APRIL_S - NOON_S
        assert str(left_s) == headers["retry-after"]
        assert str(left_s * 1000) == headers["retry-after-ms"]
        # The clock of this machine is 500 s ahead. The wait of the rejection is not.
        assert rate_limits(headers, "ratelimit")["spend"]["t"] == left_s
        assert left_s * 10**9 == nanoseconds(headers["x-ratelimit-reset-tokens"])
        assert "2026-03-31T22:00:00Z" == headers["anthropic-ratelimit-tokens-reset"]
        assert "500000000" == headers["x-ratelimit-limit-tokens"]


class TestRefusal:
    def body(self, error: RateLimitExceeded) -> tuple[int, dict]:
        refusal = refusal_of(error, None, NOON_S)
        assert refusal is not None
        check_headers(refusal.headers)
        return refusal.status, json.loads(refusal.body)

    def test_money_is_shown_with_its_unit(self):
        """A reader does not count micro-units. Numbers for programs have them, and the unit beside."""
        code, body = self.body(RateLimitExceeded([status(SPEND, usd("0.01"), NOON_S, requested=usd("0.025"))]))

        assert 429 == code
        assert body["detail"].startswith("Limit 'spend': 0.01 available, 0.025 USD requested. Retry after ")
        (limit,) = body["limits"]
        assert (10_000, "USD", APRIL_S, "month") == tuple(
            limit[name] for name in ("available", "unit", "resets_at", "period")
        )

    def test_amount_above_a_quota_is_shown_with_its_unit(self):
        """No wait helps, so there is no edge to wait for."""
        found = status(SPEND, usd("500"), NOON_S, requested=usd("501"))

        code, body = self.body(AmountExceedsCapacityError([found], "consume[spend]", usd("501"), "is too much"))

        assert 413 == code
        assert "Limit 'spend' has a capacity of 500.00, and 501.00 USD were requested." == body["detail"]

    def test_soft_limits_are_in_no_body(self):
        """They are on trial, and clients must not notice."""
        rpm = Limit.per_minute("rpm", 10)
        short = LimitStatus("key-1", "gpt-4", "rpm", rpm, 0, 1, True, 4.5)
        soft = replace(status(SPEND, 0, NOON_S), limit=replace(SPEND, enforce=False), retry_after_seconds=0.0)
        large = replace(soft, requested=usd("900"))

        code, body = self.body(RateLimitExceeded([soft, short]))
        _, too_large = self.body(AmountExceedsCapacityError([large], "consume[rpm]", 11, "is too much"))

        assert (429, ["rpm"]) == (code, body["violated-policies"])
        assert ["rpm"] == [one["limit"] for one in body["limits"]]
        assert body["detail"].startswith("Limit 'rpm': ")
        assert [] == too_large["violated-policies"] == too_large["limits"]


class FixedClock:
    """A clock that stands still, at noon of 2026-03-28 in Berlin."""

    def now_ms(self) -> int:
        return NOON_S * 1000

    def monotonic_s(self) -> float:
        return float(NOON_S)


@pytest.mark.parametrize("enforce", [True, False])
def test_headers_of_a_lease_are_those_of_its_quota(enforce: bool):
    """The statuses of a real lease have the edge; a soft quota beyond its amount is not reported."""
    spend = replace(SPEND, enforce=enforce)
    with SyncRepository.open("memory://", clock=FixedClock()) as repo:
        limiter = SyncRateLimiter(repo)
        limits = [Limit.per_minute("rpm", 60), spend]
        with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "spend": usd("2")}, limits=limits) as lease:
            lease.adjust(spend=usd("600"))
            found = check_headers(headers_of_asks([Ask("key-1", "gpt-4", {"rpm": 1})], lease.statuses, NOON_S))

    states = rate_limits(found, "ratelimit")
    assert (["rpm", "spend"] if enforce else ["rpm"]) == list(states)
    if enforce:
        assert (0, APRIL_S - NOON_S) == (states["spend"]["r"], states["spend"]["t"])
    assert datetime.fromtimestamp(APRIL_S, UTC).isoformat() == "2026-03-31T22:00:00+00:00"
