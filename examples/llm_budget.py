"""Give each customer a monthly budget in dollars, next to requests and tokens per minute; prices are your own.

Run it: python examples/llm_budget.py
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from zae_limiter import (
    ALL_RESOURCES,
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    consume_from_usage,
    usd,
)

Usage = Mapping[str, int]

# Dollars per million tokens.
PRICES = {
    "large": {"input": usd("3"), "output": usd("15"), "cache_read": usd("0.30")},
    "small": {"input": usd("0.15"), "output": usd("0.60"), "cache_read": usd("0.075")},
}

PER_MODEL = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 2_000_000)]


def budget(dollars: str, *, enforce: bool = True) -> Limit:
    """Return a monthly budget, in the time zone in which the customer is billed."""
    return Limit.quota("spend", usd(dollars), every="month", tz="Europe/Berlin", unit="USD", enforce=enforce)


@dataclass(frozen=True)
class Answer:
    """An answer of the model, with its usage as the provider reports it."""

    text: str
    usage: Usage


async def call_model(model: str, prompt: str) -> Answer:
    """Simulate a provider; long prompts get long answers."""
    await asyncio.sleep(0.01)
    return Answer("...", {"input_tokens": 1_000 * len(prompt), "output_tokens": 200 * len(prompt)})


def dollars(micro: int) -> str:
    """Format an amount of micro-dollars."""
    return f"{micro / 1_000_000:,.2f} USD"


async def ask(limiter: RateLimiter, customer: str, model: str, prompt: str) -> None:
    """Take an estimate, call the model, and adjust to the usage and its cost."""
    prices = PRICES[model]
    estimate: Usage = {"input_tokens": 1_000 * len(prompt), "output_tokens": 1_000}
    expected = {**consume_from_usage(estimate, prices=prices), **consume_from_usage(estimate)}
    async with limiter.acquire(customer, model, {"rpm": 1, **expected}) as lease:
        answer = await call_model(model, prompt)
        used = {**consume_from_usage(answer.usage, prices=prices), **consume_from_usage(answer.usage)}
        await lease.adjust(**{name: used[name] - expected[name] for name in used})
        left = dollars(lease.remaining["spend"])
    print(f"{customer} asked {model}: {used['tpm']:,} tokens, {dollars(used['spend'])}; {left} left")


async def ask_until_rejected(limiter: RateLimiter, customer: str, calls: int) -> None:
    """Ask the large model, and the small one when the budget is too small for it."""
    for _ in range(calls):
        try:
            await ask(limiter, customer, "large", "Write a report. " * 5)
        except RateLimitExceeded as exceeded:
            short = exceeded.primary_violation
            assert short.resets_at is not None, "a quota has a reset"
            resets = datetime.fromtimestamp(short.resets_at, UTC)
            left, asked = dollars(short.available), dollars(short.requested)
            print(f"{customer} is rejected: {left} left, {asked} needed. The budget resets at {resets:%d %b %H:%M} UTC")
            await ask(limiter, customer, "small", "Write a report. " * 5)
            return


async def main() -> None:
    """Give one customer a budget, try one with another, and raise the first."""
    async with await Repository.open("memory://", config_cache_ttl=0) as repo:
        limiter = RateLimiter(repo)
        await limiter.set_system_defaults(PER_MODEL)
        # Across resources, so that all models of a customer share one budget.
        await limiter.set_limits("acme", [budget("1.50")], ALL_RESOURCES)
        await limiter.set_limits("globex", [budget("1", enforce=False)], ALL_RESOURCES)

        await ask_until_rejected(limiter, "acme", calls=5)
        await ask_until_rejected(limiter, "globex", calls=3)
        print("globex has a soft limit: it is counted, and never rejected")

        await limiter.set_limits("acme", [budget("3")], ALL_RESOURCES)
        await ask(limiter, "acme", "large", "Write a report. " * 5)
        print("a larger budget applies immediately, and keeps what is spent")


if __name__ == "__main__":
    asyncio.run(main())
