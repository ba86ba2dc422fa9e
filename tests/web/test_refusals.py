"""Refusals: errors of the limiter become a status, headers and problem details; other errors do not."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.strategies import limits
from tests.web.reported import check_headers, rate_limits
from zae_limiter.core.errors import (
    AmountExceedsCapacityError,
    EntityBlockedError,
    InvalidIdentifierError,
    InvalidNameError,
    LeaseExpiredError,
    NoLimitsInForceError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    TooManyBucketsError,
    ValidationError,
)
from zae_limiter.core.limit import Limit
from zae_limiter.core.names import MAX_AMOUNT
from zae_limiter.core.status import LimitStatus
from zae_limiter.web.ask import Ask
from zae_limiter.web.refusals import Refusal, refusal_of

RPM, TPM = Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 1_000)
SHORT = LimitStatus("key-1", "gpt-4", "rpm", RPM, 0, 1, True, 4.035)
PASSED = LimitStatus("secret-project", "gpt-4", "tpm", TPM, 900, 100, False, 0.0)
TOO_MUCH = LimitStatus("key-1", "gpt-4", "tpm", TPM, 1_000, 5_000, True, 60.0)


def answered(error: BaseException, ask: Ask | None = None) -> tuple[Refusal, dict[str, str], dict[str, Any]]:
    """Return a refusal, its headers after their check, and its body."""
    refusal = refusal_of(error, ask, 1_750_000_000.0)
    assert refusal is not None
    headers = check_headers(refusal.headers)
    body = json.loads(refusal.body)
    assert headers["content-type"] == "application/problem+json"
    assert headers["content-length"] == str(len(refusal.body))
    assert body["status"] == refusal.status
    return refusal, headers, body


SLOTS = Limit.concurrent("slots", 20)
NONE_FREE = LimitStatus("key-1", "gpt-4", "slots", SLOTS, 0, 1, True, 44.0, exact=False, in_use=20)


class TestRejection:
    def test_rejection_for_lack_of_slots_says_how_many_are_in_use(self):
        """It is retried after a second, although the hold lasts longer."""
        refusal, headers, body = answered(RateLimitExceeded([NONE_FREE, PASSED]))

        slots, tpm = body["limits"]
        assert ("1", "1000", 1.0) == (headers["retry-after"], headers["retry-after-ms"], body["retry_after_seconds"])
        assert (20, 60, False, 44.0) == tuple(
            slots[name] for name in ("in_use", "hold_seconds", "exact", "retry_after_seconds")
        )
        assert not {"in_use", "hold_seconds", "exact"} & tpm.keys()
        assert "Limit 'slots': 0 available and 20 in use, 1 requested. Retry after 1.000 s." == body["detail"]
        assert 429 == refusal.status

    def test_exceeded_limit_is_answered_with_429_and_the_problem_type_of_the_draft(self):
        """``violated-policies`` has the names of the policies that lack tokens."""
        refusal, _, body = answered(RateLimitExceeded([SHORT, PASSED]))

        assert refusal.status == 429
        assert refusal.status_line == "429 Too Many Requests"
        assert body["type"] == "https://iana.org/assignments/http-problem-types#quota-exceeded"
        assert body["violated-policies"] == ["rpm"]

    def test_rejection_behind_requests_that_wait_says_so(self):
        """No token is missing, but others wait for them before; the wait is the estimate."""
        error = RateLimitExceeded((PASSED,)).after_wait(0.0, 3, 2.5)
        refusal, headers, body = answered(error)

        assert (429, "3", "2500") == (refusal.status, headers["retry-after"], headers["retry-after-ms"])
        assert "Other requests wait for the same tokens. Retry after 2.500 s." == body["detail"]

    def test_body_of_a_rejection_has_every_limit(self):
        """Also those that had enough."""
        _, _, body = answered(RateLimitExceeded([SHORT, PASSED]))

        assert [("rpm", 0, True), ("tpm", 900, False)] == [
            (one["limit"], one["available"], one["exceeded"]) for one in body["limits"]
        ]

    def test_rejection_names_no_entity(self):
        """The id of a parent may be secret; buckets are told apart by a hash."""
        refusal, _, _ = answered(RateLimitExceeded([SHORT, PASSED]))

        assert b"secret-project" not in refusal.body
        assert "secret-project" not in str(refusal.headers)

    def test_wait_is_in_whole_seconds_and_in_exact_milliseconds(self):
        """4.035 s are 4035 ms, although the float is a little more."""
        _, headers, _ = answered(RateLimitExceeded([SHORT, PASSED]))

        assert headers["retry-after"] == "5"
        assert headers["retry-after-ms"] == "4035"

    def test_rejection_has_the_headers_of_its_rule(self):
        """Dialects and roles are those of the rule."""
        ask = Ask(
            "key-1", "gpt-4", {"rpm": 1, "tpm": 100}, headers=("openai", "anthropic"), roles={"tpm": "input-tokens"}
        )

        _, headers, _ = answered(RateLimitExceeded([SHORT, PASSED]), ask)

        assert headers["x-ratelimit-remaining-requests"] == "0"
        assert headers["anthropic-ratelimit-input-tokens-remaining"] == "900"
        assert "ratelimit" not in headers

    def test_rejection_without_a_rule_has_headers_of_the_ietf(self):
        """An error that a handler raised itself."""
        _, headers, _ = answered(RateLimitExceeded([SHORT, PASSED]))

        assert ["rpm", "tpm"] == list(rate_limits(headers, "ratelimit"))

    @given(st.lists(limits, min_size=1, max_size=4), st.integers(-(10**40), 0), st.floats(0, 1e30))
    def test_rejection_with_any_numbers_is_answered(self, found: list[Limit], available: int, wait_s: float):
        """A debt beyond 64 bits is no error of the server."""
        errors = [LimitStatus("a", "b", one.name, one, available, MAX_AMOUNT, True, wait_s) for one in found]

        refusal, _, _ = answered(RateLimitExceeded(errors))

        assert refusal.status == 429


class TestTooLarge:
    def test_amount_above_a_capacity_is_answered_with_413_that_names_limit_and_capacity(self):
        """Never 500, and never a rejection that would be repeated."""
        error = AmountExceedsCapacityError([TOO_MUCH, PASSED], "consume[tpm]", 5_000, "is too much")

        refusal, headers, body = answered(error)

        assert refusal.status == 413
        assert "retry-after" not in headers
        assert "retry-after-ms" not in headers
        assert body["violated-policies"] == ["tpm"]
        assert body["detail"] == "Limit 'tpm' has a capacity of 1000, and 5000 were requested."
        assert body["limits"][0]["capacity"] == 1000

    def test_amount_above_a_capacity_without_levels_still_names_limit_and_capacity(self):
        """The levels are unknown if the store did not answer."""
        reason = "is more than the capacity of limit 'tpm' (1000): it can never be admitted"

        refusal, _, body = answered(AmountExceedsCapacityError([], "consume[tpm]", 5_000, reason))

        assert refusal.status == 413
        assert body["detail"] == f"The amount {reason}."


class TestBlocked:
    until = datetime(2025, 6, 15, 15, 7, 10, 500_000, UTC)
    """30.5 s after the time of ``answered``."""

    def test_blocked_entity_is_answered_with_403_its_reason_and_its_end(self):
        """The wait is rounded up."""
        error = EntityBlockedError("key-1", "gpt-4", "unpaid", self.until)

        refusal, headers, body = answered(error, Ask("key-1", "gpt-4", {"rpm": 1}))

        assert refusal.status == 403
        assert headers["retry-after"] == "31"
        assert body["detail"] == "Requests are blocked until 2025-06-15T15:07:10.500000+00:00: unpaid."
        assert {
            "reason": "unpaid",
            "resource": "gpt-4",
            "until": self.until.isoformat(),
            "blocked_entity": "key-1",
        } == {name: body[name] for name in ("reason", "resource", "until", "blocked_entity")}

    @pytest.mark.parametrize("ask", [None, Ask("key-1", "gpt-4", {"rpm": 1})], ids=["unknown", "known"])
    def test_blocked_entity_above_is_not_named(self, ask: Ask | None):
        """The id of a parent may be secret."""
        refusal, _, body = answered(EntityBlockedError("secret-project"), ask)

        assert b"secret-project" not in refusal.body
        assert "blocked_entity" not in body

    def test_block_without_an_end_has_no_wait(self):
        """A client that waits would wait forever."""
        _, headers, body = answered(EntityBlockedError("key-1"))

        assert "retry-after" not in headers
        assert (None, None) == (body["until"], body["reason"])

    def test_block_that_has_just_ended_has_the_shortest_wait(self):
        """The server's clock may be behind that of the store."""
        error = EntityBlockedError("key-1", None, None, self.until - timedelta(minutes=1))

        assert "1" == answered(error)[1]["retry-after"]


class TestOtherErrors:
    def test_too_many_buckets_are_answered_with_503_and_logged(self, caplog: pytest.LogCaptureFixture):
        """The stored parents or the rule are to blame, not the client. Waiting does not help."""
        error = TooManyBucketsError("entity_id", "key-1", "the request would take from 17 buckets")

        refusal, headers, body = answered(error)

        assert refusal.status == 503
        assert "retry-after" not in headers
        assert body["detail"] == "The request takes from too many rate limits."
        assert "17 buckets" in caplog.text

    def test_unavailable_store_is_answered_with_503_without_its_address(self):
        """The cause may name hosts, which are no business of clients."""
        refusal, headers, _ = answered(RateLimiterUnavailable(OSError("db.internal"), "stack"))

        assert refusal.status == 503
        assert ("1", "1000") == (headers["retry-after"], headers["retry-after-ms"])
        assert b"db.internal" not in refusal.body

    @pytest.mark.parametrize("kind", [InvalidIdentifierError, InvalidNameError])
    def test_invalid_name_is_answered_with_400(self, kind: type[ValidationError]):
        """Entities and resources often come with the request."""
        refusal, _, body = answered(kind("entity_id", "#", "must not have #"))

        assert refusal.status == 400
        assert body["detail"] == "The entity_id is invalid: must not have #."

    @pytest.mark.parametrize(
        "error",
        [
            ValueError(),
            ValidationError("consume", {}, "is empty"),
            NoLimitsInForceError("gpt-4", "key-1", "rpm"),
            LeaseExpiredError("adjust"),
            KeyboardInterrupt(),
        ],
        ids=lambda error: type(error).__name__,
    )
    def test_mistake_of_the_program_is_not_answered(self, error: BaseException):
        """It stays a 500, which is logged."""
        assert refusal_of(error, None, 0.0) is None


class TestAsk:
    @pytest.mark.parametrize("headers", ["IETF", ("ietf", "github"), "o"])
    def test_unknown_dialect_is_an_error_before_anything_is_taken(self, headers: Any):
        """A response that fails because of its headers would be charged."""
        with pytest.raises(ValidationError, match="must be one of ietf, openai, anthropic"):
            Ask("key-1", "gpt-4", {"rpm": 1}, headers=headers)

    def test_no_dialect_is_valid(self):
        """Then only rejections have headers."""
        assert () == Ask("key-1", "gpt-4", {"rpm": 1}, headers=()).dialects
