"""When a bucket expires."""

from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from tests.one_bucket import NOON, after, at, created, own, settling, stored, taking, view
from zae_limiter.core.limit import Limit

RPM = Limit("rpm", 100, 100, 60)
TPM = Limit("tpm", 10, 10, 3_600)
FILL_MS = 3_600_000


@given(limits=some.limit_sets(max_size=3), now_ms=some.times_ms, multiplier=st.integers(2, 100))
def test_ttl_is_the_multiple_of_the_slowest_fill_time_rounded_up(
    limits: tuple[Limit, ...], now_ms: int, multiplier: int
) -> None:
    """An item may be deleted once its ttl has passed, and never before it is full."""
    item = created(stored(*limits, ttl=multiplier), now_ms=now_ms)
    slowest = max(limit.fill_time_ms for limit in limits)

    assert item["ttl"] * 1000 > now_ms + multiplier * slowest
    assert item["ttl"] * 1000 <= now_ms + multiplier * slowest + 1000
    assert slowest == item["tf"]


def test_only_buckets_with_a_ttl_multiplier_expire() -> None:
    """The multiplier is 0 for an entity's own limits."""
    assert "ttl" not in created(stored(RPM, ttl=0))
    assert "ttl" in created(stored(RPM, ttl=7))
    assert "ttl" in created(own(RPM, ttl=7))


def test_bucket_created_in_debt_has_no_ttl() -> None:
    """A debit to a missing bucket creates it, and the debt is kept."""
    assert "ttl" not in created(stored(RPM, TPM, ttl=2), {"tpm": 11})


def test_take_renews_the_ttl() -> None:
    """A bucket in use does not expire."""
    terms = stored(RPM, TPM, ttl=2)
    item = created(terms)

    for consume in ({"rpm": 1, "tpm": 1}, {"rpm": 1}):
        item = after(taking(view(item), terms, consume, at(NOON + FILL_MS)), item)

        assert (NOON + FILL_MS + 2 * FILL_MS) // 1000 + 1 == item["ttl"]


def test_take_before_the_baseline_sets_the_ttl_from_the_baseline() -> None:
    """A limit does not refill before its baseline, so a client whose clock is behind adds that time."""
    terms = stored(RPM, TPM, ttl=2)
    item = created(terms)

    for consume in ({"rpm": 1, "tpm": 1}, {"rpm": 1}):
        item = after(taking(view(item), terms, consume, at(NOON - 2 * FILL_MS)), item)

        assert (NOON + 2 * FILL_MS) // 1000 + 1 == item["ttl"]


def test_rebase_before_the_baseline_sets_the_ttl_from_the_baseline() -> None:
    """The baseline never moves back, so the bucket is full no sooner than before."""
    item = created(stored(RPM, TPM, ttl=2), {"tpm": 9})
    again = stored(RPM, TPM, stamp=2, ttl=2)

    item = after(taking(view(item), again, {"tpm": 1}, at(NOON - 2 * FILL_MS)), item)

    assert NOON == item["rf"]
    assert (NOON + 2 * FILL_MS) // 1000 + 1 == item["ttl"]


def test_take_with_a_ttl_multiplier_of_zero_sets_no_ttl() -> None:
    """The bucket never expires."""
    terms = stored(RPM)

    assert "ttl" not in after(taking(view(created(terms)), terms, {"rpm": 1}, at(NOON)), created(terms))


def test_take_from_a_bucket_with_another_limit_in_debt_sets_no_ttl() -> None:
    """The bucket stays as long as any limit is in debt."""
    terms = stored(RPM, TPM, ttl=2)
    item = created(terms)
    item = after(settling(view(item), at(NOON), debits={"tpm": 11}), item)
    in_debt = at(NOON + FILL_MS // 10 - 400)
    paid = at(NOON + FILL_MS // 10)

    beside = after(taking(view(item), terms, {"rpm": 1}, in_debt), item)
    later = after(taking(view(item), terms, {"rpm": 1}, paid), item)

    assert "ttl" not in beside
    assert "ttl" in later


def test_debt_at_an_uncertain_time_counts_until_it_is_certainly_paid() -> None:
    """A possible debt is not lost."""
    terms = stored(RPM, TPM, ttl=2)
    item = created(terms)
    item = after(settling(view(item), at(NOON), debits={"tpm": 11}), item)
    paid_ms = NOON + FILL_MS // 10

    maybe = after(taking(view(item), terms, {"rpm": 1}, (paid_ms - 400, paid_ms + 400)), item)
    surely = after(taking(view(item), terms, {"rpm": 1}, (paid_ms, paid_ms + 800)), item)

    assert "ttl" not in maybe
    assert "ttl" in surely


def test_take_that_sets_a_ttl_is_refused_by_an_unseen_debt() -> None:
    """Limits that the take does not name must not be in debt when it is applied."""
    terms = stored(RPM, TPM, ttl=2)
    item = created(terms)
    write = taking(view(item), terms, {"rpm": 1}, at(NOON))
    owing = {**item, "b_tpm_tk": -1}

    assert all(condition.holds({**item, "b_tpm_tk": 0}) for condition in write.when)
    assert not all(condition.holds(owing) for condition in write.when)


def test_debit_removes_the_ttl_and_credit_keeps_it() -> None:
    """A debit may cause a debt; a credit never does."""
    item = created(stored(RPM, ttl=2))

    assert "ttl" not in after(settling(view(item), at(NOON), debits={"rpm": 1}), item)
    assert item["ttl"] == after(settling(view(item), at(NOON), credits={"rpm": 1}), item)["ttl"]


def test_rebase_keeps_the_longest_fill_time() -> None:
    """A debt under slower limits is not lost with them."""
    item = created(stored(TPM, ttl=2), {"tpm": 10})
    faster = stored(Limit("tpm", 10, 10, 1), stamp=2, ttl=2)

    item = after(taking(view(item), faster, {}, at(NOON)), item)

    assert FILL_MS == item["tf"]
    assert (NOON + 2 * FILL_MS) // 1000 + 1 == item["ttl"]


def test_rebase_to_limits_that_never_expire_removes_the_ttl() -> None:
    """The entity now has limits of its own."""
    item = created(stored(RPM, ttl=2))

    assert "ttl" not in after(taking(view(item), stored(RPM, stamp=2), {}, at(NOON)), item)


def test_rebase_of_a_bucket_in_debt_removes_the_ttl() -> None:
    """The debt of a dormant limit counts, too."""
    terms = stored(RPM, TPM, ttl=2)
    item = created(terms, {"tpm": 11})
    item = {**item, "ttl": 1}

    assert "ttl" not in after(taking(view(item), stored(RPM, TPM, stamp=2, ttl=2), {}, at(NOON)), item)
    assert "ttl" not in after(taking(view(item), stored(RPM, stamp=2, ttl=2), {}, at(NOON)), item)


def test_rebase_after_a_debt_is_paid_sets_a_ttl() -> None:
    """Refill since then counts against the debt."""
    terms, again = stored(RPM, TPM, ttl=2), stored(RPM, TPM, stamp=2, ttl=2)
    item = created(terms, {"tpm": 11})
    paid_ms = NOON + FILL_MS // 10

    assert "ttl" not in after(taking(view(item), again, {}, at(paid_ms - 400)), item)
    assert "ttl" in after(taking(view(item), again, {}, at(paid_ms)), item)


def test_rebase_that_sets_a_ttl_is_refused_by_an_unseen_debt() -> None:
    """It requires that no limit is in debt."""
    item = created(stored(RPM, TPM, ttl=2), {"rpm": 1, "tpm": 1})
    write = taking(view(item), stored(RPM, TPM, stamp=2, ttl=2), {}, at(NOON))

    assert all(condition.holds(item) for condition in write.when)
    assert not all(condition.holds({**item, "b_tpm_tk": -1}) for condition in write.when)


def test_a_sharded_bucket_never_expires() -> None:
    """Its shards would not expire together."""
    terms = stored(RPM, ttl=2)
    item = {**created(terms), "shard_count": 2}
    again = stored(RPM, stamp=2, ttl=2)
    taken = after(taking(view(item), terms, {"rpm": 1}, at(NOON + FILL_MS)), item)

    assert taken.get("ttl") in (None, item["ttl"])
    assert "ttl" not in after(taking(view(item), again, {"rpm": 1}, at(NOON)), item)
