"""Several requests at the same time to a client that does not know yet that there are limits across resources."""

import asyncio

import pytest

from tests._async.clients import another
from tests.limiter_async.remote import RPM, staged, take, ticks
from tests.limiter_async.slow_table import SlowTable
from zae_limiter import ALL_RESOURCES, RateLimiter


@pytest.mark.parametrize("together", [True, False], ids=["batched", "alone"])
async def test_request_that_comes_while_the_first_one_reads_is_charged_across_resources(together: bool) -> None:
    """No request is admitted by limits that were read before the client knew the kind ``all_resources``."""
    charged = set()
    async with staged() as stage:
        await stage.repo.set_limits("user-1", [RPM], ALL_RESOURCES)
        for later in range(12):
            cold = another(stage.repo, SlowTable)
            limiter = RateLimiter(cold, group_commit=together)
            first = asyncio.create_task(take(limiter, 1))
            await ticks(later)
            leases = [await asyncio.create_task(take(limiter, 1)), await first]
            charged |= {tuple(entry.resource for entry in lease.entries) for lease in leases}

    assert {("gpt-4", ALL_RESOURCES)} == charged
