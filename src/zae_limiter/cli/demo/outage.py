"""Show a store that fails and recovers: a second file, which another program locks for a while."""

import logging
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager

from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.cli.demo.scenario import OUTAGE_LIMIT, RESOURCE
from zae_limiter.cli.demo.steps import Say, StepFailedError
from zae_limiter.core.errors import RateLimiterUnavailable

CALLS = 2
_DEADLINE_S = 0.3
_ENTITY = "demo-outage"


async def fail_and_recover(path: str, say: Say) -> str:
    """Call while a file at this path is locked, with both policies, and afterwards. Return what happened.

    Raises:
        StepFailedError: A policy was not followed, or the balance changed in the outage.
    """
    async with await Repository.open(f"sqlite:///{path}", deadline_s=_DEADLINE_S) as repository:
        limiter = RateLimiter(repository)
        await _call(limiter, "block")
        with _locked(path), _no_warnings():
            blocked = 0
            for _ in range(CALLS):
                say(f"store unavailable; on_unavailable=block: {blocked} rejected")
                blocked += await _is_blocked(limiter)
            allowed = 0
            for _ in range(CALLS):
                say(f"store unavailable; on_unavailable=allow: {allowed} allowed without limiting")
                allowed += await _call(limiter, "allow")
        is_degraded = await _call(limiter, "block")
        left = (await limiter.available(_ENTITY, RESOURCE, limits=[OUTAGE_LIMIT]))[OUTAGE_LIMIT.name]
    if (blocked, allowed, is_degraded, left) != (CALLS, CALLS, False, OUTAGE_LIMIT.capacity - 2):
        raise StepFailedError(f"{blocked} blocked, {allowed} allowed, {left} left after the outage")
    return f"block rejected {blocked}, allow let {allowed} pass; limited again after recovery"


async def _call(limiter: RateLimiter, on_unavailable: str) -> bool:
    """Take one token; return whether it was allowed without limiting."""
    async with limiter.acquire(
        _ENTITY, RESOURCE, {OUTAGE_LIMIT.name: 1}, limits=[OUTAGE_LIMIT], on_unavailable=on_unavailable
    ) as lease:
        return lease.degraded


async def _is_blocked(limiter: RateLimiter) -> bool:
    try:
        await _call(limiter, "block")
    except RateLimiterUnavailable:
        return True
    return False


@contextmanager
def _locked(path: str) -> Iterator[None]:
    """Lock the file, as a stuck program would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        yield


@contextmanager
def _no_warnings() -> Iterator[None]:
    """Drop the log messages about the outage, which would be printed into the view."""
    log = logging.getLogger("zae_limiter")
    log.addFilter(_drop)
    try:
        yield
    finally:
        log.removeFilter(_drop)


def _drop(record: logging.LogRecord) -> bool:
    return False
