"""The client of embedded tables takes in one function as it would by planning and carrying out."""  # generated from _async by tools/mirror.py; do not edit

from random import Random

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository, ValidationError
from zae_limiter.caches.request import AcquireRequest, Rejected

from .clients import CountingTable, SettableClock, another, buckets_in

BUCKET = ("user-1", "gpt-4")
STEPS = 150
DRAWN = ("op", "bi", "PK", "GSI2PK", "GSI3PK", "GSI4PK", "GSI4SK")
"""Attributes that are random numbers, or that contain the id of the namespace, which is one."""


class Twin:
    """A client on a table of its own, that takes either in one function or by plans."""

    def __init__(self, repo, clock, by_plan):
        self.repo, self.clock, self.by_plan = repo, clock, by_plan
        self.client = SyncRateLimiter(another(repo, CountingTable))._client
        self.other = SyncRateLimiter(another(repo, CountingTable))._client

    def act(self, act):
        """Take, and return the result and everything that it changed."""
        kind, amount = act
        if kind == "wait":
            return self.clock.advance(amount)
        if kind == "limits":
            return self.repo.set_limits(*BUCKET[:1], [Limit.per_minute("rpm", 50 + amount)])
        if kind == "other":
            return self._take(self.other, {"rpm": amount % 40}, by_plan=True)
        return self._take(self.client, {kind: amount}, self.by_plan)

    def _take(self, client, consume, by_plan):
        try:
            result = None if by_plan else client.take(BUCKET, consume, None)
            if result is None:
                result = client.take_part(AcquireRequest(BUCKET, consume, None, client.until_s()))
        except ValidationError as error:
            return str(error)
        statuses = result.statuses() if isinstance(result, Rejected) else result.terms.stamp
        view = client.caches.of(BUCKET).view
        items = [{name: item[name] for name in item if name not in DRAWN} for item in buckets_in(self.repo)]
        return statuses, view.numbers, view.seen_ms, view.pace, items, client._table.drain()


def twin(by_plan):
    clock = SettableClock()
    repo = SyncRepository.open("memory://", clock=clock, deadline_s=60)
    repo.set_system_defaults([Limit.per_minute("rpm", 100), Limit.per_second("tps", 20)])
    repo.create_entity(BUCKET[0])
    return Twin(repo, clock, by_plan)


def drawn(random):
    """Return an action: a take, one of another client, a wait, or a change of limits."""
    kind = random.choices(("rpm", "tps", "other", "wait", "limits"), (50, 15, 15, 18, 2))[0]
    most = {"wait": 30_000, "tps": 25, "limits": 60}.get(kind, 60)
    return kind, random.choice((0, 1, random.randrange(most), random.randrange(1 + most // 10)))


@pytest.mark.parametrize("seed", range(4))
def test_take_of_an_embedded_table_does_what_plan_and_carry_out_do(seed):
    """The hot path repeats their code for speed, so results, items, views and calls must stay equal."""
    twins = [twin(by_plan) for by_plan in (False, True)]
    random = Random(seed)
    for _ in range(STEPS):
        action = drawn(random)

        direct, planned = [one.act(action) for one in twins]
        assert direct == planned
    for one in twins:
        one.repo.close()
