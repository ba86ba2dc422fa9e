"""Estimate the cost of a model call, make the call, and adjust to the actual cost; an estimate too low becomes debt.

Run it: python examples/llm_reconciliation.py
"""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

from zae_limiter import Limit, RateLimiter, RateLimitExceeded, Repository

MODEL = "gpt-4"


@dataclass(frozen=True)
class Answer:
    """An answer of the model, and its cost in tokens."""

    text: str
    tokens: int


async def call_model(prompt: str) -> Answer:
    """Simulate a model that gives long answers to questions about poems."""
    await asyncio.sleep(0.01)
    if "fail" in prompt:
        raise ConnectionError("the model is unavailable")
    return Answer("...", 5_000 if "poem" in prompt else 120)


async def stream_model(chunks: int) -> AsyncIterator[Answer]:
    """Simulate a model that streams."""
    for number in range(chunks):
        await asyncio.sleep(0.01)
        yield Answer(f"chunk {number}", 40)


async def ask(limiter: RateLimiter, key: str, prompt: str) -> Answer:
    """Take an estimate, call the model, and adjust to the actual cost."""
    estimate = len(prompt) // 4 + 250
    async with limiter.acquire(key, MODEL, {"rpm": 1, "tpm": estimate}) as lease:
        answer = await call_model(prompt)
        await lease.adjust(tpm=answer.tokens - estimate)  # never fails for lack of tokens; written when the lease ends
    print(f"{prompt!r}: estimated {estimate}, used {answer.tokens}")
    return answer


async def stream(limiter: RateLimiter, key: str) -> None:
    """Count tokens while the answer arrives, and adjust once, at its end."""
    used = 0
    async with limiter.acquire(key, MODEL, {"rpm": 1, "tpm": 100}) as lease:
        async for chunk in stream_model(chunks=5):
            used += chunk.tokens
        await lease.adjust(tpm=used - 100)
    print(f"a stream: estimated 100, used {lease.consumed['tpm']}")


async def show_left(limiter: RateLimiter, key: str) -> None:
    """Print the balance, rounded so that refill does not change it between two runs."""
    left = (await limiter.available(key, MODEL))["tpm"]
    print(f"  {key} has about {round(left, -2)} tokens")


async def main() -> None:
    """Ask cheap and expensive questions, and show their effect on the next one."""
    async with await Repository.open("memory://") as repo:
        limiter = RateLimiter(repo)
        await limiter.set_resource_defaults(MODEL, [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 4_000)])

        await ask(limiter, "key-1", "What is the time?")
        await show_left(limiter, "key-1")
        await stream(limiter, "key-1")
        await show_left(limiter, "key-1")

        try:
            await ask(limiter, "key-1", "Please fail.")
        except ConnectionError as error:
            print(f"{error}: the estimate was given back")
        await show_left(limiter, "key-1")

        await ask(limiter, "key-1", "Write a poem.")
        await show_left(limiter, "key-1")
        try:
            await ask(limiter, "key-1", "And now?")
        except RateLimitExceeded as exceeded:
            print(f"in debt: 429, Retry-After: {exceeded.retry_after_header}")


if __name__ == "__main__":
    asyncio.run(main())
