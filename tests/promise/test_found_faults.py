"""Faults that the random runs have found, each in its smallest form."""

from collections.abc import Iterator
from random import Random

import pytest

from tests.one_bucket import NOON, Client, after, apply, at, created, level, own, settling, stored, taking, view
from zae_limiter import SyncRateLimiter, SyncRepository
from zae_limiter.core.errors import CorruptItemError
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Refused, Throttled, Unavailable
from zae_limiter.schema.operations import Operation

RPM = Limit("rpm", 100, 100, 3_600)
TPM = Limit("tpm", 10, 10, 3_600)
HOUR = 3_600_000


class FixedClock:
    """A clock that does not move."""

    def now_ms(self) -> int:
        return NOON

    def monotonic_s(self) -> float:
        return NOON / 1000


@pytest.fixture
def limiter() -> Iterator[SyncRateLimiter]:
    with SyncRepository.open("memory://", clock=FixedClock(), random=Random(7)) as repository:
        repository.set_system_defaults([RPM, TPM])
        yield SyncRateLimiter(repository)


def test_view_of_a_bucket_rebased_twice_shows_the_other_limit() -> None:
    """A client notices a rebase even if the bucket was rebased back before its next read."""
    mine, others = stored(RPM), own(TPM)
    item = created(mine, {"rpm": 1})
    seen = view(item, NOON, None, mine)
    for terms in (others, mine):
        client = Client(terms, item)
        client.request({terms.limits[0].name: 1}, at(NOON))
        item = client.item

    again = view(item, NOON, seen, mine)

    assert again.layout.position("tpm") is not None


def test_limit_lowered_removed_and_added_again_is_not_refilled() -> None:
    """Removing and adding a limit never refills it, whatever its capacity was in between."""
    client = Client(stored(RPM, TPM))
    client.request({"rpm": 100}, at(NOON))
    for stamp, limits in enumerate(((Limit("rpm", 1, 100, 3_600), TPM), (TPM,), (RPM, TPM)), start=2):
        client.terms = stored(*limits, stamp=stamp)
        client.request({"tpm": 1}, at(NOON + HOUR // 50))

    assert level(client.item, "rpm", NOON + HOUR // 50) <= 2_000


def test_take_by_a_client_without_expiry_moves_the_expiry() -> None:
    """A bucket in use does not expire before it is full."""
    item = created(stored(RPM, ttl=2))
    expires_ms = item["ttl"] * 1000
    never = stored(RPM, ttl=0)
    late = at(expires_ms - 1)

    item = after(taking(view(item, late[1], None, never), never, {"rpm": 100}, late), item)

    assert item.get("ttl", late[1]) * 1000 >= late[1] + HOUR


def test_take_with_an_old_view_of_a_debt_moves_the_expiry() -> None:
    """A bucket in use does not expire before it is full."""
    terms = stored(RPM, TPM, ttl=2)
    item = created(terms)
    item = after(settling(view(item), at(NOON), debits={"tpm": 1_000}), item)
    saw_debt = view(item, NOON, None, terms)
    item = after(settling(saw_debt, at(NOON), credits={"tpm": 1_000}), item)
    item = after(taking(view(item, NOON, None, terms), terms, {"rpm": 1}, at(NOON)), item)
    late = at(item["ttl"] * 1000 - 1)

    item = after(taking(saw_debt, terms, {"rpm": 100}, late), item)

    assert item.get("ttl", late[1]) * 1000 >= late[1] + HOUR


def test_reset_with_wide_time_bounds_requires_the_earlier_balance() -> None:
    """A take requires at least n - E, where E is what was earned by the early end of the bounds."""
    terms = stored(Limit("rps", 10, 10, 1))
    item = created(terms, {"rps": 10})
    unsure = (NOON + 900, NOON + 1_100)
    seen = view(item, NOON, None, terms)

    answer = apply(taking(seen, terms, {"rps": 9}, unsure), {**item, "b_rps_tk": -900})

    assert isinstance(answer, Refused)


def test_new_limit_of_a_shard_gives_at_most_its_share() -> None:
    """A shard gives no more than its share."""
    item = {**created(stored(RPM)), "shard_count": 2}
    terms = stored(RPM, TPM, stamp=2)

    item = after(taking(view(item), terms, {"tpm": 8}, at(NOON)), item)

    assert item["b_tpm_tk"] >= 0


@pytest.mark.parametrize("missing", ["b_wcu_tc", "b_rpm_tc"])
def test_view_of_an_incomplete_bucket_raises_corrupt_item(missing: str) -> None:
    """An item that lacks an attribute of a bucket is a CorruptItemError."""
    item = created(stored(RPM))
    del item[missing]

    with pytest.raises(CorruptItemError):
        view(item)


def test_pace_of_a_client_alone_stays_none(limiter: SyncRateLimiter) -> None:
    """A client's own settlements do not count as the pace of other clients."""
    for _ in range(3):
        with limiter.acquire("user-1", "gpt-4", {"rpm": 2}) as lease:
            lease.adjust(rpm=1)

    assert limiter.repository.scope.caches.view(("user-1", "gpt-4")).pace is None


def test_credit_beside_a_debit_whose_answer_is_lost_is_applied_once(
    limiter: SyncRateLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A credit is never sent again."""
    table = limiter.repository.scope.table
    another = SyncRateLimiter(limiter.repository)
    write, lost = table.write, []

    def lose_the_answer(operation: Operation, until_s: float) -> object:
        monkeypatch.setattr(table, "write", write)
        write(operation)
        with another.acquire("user-1", "gpt-4", {"rpm": 1}):
            lost.append(operation)
        return Unavailable(TimeoutError("no answer"), ambiguous=True)

    with limiter.acquire("user-1", "gpt-4", {"rpm": 2, "tpm": 8}) as lease:
        lease.adjust(rpm=1, tpm=-4)
        monkeypatch.setattr(table, "write", lose_the_answer)

    assert 1 == len(lost)
    assert 6 == limiter.available("user-1", "gpt-4")["tpm"]


def test_credit_beside_a_throttled_debit_is_sent_again(
    limiter: SyncRateLimiter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A throttled write was not applied, so all of it may be sent again."""
    table = limiter.repository.scope.table
    write = table.write

    def throttle(operation: Operation, until_s: float) -> object:
        monkeypatch.setattr(table, "write", write)
        return Throttled()

    with limiter.acquire("user-1", "gpt-4", {"rpm": 2, "tpm": 8}) as lease:
        lease.adjust(rpm=1, tpm=-4)
        monkeypatch.setattr(table, "write", throttle)

    assert {"rpm": 97, "tpm": 6} == limiter.available("user-1", "gpt-4")


def test_removed_limit_that_is_full_is_dropped_from_the_bucket() -> None:
    """A bucket does not grow with every limit name that was ever used in it."""
    item = created(stored(RPM, TPM), {"tpm": 1})
    item = after(taking(view(item), stored(RPM, stamp=2), {}, at(NOON)), item)

    item = after(taking(view(item), stored(RPM, stamp=3), {}, at(NOON + 100 * 3_600_000)), item)

    assert not [name for name in item if name.startswith("b_tpm_")]
