"""Keys are renewed in the background, calls wait only for expired keys, and the loop is never blocked."""

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dynamodb.callers import KINDS, Caller
from tests.dynamodb.echo import Echo, ask
from tests.dynamodb.issuer import Issuer, account_of, bare, session_of
from zae_limiter._async.dynamodb_table import DynamoTable as AsyncTable
from zae_limiter._async.dynamodb_table import Patience as AsyncPatience
from zae_limiter._sync.dynamodb_table import DynamoTable, Patience
from zae_limiter.aws.account import Account, EndpointOptions
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.outcome import Unavailable
from zae_limiter.schema.operations import Key
from zae_limiter.tables.dynamodb.http_parser import HttpResponse

CHECK_S = 6.0
LONG_S = 30.0


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as started:
        yield started


@pytest.fixture
def issuer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Issuer]:
    bare(monkeypatch, tmp_path)
    made = Issuer()
    yield made
    made.open.set()


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def caller(echo: Echo, issuer: Issuer, kind: str) -> Iterator[Caller]:
    with Caller(kind, account_of(issuer, echo.url)) as made:
        yield made


def wait_for_keys(caller: Caller, key: str, echo: Echo) -> None:
    """Call until a call is signed with this key."""
    end_s = time.monotonic() + LONG_S
    while echo.counts.keys[-1:] != [key]:
        assert time.monotonic() < end_s, echo.counts.keys
        assert isinstance(caller.call(ask()), HttpResponse)


def test_fresh_keys_are_used_without_a_renewal(echo: Echo, issuer: Issuer, caller: Caller):
    """The provider is not asked."""
    for _ in range(3):
        caller.call(ask())
        caller.clock.skipped_s += CHECK_S

    assert (["KEY1"] * 3, 1) == (echo.counts.keys, issuer.issued)


@pytest.mark.parametrize("left_s", [800, 300, 20])
def test_keys_are_renewed_before_they_expire_without_delaying_calls(
    echo: Echo, issuer: Issuer, caller: Caller, left_s: int
):
    """Calls use the old keys, however long the provider takes."""
    issuer.leave(left_s)
    issuer.open.clear()
    caller.clock.skipped_s += CHECK_S
    outcomes = [caller.call(ask(), within_s=LONG_S) for _ in range(5)]
    keys = list(echo.counts.keys)
    issuer.open.set()
    wait_for_keys(caller, "KEY2", echo)

    assert {HttpResponse} == set(map(type, outcomes))
    assert ["KEY1"] * 5 == keys
    assert 2 == issuer.issued


def test_a_hanging_provider_of_expired_keys_ends_calls_at_the_deadline(echo: Echo, issuer: Issuer, caller: Caller):
    """Nothing was sent. One thread waits for the provider, and calls continue when it answers."""
    issuer.leave(-1)
    issuer.open.clear()
    caller.clock.skipped_s += CHECK_S
    started_s = time.monotonic()
    begun = [caller.begin(ask(), within_s=0.2) for _ in range(30)]
    waiting = caller.begin(ask(), within_s=LONG_S)
    outcomes = [future.result(60) for future in begun]
    took_s = time.monotonic() - started_s
    sent = list(echo.counts.keys)
    issuer.open.set()

    assert [False] * 30 == [outcome.ambiguous for outcome in outcomes if isinstance(outcome, Unavailable)]
    assert took_s < LONG_S / 2
    assert [] == sent
    assert isinstance(waiting.result(60), HttpResponse)
    assert (["KEY2"], 2) == (echo.counts.keys, issuer.issued)


def test_a_failing_provider_of_valid_keys_does_not_fail_calls(echo: Echo, issuer: Issuer, caller: Caller):
    """Calls continue with the current keys."""
    issuer.leave(300)
    issuer.failure = RuntimeError("no keys today")
    caller.clock.skipped_s += CHECK_S
    caller.call(ask())

    assert ["KEY1"] == echo.counts.keys


def test_a_failing_provider_of_expired_keys_fails_calls(echo: Echo, issuer: Issuer, caller: Caller):
    """Calls succeed once the provider does."""
    issuer.leave(-1)
    issuer.failure = LookupError("no keys today")
    caller.clock.skipped_s += CHECK_S
    outcome = caller.call(ask())
    issuer.failure = None
    caller.call(ask())

    assert isinstance(outcome, Unavailable)
    assert (False, LookupError) == (outcome.ambiguous, type(outcome.cause))
    assert ["KEY2"] == echo.counts.keys


def test_keys_renewed_by_another_user_of_the_session_are_used(echo: Echo, issuer: Issuer, kind: str):
    """The session is shared."""
    session = session_of(issuer)
    account = Account(EndpointOptions("limiter-table", "us-east-1", echo.url, 0.5), session)
    with Caller(kind, account) as caller:
        caller.call(ask())
        issuer.leave(300)
        session.get_credentials().get_frozen_credentials()
        caller.clock.skipped_s += CHECK_S
        wait_for_keys(caller, "KEY2", echo)

    assert 2 == issuer.issued


def test_refused_keys_are_loaded_again_once(echo: Echo, issuer: Issuer, caller: Caller):
    """Calls refused together share one load. It is not repeated immediately if the new keys are refused too."""
    caller.clock.stop()
    refused = caller.transport.signer
    caller.replace_keys()
    first = caller.transport.signer
    caller.replace_keys()

    assert (False, True, 2) == (first is refused, caller.transport.signer is first, issuer.issued)


class TestExpiredTokens:
    def test_a_call_refused_for_its_keys_is_retried_with_new_ones(self, echo: Echo, issuer: Issuer):
        """The keys had not expired yet."""
        echo.refused = {"KEY1"}
        with Caller("sync", account_of(issuer, echo.url)) as caller:
            table = DynamoTable("t", caller.transport, caller.server, Patience(caller.clock, 5.0, lambda: 0.5))
            found = table._make(ask(3), caller.clock.monotonic_s() + 5, 5)

        assert isinstance(found, HttpResponse)
        assert ["KEY1", "KEY2"] == echo.counts.keys

    def test_a_call_refused_twice_for_its_keys_fails(self, echo: Echo, issuer: Issuer):
        """It is retried once, and the provider is asked once for all later calls."""
        echo.refused = {"KEY1", "KEY2", "KEY3"}
        with Caller("sync", account_of(issuer, echo.url)) as caller:
            table = DynamoTable("t", caller.transport, caller.server, Patience(caller.clock, 5.0, lambda: 0.5))
            caller.clock.stop()
            call, until_s = ask(3), caller.clock.monotonic_s() + 5
            statuses = [getattr(table._make(call, until_s, 5), "status", None) for _ in range(3)]

        assert [400] * 3 == statuses
        assert ["KEY1", "KEY2", "KEY2", "KEY2"] == echo.counts.keys
        assert 2 == issuer.issued


async def test_the_loop_continues_while_a_provider_hangs(echo: Echo, issuer: Issuer):
    """The loop's default thread pool is not used."""
    caller = Caller("async", account_of(issuer, echo.url))
    table = AsyncTable("t", caller.transport, caller.server, AsyncPatience(caller.clock, 1.5, lambda: 0.5))
    issuer.leave(-1)
    issuer.open.clear()
    caller.clock.skipped_s += CHECK_S
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.005)
            ticks += 1

    ticker = asyncio.create_task(tick())
    with pytest.raises(RateLimiterUnavailable):
        await table.get(Key("a", "b"))
    ticker.cancel()
    in_pool = await asyncio.wait_for(asyncio.gather(*(asyncio.to_thread(int, "1") for _ in range(64))), LONG_S)

    assert ticks > 3
    assert [1] * 64 == in_pool
