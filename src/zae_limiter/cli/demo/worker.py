"""Run the callers of one API key, in a process of their own, until stdin is closed.

    python -m zae_limiter.cli.demo.worker FILE KEY SEED

Every line on stdout is a report.
"""

import asyncio
import sys
import threading
from contextlib import suppress
from random import Random

from zae_limiter._async.limiter.limiter import RateLimiter
from zae_limiter._async.repository import Repository
from zae_limiter.cli.demo.reports import Adjusted, CallRejected, GaveBack, InForce, Report, Took, to_line
from zae_limiter.cli.demo.scenario import CACHE_TTL_S, PROJECTS, RESOURCE, TRAFFIC_DEADLINE_S, DemoCall, DemoKey
from zae_limiter.clock import SystemClock
from zae_limiter.core.errors import RateLimitExceeded

_LOOK_EVERY_S = 0.1


class ModelDown(Exception):  # noqa: N818 - a result of the simulated model, never shown to users
    """The model failed."""


class Callers:
    """The callers of one key, which share its limits and those of its project."""

    def __init__(self, limiter: RateLimiter, key: DemoKey, project_id: str, random: Random) -> None:
        self._limiter = limiter
        self._key = key
        self._project_id = project_id
        self._random = random
        self._clock = SystemClock()
        self._stop = asyncio.Event()

    async def run(self) -> None:
        """Call the model until stdin is closed. Calls in flight are completed."""
        loop = asyncio.get_running_loop()
        threading.Thread(target=_wait_for_end, args=(loop, self._stop), daemon=True).start()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._report_limit())
            for _ in range(self._key.callers):
                group.create_task(self._call_repeatedly())

    async def _report_limit(self) -> None:
        """Report the token limit of the project, now and whenever it changes."""
        reported = 0
        while not self._stop.is_set():
            limits = (await self._limiter.resolve_limits(self._project_id, RESOURCE)).limits or ()
            now = next(limit.refill_amount for limit in limits if limit.name == "tpm")
            if now != reported:
                reported = now
                _send(InForce(now))
            await self._sleep(_LOOK_EVERY_S)

    async def _call_repeatedly(self) -> None:
        """Call the model; after a rejection, wait for the retry-after time and try the same call again."""
        await self._sleep(self._random.uniform(0, 0.3))
        call = self._key.call(self._random)
        while not self._stop.is_set():
            try:
                await self._call(call)
            except RateLimitExceeded as error:
                _send(self._rejected(error))
                # Several callers share the key. Later retries are spread, so that they do not collide again.
                await self._sleep(error.retry_after_seconds * self._random.uniform(1, 2))
                continue
            except ModelDown:
                pass
            await self._sleep(call.pause_s)
            call = self._key.call(self._random)

    async def _call(self, call: DemoCall) -> None:
        """Take the estimate, call the model, adjust to the usage. A failed call gives everything back."""
        difference = call.used - call.estimated
        taking = {"rpm": 1, "tpm": call.estimated}
        async with self._limiter.acquire(self._key.entity_id, RESOURCE, taking) as lease:
            _send(Took(self._clock.now_ms(), call.estimated))
            await self._sleep(call.takes_s)
            before_ms = self._clock.now_ms()
            if call.fails:
                _send(GaveBack(before_ms, call.estimated))
                raise ModelDown
            await lease.adjust(tpm=difference)
        at_ms = before_ms if difference < 0 else self._clock.now_ms()
        _send(Adjusted(at_ms, call.estimated, call.used))

    def _rejected(self, error: RateLimitExceeded) -> CallRejected:
        lacking = error.primary_violation
        short = f"{lacking.available:,} of {lacking.requested:,} {lacking.limit_name}"
        return CallRejected(self._clock.now_ms(), lacking.entity_id, short, error.retry_after_seconds)

    async def _sleep(self, wanted_s: float) -> None:
        """Sleep for this many seconds, or until the end."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self._stop.wait(), wanted_s)


def _wait_for_end(loop: asyncio.AbstractEventLoop, stop: asyncio.Event) -> None:
    # The end of stdin also comes if the demo is killed, so that no process survives it.
    sys.stdin.buffer.read()
    loop.call_soon_threadsafe(stop.set)


def _send(report: Report) -> None:
    sys.stdout.write(f"{to_line(report)}\n")
    sys.stdout.flush()


async def main(path: str, key_id: str, seed: int) -> None:
    """Run the callers of a key on a file."""
    project, key = next((one, key) for one in PROJECTS for key in one.keys if key.entity_id == key_id)
    url = f"sqlite:///{path}"
    async with await Repository.open(url, config_cache_ttl=CACHE_TTL_S, deadline_s=TRAFFIC_DEADLINE_S) as repository:
        await Callers(RateLimiter(repository), key, project.entity_id, Random(seed)).run()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
