"""Lease methods in any order: called twice, concurrently, after the end, and after ``close()``.

A model tracks what each lease may hold. After every step, the bucket's consumption is what leases hold or kept.
"""

import asyncio
import shutil
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from zae_limiter import (
    LeaseExpiredError,
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    RepositoryClosedError,
    ValidationError,
)
from zae_limiter._async.limiter.lease import Lease

CAPACITY = 100
LIMIT = Limit.custom("rpy", CAPACITY, 1, 365 * 86_400)
EXPECTED = (LeaseExpiredError, RateLimitExceeded, ValidationError, RepositoryClosedError, KeyError, RuntimeError)

amounts = st.integers(0, 12)
failures = st.sampled_from([None, KeyError("failed")])


@dataclass(eq=False)
class LeaseModel:
    """A lease, what it has written to the bucket, what is pending, and whether it was left."""

    lease: Lease
    taken: int
    pending: int = 0
    left: bool = False
    committed: bool = False
    calls: list[str] = field(default_factory=list)


async def later(method: Any, **amounts: int) -> None:
    """Call a method that takes effect when it is called."""
    await method(**amounts)


class LeaseMachine(RuleBasedStateMachine):
    """One bucket, several leases, and methods that run one after the other or concurrently."""

    leases = Bundle("leases")
    scheme = "memory"

    def __init__(self) -> None:
        super().__init__()
        self.runner = asyncio.Runner()
        self.folder = tempfile.mkdtemp()
        self.held: list[LeaseModel] = []
        self.closed = False

    @initialize()
    def open(self) -> None:
        url = "memory://" if self.scheme == "memory" else f"sqlite:///{Path(self.folder) / 'limiter.db'}"
        self.repo = self.runner.run(Repository.open(url))
        self.runner.run(self.repo.set_system_defaults([LIMIT]))
        self.limiter = RateLimiter(self.repo)

    def used(self) -> int:
        """Return what the leases hold of the bucket, or have kept."""
        return sum(one.taken for one in self.held)

    def called(self, *calls: Any) -> list[type | None]:
        """Make calls concurrently, and return the type of what each raised."""

        async def together() -> list[Any]:
            return await asyncio.gather(*calls, return_exceptions=True)

        found = self.runner.run(together())
        for one in found:
            if isinstance(one, BaseException) and not isinstance(one, EXPECTED):
                raise one
        return [type(one) if isinstance(one, BaseException) else None for one in found]

    @rule(target=leases, amount=st.integers(0, 30))
    def acquire(self, amount: int) -> LeaseModel | None:
        lease = self.limiter.acquire("user-1", "gpt-4", {"rpy": amount})
        (raised,) = self.called(lease.__aenter__())
        expected = RepositoryClosedError if self.closed else RateLimitExceeded if self._lacks(amount) else None
        assert raised is expected
        entered = LeaseModel(lease, amount if raised is None else 0, left=raised is not None)
        if raised is None:
            self.held.append(entered)
        return entered

    def _lacks(self, amount: int) -> bool:
        return amount > CAPACITY - self.used() and amount > 0

    @rule(one=leases, up=amounts, down=amounts)
    def adjust(self, one: LeaseModel, up: int, down: int) -> None:
        for change in (up, -down):
            (raised,) = self.called(later(one.lease.adjust, rpy=change))
            if one.left:
                assert raised in (LeaseExpiredError, RuntimeError)
            elif -change > one.taken + one.pending:
                assert raised is ValidationError
            else:
                assert raised is None
                one.pending += change

    @rule(one=leases)
    def commit(self, one: LeaseModel) -> None:
        (raised,) = self.called(later(one.lease.commit))
        if one.left:
            assert raised in (LeaseExpiredError, RuntimeError)
        else:
            assert raised is None
            one.committed = True

    @rule(one=leases, amount=amounts, times=st.integers(1, 3))
    def consume(self, one: LeaseModel, amount: int, times: int) -> None:
        for raised in self.called(*(one.lease.consume(rpy=amount) for _ in range(times))):
            if one.left:
                assert raised in (LeaseExpiredError, RuntimeError)
            elif self.closed:
                assert raised is RepositoryClosedError
            else:
                assert raised is (RateLimitExceeded if self._lacks(amount) else None)
                one.taken += 0 if raised else amount

    @rule(one=leases, amount=amounts, times=st.integers(1, 3))
    def release(self, one: LeaseModel, amount: int, times: int) -> None:
        for raised in self.called(*(one.lease.release(rpy=amount) for _ in range(times))):
            if one.left:
                assert raised in (LeaseExpiredError, RuntimeError)
            elif amount > one.taken + one.pending:
                assert raised is ValidationError
            else:
                later = min(amount, max(0, one.pending))
                now = amount - later
                one.pending -= later
                assert raised is (RepositoryClosedError if self.closed and now else None)
                if self.closed and now:
                    # The lease no longer holds the tokens, and the bucket was not credited.
                    self.held.append(LeaseModel(one.lease, now, left=True))
                one.taken -= now

    @rule(one=leases, failure=failures, other=failures, times=st.integers(1, 3))
    def leave(self, one: LeaseModel, failure: BaseException | None, other: BaseException | None, times: int) -> None:
        """Leave a lease; the first exit decides, and concurrent and later ones do nothing."""
        exits = [failure, *[other] * (times - 1)]
        raised = self.called(*(one.lease.__aexit__(error and type(error), error, None) for error in exits))
        assert [None] * (times - 1) == raised[1:]
        if one.left:
            assert raised[0] is None
            return
        one.left = True
        if self.closed:
            assert raised[0] is (RepositoryClosedError if failure is None and one.pending > 0 else None)
        else:
            assert raised[0] is None
            one.taken = 0 if failure is not None and not one.committed else one.taken + one.pending
        one.pending = 0

    @rule(one=leases, amount=st.integers(1, 5))
    def leave_while_methods_are_called(self, one: LeaseModel, amount: int) -> None:
        """Call methods after the start of the exit; they raise and change nothing."""
        if self.closed:
            return
        lease = one.lease
        calls = (
            lease.consume(rpy=amount),
            lease.release(rpy=amount),
            later(lease.adjust, rpy=amount),
            later(lease.commit),
        )
        raised = self.called(lease.__aexit__(KeyError, KeyError("failed"), None), *calls)
        assert raised[0] is None
        assert {LeaseExpiredError, RuntimeError} >= set(raised[1:])
        if not one.left:
            one.left, one.taken, one.pending = True, one.taken + one.pending if one.committed else 0, 0

    @rule(chance=st.integers(0, 9))
    def close(self, chance: int) -> None:
        if not chance and not self.closed:
            self.used_at_close = self.runner.run(self._stored())
            self.closed = True
            self.runner.run(self.repo.close())

    async def _stored(self) -> int:
        buckets = await self.repo.get_buckets("user-1")
        return sum(bucket.total_consumed_milli for bucket in buckets) // 1000

    @invariant()
    def consumption_of_the_bucket_is_what_leases_hold_or_kept(self) -> None:
        if hasattr(self, "limiter") and not self.closed:
            assert self.used() == self.runner.run(self._stored())

    def teardown(self) -> None:
        if hasattr(self, "repo") and not self.closed:
            self.runner.run(self.repo.close())
        self.runner.close()
        shutil.rmtree(self.folder)


class SqliteMachine(LeaseMachine):
    """The same on a SQLite file."""

    scheme = "sqlite"


@pytest.mark.parametrize(("machine", "examples"), [(LeaseMachine, 60), (SqliteMachine, 25)], ids=["memory", "sqlite"])
def test_no_order_of_lease_methods_credits_or_debits_twice(machine, examples):
    """Methods are called twice, concurrently, after the end and after close()."""
    run_state_machine_as_test(machine, settings=settings(max_examples=examples, stateful_step_count=25, deadline=None))
