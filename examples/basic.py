"""Take two limits in one call, adjust them, exceed one, and wait for it; async and sync on one file.

Run it: python examples/basic.py
"""

import asyncio
import tempfile
from pathlib import Path

from zae_limiter import (
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    SyncRateLimiter,
    SyncRepository,
)

LIMITS = [Limit.per_second("rps", 2, burst=4), Limit.per_minute("tpm", 10_000)]


async def limit_asynchronously(url: str) -> None:
    """Store limits, take from them until one is exceeded, and wait for the time given in the error."""
    async with await Repository.open(url) as repo:
        limiter = RateLimiter(repo)
        await limiter.set_system_defaults(LIMITS)

        async with limiter.acquire("user-1", "search", {"rps": 1, "tpm": 500}) as lease:
            await lease.adjust(tpm=230)  # it actually used 730
        print("taken, both limits in one write:", lease.consumed)

        try:
            for _ in range(100):
                async with limiter.acquire("user-1", "search", {"rps": 1, "tpm": 1}):
                    pass
        except RateLimitExceeded as exceeded:
            print("refused:", exceeded)
            print(f"waiting {exceeded.retry_after_seconds:.3f} s, no longer than needed")
            await asyncio.sleep(exceeded.retry_after_seconds)

        async with limiter.acquire("user-1", "search", {"rps": 1}):
            print("admitted after the wait")


def limit_synchronously(url: str) -> None:
    """Use the same file without an event loop; the earlier takes still count."""
    with SyncRepository.open(url) as repo:
        limiter = SyncRateLimiter(repo)
        left = limiter.available("user-1", "search")["tpm"]
        print(f"the sync limiter sees the same bucket: about {round(left, -2)} tokens left")

        try:
            with limiter.acquire("user-1", "search", {"tpm": 5_000}):
                raise TimeoutError("the search took too long")
        except TimeoutError as error:
            left = limiter.available("user-1", "search")["tpm"]
            print(f"{error}, and everything was given back: about {round(left, -2)} tokens left")


def main() -> None:
    """Run both on a temporary file."""
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder, 'limits.db')}"
        asyncio.run(limit_asynchronously(url))
        limit_synchronously(url)


if __name__ == "__main__":
    main()
