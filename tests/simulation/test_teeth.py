"""A rule of the protocol that is broken is noticed by the seeds; each is broken here in one place, as a slip would."""

from dataclasses import replace
from typing import Any

import pytest

from tests.simulation.run import simulate_seed
from zae_limiter._async.limiter import shards
from zae_limiter._async.limiter.acquire import BucketClient
from zae_limiter.clock import ServerClock
from zae_limiter.core import acquire
from zae_limiter.core.composite import Add
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.operations import Differs, Matches
from zae_limiter_aggregator import apply

SEEDS = 40
FAR = 10**30


def caught() -> set[str]:
    """The first violation that the seeds find, by its kind."""
    for seed in range(SEEDS):
        violation = simulate_seed(seed).violation
        if violation is not None:
            return {violation.kind}
    return set()


def test_a_take_that_does_not_ask_whether_there_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    take = acquire.take

    def careless(*asked: Any) -> Any:
        found = take(*asked)
        if not isinstance(found, list):
            return found
        return [(place, taken, -FAR if to is None else low, high, to) for place, taken, low, high, to in found]

    monkeypatch.setattr(acquire, "take", careless)

    assert {"overdrawn"} == caught()


def test_a_take_that_does_not_ask_whether_it_is_full(monkeypatch: pytest.MonkeyPatch) -> None:
    take = acquire.take

    def careless(*asked: Any) -> Any:
        found = take(*asked)
        if not isinstance(found, list):
            return found
        return [(place, taken, low, None if to is None else high, to) for place, taken, low, high, to in found]

    monkeypatch.setattr(acquire, "take", careless)

    assert {"overfull"} == caught()


def test_a_clock_of_ones_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ServerClock, "now", lambda self: (self._clock.now_ms(), self._clock.now_ms()))

    assert caught() & {"overdrawn", "overfull", "made", "promise"}


def test_a_split_that_gives_one_half_away_and_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    split = shards.split

    def generous(*asked: Any) -> Any:
        found = split(*asked)
        if found is not None:
            found.parts = [replace(part, change=0) if isinstance(part, Add) else part for part in found.parts]
        return found

    monkeypatch.setattr(shards, "split", generous)

    assert {"made"} == caught()


def test_a_write_that_holds_on_to_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Matches, "holds", lambda self, item: "rf" in item)

    assert caught() & {"overdrawn", "overfull", "made", "promise"}


def test_a_write_that_is_sent_again_without_its_mark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Differs, "holds", lambda self, item: True)

    assert {"twice"} == caught()


def test_a_credit_that_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    async def settle_with(self: Any, view: Any, settling: Any, until_s: float) -> Any:
        operation = bucket_writes.settle(view, settling, next(self.nonces))
        outcome = await self._write(operation, until_s)
        again = replace(operation, set={**operation.set, "op": next(self.nonces)})
        return await self.buckets.fate(operation, outcome, again, until_s)

    monkeypatch.setattr(BucketClient, "_settle_with", settle_with)

    assert caught() & {"uncounted", "overcounted"}


def test_usage_that_is_counted_as_often_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    addition = apply.addition
    monkeypatch.setattr(apply, "addition", lambda account, changes, counted: addition(account, changes, None))

    assert {"usage"} == caught()
