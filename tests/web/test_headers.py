"""Headers: three dialects, correct for every status that a limit can have."""

import math
from typing import ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import entity_ids, limits, resources
from tests.web.reported import check_headers, nanoseconds, rate_limits, rfc3339_time
from zae_limiter.core.cascade import Also
from zae_limiter.core.errors import RateLimitExceeded
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import MAX_AMOUNT
from zae_limiter.core.status import LimitStatus
from zae_limiter.web.ask import Ask, Dialect
from zae_limiter.web.headers import (
    LARGEST_INTEGER,
    duration,
    headers_of_asks,
    limit_headers,
    merged_headers,
    partition_key,
    retry_headers,
    rfc3339,
)

NOW_S = 1_750_000_000.25
DIALECTS = ("ietf", "openai", "anthropic")


def status(
    limit: Limit, available: int, *, entity_id: str = "key-1", requested: int = 1, wait_s: float = 0.0
) -> LimitStatus:
    return LimitStatus(entity_id, "gpt-4", limit.name, limit, available, requested, wait_s > 0, wait_s)


@st.composite
def statuses(draw: st.DrawFn) -> LimitStatus:
    limit = draw(limits)
    available = draw(st.integers(-100 * MAX_AMOUNT, limit.capacity) | st.sampled_from([0, 1, limit.capacity]))
    requested = draw(st.integers(0, MAX_AMOUNT))
    exceeded = requested > available and requested > 0
    wait_s = draw(st.floats(0, 1e27)) if exceeded else 0.0
    found = min(available, limit.capacity)
    return LimitStatus(draw(entity_ids), draw(resources), limit.name, limit, found, requested, exceeded, wait_s)


class TestEveryStatus:
    @given(st.lists(statuses(), max_size=6), st.floats(0, 1e10))
    def test_headers_of_all_dialects_follow_their_grammar(self, found: list[LimitStatus], now_s: float):
        """Amounts up to 10^18, debts beyond 64 bits and waits of millions of years are no exception."""
        roles = {one.limit_name: role for one, role in zip(found, ["requests", "tokens"], strict=False)}

        check_headers(limit_headers(found, DIALECTS, roles, now_s))

    @given(st.lists(statuses(), min_size=1, max_size=6))
    def test_ietf_headers_name_every_limit_once(self, found: list[LimitStatus]):
        """A limit that occurs in several buckets is reported once, as in the bucket with the least left."""
        headers = check_headers(limit_headers(found, ["ietf"], None, NOW_S))

        states = rate_limits(headers, "ratelimit")
        assert {one.limit_name for one in found} == states.keys()

    @given(statuses())
    def test_ietf_parameters_are_those_of_the_limit(self, one: LimitStatus):
        """``q`` is the capacity, ``w`` the time to fill, ``r`` what is left; ``t`` is absent if the bucket is full."""
        headers = check_headers(limit_headers([one], ["ietf"], None, NOW_S))

        policy = rate_limits(headers, "ratelimit-policy")[one.limit_name]
        state = rate_limits(headers, "ratelimit")[one.limit_name]
        assert policy["q"] == min(one.limit.capacity, LARGEST_INTEGER)
        assert policy["w"] == min(-(-one.limit.fill_time_ms // 1000), LARGEST_INTEGER)
        assert state["r"] == min(max(0, one.available), LARGEST_INTEGER)
        assert ("t" in state) == (one.available < one.limit.capacity)

    @given(statuses())
    def test_reset_of_both_providers_is_not_before_the_bucket_is_full(self, one: LimitStatus):
        """A client that waits as long finds all tokens, unless the time cannot be written."""
        headers = check_headers(limit_headers([one], ["openai", "anthropic"], {one.limit_name: "tokens"}, NOW_S))

        missing = one.limit.capacity - one.available
        full_ms = -(-missing * one.limit.refill_period_ms // one.limit.refill_amount)
        assert nanoseconds(headers["x-ratelimit-reset-tokens"]) == min(full_ms, (2**63 - 1) // 10**6) * 10**6
        shown = rfc3339_time(headers["anthropic-ratelimit-tokens-reset"])
        assert shown.year == 9999 or shown.timestamp() >= NOW_S + full_ms / 1000

    @given(statuses().filter(lambda one: one.exceeded))
    def test_retry_headers_are_never_early(self, one: LimitStatus):
        """Both are rounded up. The milliseconds have no more than what binary fractions add to them."""
        headers = check_headers(retry_headers(RateLimitExceeded([one])))

        assert int(headers["retry-after"]) >= max(1, one.retry_after_seconds)
        assert int(headers["retry-after-ms"]) >= max(1, math.floor(one.retry_after_seconds * 1000))
        assert int(headers["retry-after-ms"]) <= max(1, math.ceil(one.retry_after_seconds * 1000))


class TestIetf:
    def test_bucket_after_one_request_reports_policy_and_state(self):
        """The example of the specification, with the hash of the bucket."""
        headers = dict(limit_headers([status(Limit.per_minute("rpm", 600), 599)], ["ietf"], None, NOW_S))

        key = partition_key("key-1", "gpt-4")
        assert headers == {
            "RateLimit-Policy": f'"rpm";q=600;w=60;pk=:{key}:',
            "RateLimit": f'"rpm";r=599;t=1;pk=:{key}:',
        }

    def test_wait_of_a_rejected_request_bounds_the_time_until_more(self):
        """One token per hour, of which a minute is left: the next token comes in a minute, not in an hour."""
        one = status(Limit.per_hour("rph", 1), 0, wait_s=59.2)

        headers = check_headers(limit_headers([one], ["ietf"], None, NOW_S))

        assert rate_limits(headers, "ratelimit")["rph"]["t"] == 60

    def test_debt_is_reported_as_nothing_left_until_it_is_paid(self):
        """A debt of 9 at one token per second needs 10 seconds for the next token."""
        headers = check_headers(limit_headers([status(Limit.per_second("rps", 1), -9)], ["ietf"], None, NOW_S))

        assert {"r": 0, "t": 10} == {
            name: value for name, value in rate_limits(headers, "ratelimit")["rps"].items() if name != "pk"
        }

    def test_limit_in_two_buckets_reports_the_bucket_with_the_least_left(self):
        """A key with 9 of 10 left, and its project with 100 of 1000: the key can take 9."""
        key = status(Limit.per_minute("rpm", 10), 9)
        project = status(Limit.per_minute("rpm", 1000), 100, entity_id="project-1")

        headers = check_headers(limit_headers([project, key], ["ietf"], None, NOW_S))

        assert rate_limits(headers, "ratelimit-policy")["rpm"]["q"] == 10
        assert rate_limits(headers, "ratelimit")["rpm"]["r"] == 9

    def test_limit_in_two_buckets_with_the_same_left_reports_the_larger_one(self):
        """A key with all of 10 left, and its project with 10 of 1000: the project is the one that is short."""
        key = status(Limit.per_minute("rpm", 10), 10)
        project = status(Limit.per_minute("rpm", 1000), 10, entity_id="project-1")

        headers = check_headers(limit_headers([key, project], ["ietf"], None, NOW_S))

        assert rate_limits(headers, "ratelimit-policy")["rpm"]["q"] == 1000

    def test_partition_keys_of_two_buckets_differ_and_hide_their_names(self):
        """The hash tells buckets apart, and names neither entity nor resource."""
        assert partition_key("key-1", "gpt-4") != partition_key("key-2", "gpt-4")
        assert partition_key("key-1", "gpt-4") != partition_key("key-1", "gpt-5")
        assert "key" not in partition_key("key-1", "gpt-4")

    def test_lease_without_statuses_has_no_headers(self):
        """An empty List cannot be written, so the header is left out."""
        assert [] == limit_headers([], DIALECTS, None, NOW_S)


class TestProviders:
    def test_openai_reports_requests_and_tokens(self):
        """Names, amounts and durations are those of OpenAI's API."""
        found = [status(Limit.per_minute("rpm", 60), 59), status(Limit.per_minute("tpm", 150_000), 149_984)]

        assert limit_headers(found, ["openai"], None, NOW_S) == [
            ("x-ratelimit-limit-requests", "60"),
            ("x-ratelimit-remaining-requests", "59"),
            ("x-ratelimit-reset-requests", "1s"),
            ("x-ratelimit-limit-tokens", "150000"),
            ("x-ratelimit-remaining-tokens", "149984"),
            ("x-ratelimit-reset-tokens", "7ms"),
        ]

    def test_anthropic_reports_input_and_output_tokens(self):
        """Times are RFC 3339, rounded up to whole seconds."""
        found = [status(Limit.per_minute("itpm", 60), 50), status(Limit.per_minute("otpm", 60), 60)]

        headers = dict(limit_headers(found, ["anthropic"], None, NOW_S))

        assert headers["anthropic-ratelimit-input-tokens-remaining"] == "50"
        assert headers["anthropic-ratelimit-input-tokens-reset"] == "2025-06-15T15:06:51Z"
        assert headers["anthropic-ratelimit-output-tokens-reset"] == "2025-06-15T15:06:41Z"

    def test_limits_of_the_same_role_report_the_one_with_the_least_left(self):
        """A header exists once: of requests per minute and per day, the one with fewer left is shown."""
        found = [status(Limit.per_minute("rpm", 10), 9), status(Limit.per_day("rpd", 100), 5)]

        assert dict(limit_headers(found, ["openai"], None, NOW_S))["x-ratelimit-remaining-requests"] == "5"

    def test_role_of_a_limit_can_be_overridden(self):
        """A mapping of the rule adds names, and wins over the usual ones."""
        found = [status(Limit.per_minute("rpm", 10), 9), status(Limit.per_minute("images", 5), 4)]

        headers = dict(limit_headers(found, ["openai"], {"rpm": "tokens", "images": "requests"}, NOW_S))

        assert headers["x-ratelimit-remaining-requests"] == "4"
        assert headers["x-ratelimit-remaining-tokens"] == "9"


class TestSeveralBuckets:
    """The statuses of one response are those of many buckets."""

    across = LimitStatus("key-1", "_all_", "rph", Limit.per_hour("rph", 100), 40, 1, False, 0.0)
    internal = status(Limit.per_minute("tpm", 50), 0, entity_id="project-1", requested=0)

    def test_limit_across_resources_is_reported_with_those_of_the_resource(self):
        """It is one of the entity's own."""
        own = status(Limit.per_minute("rpm", 10), 9)

        headers = check_headers(headers_of_asks([Ask("key-1", "gpt-4", {"rpm": 1})], [own, self.across], NOW_S))

        assert {"rpm": 9, "rph": 40} == {name: one["r"] for name, one in rate_limits(headers, "ratelimit").items()}

    def test_limit_across_resources_counts_for_its_role(self):
        """OpenAI's headers have one number for requests."""
        found = [status(Limit.per_minute("rpm", 60), 59), self.across]

        headers = dict(headers_of_asks([Ask("key-1", "gpt-4", {"rpm": 1}, headers="openai")], found, NOW_S))

        assert ("40", "100") == (headers["x-ratelimit-remaining-requests"], headers["x-ratelimit-limit-requests"])

    def test_limit_that_only_an_entity_above_has_is_not_reported(self):
        """The request takes no tokens, and a client would wait for some."""
        found = [status(Limit.per_minute("rpm", 10), 9), self.internal]

        headers = headers_of_asks([Ask("key-1", "gpt-4", {"rpm": 1}, headers=DIALECTS)], found, NOW_S)

        assert ["rpm"] == list(rate_limits(check_headers(headers), "ratelimit"))
        assert not any("tokens" in name for name, _ in headers)

    def test_limit_of_another_entity_that_is_asked_for_is_reported(self):
        """Then the one above it counts too."""
        other = status(Limit.per_minute("tpm", 100), 90, entity_id="user-1")
        ask = Ask("key-1", "gpt-4", {"rpm": 1}, also=[Also("user-1", "gpt-4", {"tpm": 10})])

        headers = check_headers(headers_of_asks([ask], [other, self.internal], NOW_S))

        assert 0 == rate_limits(headers, "ratelimit")["tpm"]["r"]


class TestMerged:
    """A gateway copies the headers of the server that it calls, and a client must not read two of a name."""

    added: ClassVar = [(b"x-ratelimit-limit-requests", b"5"), (b"x-ratelimit-remaining-requests", b"4")]

    def test_headers_of_another_server_are_replaced(self):
        """Names have no case. Others are kept, in their order."""
        own = [(b"X-RateLimit-Limit-Requests", b"9"), (b"set-cookie", b"a"), (b"set-cookie", b"b")]

        assert [*own[1:], *self.added] == merged_headers(own, self.added, 200)

    def test_rejection_of_another_server_keeps_its_headers(self):
        """They explain it. What they do not report is added."""
        own = [(b"X-RateLimit-Remaining-Requests", b"0")]

        assert [*own, self.added[0]] == merged_headers(own, self.added, 429)

    def test_headers_may_be_text(self):
        """Those of WSGI are."""
        assert [("RateLimit", "new")] == merged_headers([("ratelimit", "old")], [("RateLimit", "new")], 200)


@pytest.mark.parametrize(
    ("milliseconds", "text"),
    [
        *[(0, "0s"), (1, "1ms"), (12, "12ms"), (999, "999ms"), (1000, "1s"), (8640, "8.64s"), (60_000, "1m0s")],
        *[(360_000, "6m0s"), (90_500, "1m30.5s"), (3_600_000, "1h0m0s"), (3_630_001, "1h0m30.001s")],
        (10**30, "2562047h47m16.854s"),
    ],
)
def test_duration_is_written_as_go_writes_it(milliseconds: int, text: str):
    """As in ``time.Duration.String``, which OpenAI's API uses; the largest is what Go can parse."""
    assert text == duration(milliseconds)


@given(st.integers(0, (2**63 - 1) // 10**6))
def test_duration_parses_to_the_same_time(milliseconds: int):
    """Nothing is lost between both."""
    assert milliseconds * 10**6 == nanoseconds(duration(milliseconds))


def test_time_beyond_the_year_9999_is_its_last_second():
    """RFC 3339 has four digits for the year."""
    assert "9999-12-31T23:59:59Z" == rfc3339(10**20)


SLOTS = Limit.concurrent("slots", 20)


def slots(free: int, *, wait_s: float = 0.0) -> LimitStatus:
    return LimitStatus("key-1", "gpt-4", "slots", SLOTS, free, 1, wait_s > 0, wait_s, exact=False, in_use=20 - free)


class TestSlots:
    @pytest.mark.parametrize(("free", "t"), [(20, None), (8, 1), (0, 1)])
    def test_ietf_policy_of_slots_has_the_unit_of_concurrent_requests_and_no_window(self, free: int, t: int | None):
        """Slots are returned at any time, so more are available within a second."""
        headers = check_headers(limit_headers([slots(free, wait_s=0.0 if free else 44.0)], ["ietf"], None, NOW_S))

        policy, state = (rate_limits(headers, name)["slots"] for name in ("ratelimit-policy", "ratelimit"))
        assert (20, "concurrent-requests", free, t) == (policy["q"], policy["qu"], state["r"], state.get("t"))
        assert "w" not in policy

    @pytest.mark.parametrize("dialect", ["openai", "anthropic"])
    def test_slots_are_reported_to_sdks_only_if_they_are_mapped(self, dialect: Dialect):
        """No SDK knows concurrent use, so a role has to be chosen."""
        assert [] == limit_headers([slots(8)], [dialect], None, NOW_S)

        found = check_headers(limit_headers([slots(8)], [dialect], {"slots": "requests"}, NOW_S))
        assert {"20", "8"} < set(found.values())
        full = check_headers(limit_headers([slots(20)], [dialect], {"slots": "requests"}, NOW_S))
        assert found.keys() == full.keys()

    def test_reset_of_mapped_slots_is_one_second(self):
        """That is when a client should look again."""
        for free, reset in ((8, "1s"), (20, "0s")):
            found = dict(limit_headers([slots(free)], ["openai"], {"slots": "requests"}, NOW_S))
            assert reset == found["x-ratelimit-reset-requests"]

    def test_retry_after_of_slots_is_at_most_a_second(self):
        """The exact wait holds only if nothing is returned or renewed."""
        assert [("Retry-After", "1"), ("retry-after-ms", "1000")] == retry_headers(
            RateLimitExceeded([slots(0, wait_s=44.0)])
        )
        assert ("retry-after-ms", "250") in retry_headers(RateLimitExceeded([slots(0, wait_s=0.25)]))

    def test_retry_after_of_slots_and_tokens_is_that_of_the_tokens(self):
        """A rate limit does not refill earlier because a slot is returned."""
        rpm = status(Limit.per_minute("rpm", 10), 0, wait_s=4.5)

        assert [("Retry-After", "5"), ("retry-after-ms", "4500")] == retry_headers(
            RateLimitExceeded([slots(0, wait_s=44.0), rpm])
        )
