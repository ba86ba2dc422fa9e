"""Faults that the worlds of one bucket have found, each in the smallest form it has, so that none comes back."""

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


class StandingClock:
    """A clock that does not move."""

    def now_ms(self) -> int:
        return NOON

    def monotonic_s(self) -> float:
        return NOON / 1000


@pytest.fixture
def limiter() -> Iterator[SyncRateLimiter]:
    with SyncRepository.open("memory://", clock=StandingClock(), random=Random(7)) as repository:
        repository.set_system_defaults([RPM, TPM])
        yield SyncRateLimiter(repository)


def test_a_view_never_outlives_a_rebase() -> None:
    """A client sees that a bucket was rebased, though it was rebased back at once."""
    mine, others = stored(RPM), own(TPM)
    item = created(mine, {"rpm": 1})
    seen = view(item, NOON, None, mine)
    for terms in (others, mine):
        client = Client(terms, item)
        client.request({terms.limits[0].name: 1}, at(NOON))
        item = client.item

    again = view(item, NOON, seen, mine)

    assert again.layout.position("tpm") is not None


def test_a_limit_that_was_lowered_removed_and_put_back_is_not_refilled() -> None:
    """Removing and adding a limit never refills it, whatever capacity it had in between."""
    client = Client(stored(RPM, TPM))
    client.request({"rpm": 100}, at(NOON))
    for stamp, limits in enumerate(((Limit("rpm", 1, 100, 3_600), TPM), (TPM,), (RPM, TPM)), start=2):
        client.terms = stored(*limits, stamp=stamp)
        client.request({"tpm": 1}, at(NOON + HOUR // 50))

    assert level(client.item, "rpm", NOON + HOUR // 50) <= 2_000


def test_a_take_by_a_client_that_never_expires_buckets_is_not_forgotten() -> None:
    """While a bucket is in use it does not expire before it is full."""
    item = created(stored(RPM, ttl=2))
    expires_ms = item["ttl"] * 1000
    never = stored(RPM, ttl=0)
    late = at(expires_ms - 1)

    item = after(taking(view(item, late[1], None, never), never, {"rpm": 100}, late), item)

    assert item.get("ttl", late[1]) * 1000 >= late[1] + HOUR


def test_a_take_by_a_client_that_saw_a_debt_is_not_forgotten() -> None:
    """While a bucket is in use it does not expire before it is full."""
    terms = stored(RPM, TPM, ttl=2)
    item = created(terms)
    item = after(settling(view(item), at(NOON), debits={"tpm": 1_000}), item)
    saw_debt = view(item, NOON, None, terms)
    item = after(settling(saw_debt, at(NOON), credits={"tpm": 1_000}), item)
    item = after(taking(view(item, NOON, None, terms), terms, {"rpm": 1}, at(NOON)), item)
    late = at(item["ttl"] * 1000 - 1)

    item = after(taking(saw_debt, terms, {"rpm": 100}, late), item)

    assert item.get("ttl", late[1]) * 1000 >= late[1] + HOUR


def test_a_reset_at_an_unsure_time_asks_for_what_is_surely_there() -> None:
    """Both ends of the clock count, to the strict side: n - E at the early end is the least a take asks for."""
    terms = stored(Limit("rps", 10, 10, 1))
    item = created(terms, {"rps": 10})
    unsure = (NOON + 900, NOON + 1_100)
    seen = view(item, NOON, None, terms)

    answer = apply(taking(seen, terms, {"rps": 9}, unsure), {**item, "b_rps_tk": -900})

    assert isinstance(answer, Refused)


def test_a_new_limit_of_a_shard_is_not_overdrawn() -> None:
    """A shard gives no more than its share."""
    item = {**created(stored(RPM)), "shard_count": 2}
    terms = stored(RPM, TPM, stamp=2)

    item = after(taking(view(item), terms, {"tpm": 8}, at(NOON)), item)

    assert item["b_tpm_tk"] >= 0


@pytest.mark.parametrize("missing", ["b_wcu_tc", "b_rpm_tc"])
def test_a_damaged_bucket_is_told_as_such(missing: str) -> None:
    """An item that is no whole bucket is a CorruptItemError that names it."""
    item = created(stored(RPM))
    del item[missing]

    with pytest.raises(CorruptItemError):
        view(item)


def test_a_client_alone_knows_that_it_is_alone(limiter: SyncRateLimiter) -> None:
    """What a client itself settles is not the pace of others."""
    for _ in range(3):
        with limiter.acquire("user-1", "gpt-4", {"rpm": 2}) as lease:
            lease.adjust(rpm=1)

    assert limiter.repository.scope.caches.view(("user-1", "gpt-4")).pace is None


def test_a_credit_beside_a_debit_is_not_given_twice(limiter: SyncRateLimiter, monkeypatch: pytest.MonkeyPatch) -> None:
    """A credit is never sent again."""
    table, client = limiter.repository.scope.table, limiter._client
    another = SyncRateLimiter(limiter.repository)
    write, lost = table.write, []

    def lose_the_answer(operation: Operation, until_s: float) -> object:
        monkeypatch.setattr(table, "write", write)
        monkeypatch.setattr(client, "_write", write)
        write(operation)
        with another.acquire("user-1", "gpt-4", {"rpm": 1}):
            lost.append(operation)
        return Unavailable(TimeoutError("no answer"), ambiguous=True)

    with limiter.acquire("user-1", "gpt-4", {"rpm": 2, "tpm": 8}) as lease:
        lease.adjust(rpm=1, tpm=-4)
        monkeypatch.setattr(table, "write", lose_the_answer)
        monkeypatch.setattr(client, "_write", lose_the_answer)

    assert 1 == len(lost)
    assert 6 == limiter.available("user-1", "gpt-4")["tpm"]


def test_a_credit_beside_a_debit_outlasts_a_throttle(limiter: SyncRateLimiter, monkeypatch: pytest.MonkeyPatch) -> None:
    """Throttled is definite: nothing was written, so all of it may be sent again."""
    table = limiter.repository.scope.table
    client = limiter._client
    write = table.write

    def throttle(operation: Operation, until_s: float) -> object:
        monkeypatch.setattr(table, "write", write)
        monkeypatch.setattr(client, "_write", write)
        return Throttled()

    with limiter.acquire("user-1", "gpt-4", {"rpm": 2, "tpm": 8}) as lease:
        lease.adjust(rpm=1, tpm=-4)
        monkeypatch.setattr(table, "write", throttle)
        monkeypatch.setattr(client, "_write", throttle)

    assert {"rpm": 97, "tpm": 6} == limiter.available("user-1", "gpt-4")


def test_a_limit_that_has_long_been_full_is_forgotten() -> None:
    """A bucket does not grow with every name that was ever used in it."""
    item = created(stored(RPM, TPM), {"tpm": 1})
    item = after(taking(view(item), stored(RPM, stamp=2), {}, at(NOON)), item)

    item = after(taking(view(item), stored(RPM, stamp=3), {}, at(NOON + 100 * 3_600_000)), item)

    assert not [name for name in item if name.startswith("b_tpm_")]
