"""Show two callers that are rejected: one waits for the retry-after time, one has a debt to repay."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import NamedTuple

from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter.cli._failures import in_seconds
from zae_limiter.cli.demo.scenario import RESOURCE, STREAM, STREAM_CHUNK, STREAM_CHUNKS, STREAM_ESTIMATE, WAITER
from zae_limiter.core.errors import RateLimitExceeded

Say = Callable[[str], None]
StepAction = Callable[[Say], Awaitable[str]]

WAITS = 3
_CHUNK_EVERY_S = 0.2
_PATIENCE_S = 5.0


class StepFailedError(Exception):
    """The limiter did not do what it promises; the message says what."""


class Rejection(NamedTuple):
    """A rejected call: what was left, and after how many seconds a retry is admitted."""

    left: int
    retry_after_s: float


async def wait_for_retry_after(limiter: RateLimiter, say: Say) -> str:
    """Wait in the queue until the tokens are there, several times. Return what happened.

    Raises:
        StepFailedError: A request that waited was rejected.
    """
    waits_s = []
    for number in range(1, WAITS + 1):
        while (rejection := await _take(limiter, WAITER, "rps", 1)) is None:
            pass
        say(f"rejected, waits retry_after = {in_seconds(rejection.retry_after_s)} ({number} of {WAITS})")
        try:
            async with limiter.acquire(WAITER, RESOURCE, {"rps": 1}, max_wait=_PATIENCE_S) as lease:
                waits_s.append(lease.waited)
        except RateLimitExceeded as error:
            raise StepFailedError(f"rejected after a wait of {in_seconds(error.waited)}") from None
    return f"{WAITS} waits of exactly retry_after ({_listed(waits_s)}), {WAITS} admitted"


async def stream_into_debt(limiter: RateLimiter, say: Say) -> str:
    """Stream more tokens than estimated, then repay the debt before the next call. Return what happened.

    Raises:
        StepFailedError: The first call after the wait was rejected.
    """
    used = STREAM_CHUNKS * STREAM_CHUNK
    while True:
        async with limiter.acquire(STREAM, RESOURCE, {"tpm": STREAM_ESTIMATE}) as lease:
            for number in range(1, STREAM_CHUNKS + 1):
                say(f"estimated {STREAM_ESTIMATE:,}, streamed {number * STREAM_CHUNK:,} so far")
                await asyncio.sleep(_CHUNK_EVERY_S)
            await lease.adjust(tpm=used - STREAM_ESTIMATE)
        rejection = await _take(limiter, STREAM, "tpm", STREAM_ESTIMATE)
        # On a stalled machine the debt may be repaid already. Then stream again.
        if rejection is not None and rejection.left < 0:
            break
    debt = f"{STREAM_ESTIMATE:,} estimated, {used:,} used: {-rejection.left:,} tokens debt"
    wait = in_seconds(rejection.retry_after_s)
    say(f"{debt}, next call in {wait}")
    await _retry(limiter, STREAM, "tpm", STREAM_ESTIMATE, rejection)
    return f"{debt}, repaid in {wait}"


async def _take(limiter: RateLimiter, entity_id: str, limit_name: str, amount: int) -> Rejection | None:
    """Take tokens; return None if that was admitted."""
    try:
        async with limiter.acquire(entity_id, RESOURCE, {limit_name: amount}):
            return None
    except RateLimitExceeded as error:
        return Rejection(error.primary_violation.available, error.retry_after_seconds)


async def _retry(limiter: RateLimiter, entity_id: str, limit_name: str, amount: int, rejection: Rejection) -> None:
    await asyncio.sleep(rejection.retry_after_s)
    again = await _take(limiter, entity_id, limit_name, amount)
    if again is not None:
        raise StepFailedError(f"rejected after retry_after; {in_seconds(again.retry_after_s)} more were needed")


def _listed(waits_s: list[float]) -> str:
    return ", ".join(f"{wait_s:.3f}" for wait_s in waits_s) + " s"
