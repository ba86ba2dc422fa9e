"""Several buckets in one request: which error the request fails with."""

import pytest

from zae_limiter.core.cascade import (
    MOST_BUCKETS,
    MOST_LEVELS,
    check_buckets,
    check_levels,
    check_not_blocked,
    entities_to_read,
    error_of,
)
from zae_limiter.core.config import Block, Links
from zae_limiter.core.errors import (
    EntityBlockedError,
    RateLimiterUnavailable,
    TooManyBucketsError,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.core.timestamp import utc_from_ms

UNAVAILABLE = RateLimiterUnavailable(TimeoutError())
WRONG = ValidationError("consume", "x", "is wrong")


def test_a_request_without_failures_has_no_error() -> None:
    """It is admitted, or its rejections give the reason."""
    assert (None, None) == (error_of([], rejected=False), error_of([], rejected=True))


@pytest.mark.parametrize("failures", [[UNAVAILABLE], [UNAVAILABLE, RateLimiterUnavailable(OSError())]])
def test_unavailable_buckets_without_a_rejection_give_the_first_error(failures: list[ZAELimiterError]) -> None:
    """One error is enough."""
    assert UNAVAILABLE is error_of(failures, rejected=False)


def test_rejection_takes_precedence_over_an_unavailable_bucket() -> None:
    """The rejection is more useful to the caller: it contains the wait."""
    assert error_of([UNAVAILABLE], rejected=True) is None


@pytest.mark.parametrize("failures", [[WRONG], [WRONG, UNAVAILABLE], [UNAVAILABLE, WRONG]])
@pytest.mark.parametrize("rejected", [True, False])
def test_validation_error_takes_precedence_over_all_other_failures(
    failures: list[ZAELimiterError], rejected: bool
) -> None:
    """Only the caller can correct it."""
    assert WRONG is error_of(failures, rejected=rejected)


def test_a_chain_of_eight_levels_is_the_longest() -> None:
    """A longer one is refused with a named error."""
    check_levels("key-1", MOST_LEVELS)

    with pytest.raises(TooManyBucketsError, match="more than 7 entities above"):
        check_levels("key-1", MOST_LEVELS + 1)


def test_sixteen_buckets_are_the_most_of_one_acquire() -> None:
    """More are refused with a named error."""
    check_buckets("key-1", MOST_BUCKETS)

    with pytest.raises(TooManyBucketsError, match="from 17 buckets"):
        check_buckets("key-1", MOST_BUCKETS + 1)


def test_block_in_force_is_raised_with_its_reason_and_end() -> None:
    """A block that has ended refuses nothing."""
    links = Links(blocks=(Block(until_ms=5), Block("gpt-4", "unpaid", 2_000)))

    check_not_blocked("key-1", None, "gpt-4", 1_000)
    check_not_blocked("key-1", links, "gpt-4", 2_000)
    with pytest.raises(EntityBlockedError) as caught:
        check_not_blocked("key-1", links, "gpt-4", 1_999)

    assert ("key-1", "gpt-4", "unpaid", utc_from_ms(2_000)) == caught.value.args


def test_block_without_an_end_is_raised_without_one() -> None:
    """It refuses at any time."""
    with pytest.raises(EntityBlockedError) as caught:
        check_not_blocked("key-1", Links(blocks=(Block(),)), "gpt-4", 10**15)

    assert caught.value.until is None


def test_hinted_entities_are_read_together_with_the_missing_one() -> None:
    """Those that are known already are not read again, and none is read twice."""
    assert ["a", "b", "d"] == entities_to_read("a", ("a", "b", "c", "d", "b"), ["c"])


@pytest.mark.parametrize("hint", [(), ("b", "a")])
def test_a_hint_that_does_not_begin_with_the_missing_entity_is_not_used(hint: tuple[str, ...]) -> None:
    """The entity was moved since, so what is above it is unknown."""
    assert ["a"] == entities_to_read("a", hint, [])


def test_a_long_hint_is_cut_to_the_longest_chain() -> None:
    """A damaged record must not cause many reads."""
    hint = ("a", *(f"entity-{number}" for number in range(50)))

    assert MOST_LEVELS == len(entities_to_read("a", hint, []))
