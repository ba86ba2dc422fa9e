"""Limit keys, users, teams and an organisation, per model and across all models; move a user, and block a team.

Run it: python examples/llm_hierarchy.py
"""

import asyncio

from zae_limiter import ALL_RESOURCES, EntityBlockedError, Limit, RateLimiter, RateLimitExceeded, Repository

CALL = {"tokens": 250}
PARENTS = {"search": "acme", "chat": "acme", "user-1": "search", "key-1": "user-1", "key-2": "user-1"}


def per_day(tokens: int) -> list[Limit]:
    """Return a limit of tokens per day."""
    return [Limit.per_day("tokens", tokens)]


async def set_up(repo: Repository) -> None:
    """Create key, user, team and organisation, each below the next, with their limits."""
    await repo.create_entity("acme", name="Acme Inc.")
    for entity, parent in PARENTS.items():
        await repo.create_entity(entity, parent_id=parent, cascade=True)
    # Every level without other limits: this many tokens on each model.
    await repo.set_system_defaults(per_day(10_000))
    for key in ("key-1", "key-2"):
        await repo.set_limits(key, per_day(1_000))
    await repo.set_limits("user-1", per_day(1_500), resource="large-model")
    # A budget for all keys and all models together.
    await repo.set_limits("acme", per_day(3_000), resource=ALL_RESOURCES)


async def show_call(limiter: RateLimiter) -> None:
    """Make one call, and show the buckets that it takes from."""
    async with limiter.acquire("key-1", "large-model", CALL) as lease:
        print("one call takes from:", ", ".join(f"{one.entity_id} ({one.resource})" for one in lease.entries))


async def call_until_refused(limiter: RateLimiter, key: str, model: str) -> None:
    """Call a model with a key, and show how often it was allowed, and which bucket refused."""
    calls = 0
    while True:
        try:
            async with limiter.acquire(key, model, CALL):
                calls += 1
        except RateLimitExceeded as exceeded:
            short = exceeded.primary_violation
            print(f"{key}, {model}: {calls} calls, then refused by {short.entity_id} ({short.resource})")
            return


async def main() -> None:
    """Move, exhaust and block."""
    async with await Repository.open("memory://") as repo:
        await set_up(repo)
        limiter = RateLimiter(repo)

        await show_call(limiter)
        await repo.set_parent("user-1", "chat", principal="alice")
        print("user-1 is moved to the team chat")
        await show_call(limiter)

        for model in ("large-model", "small-model"):
            for key in ("key-1", "key-2"):
                await call_until_refused(limiter, key, model)

        await repo.block_entity("chat", reason="the contract has ended", principal="alice")
        try:
            async with limiter.acquire("key-2", "small-model", CALL):
                pass
        except EntityBlockedError as blocked:
            print("blocked:", blocked.entity_id, "-", blocked.reason)
        await repo.unblock_entity("chat", principal="alice")

        print("left for search, which is below acme too:", await limiter.available("search", "small-model"))
        for event in await repo.get_audit_events("chat"):
            print("audit:", event.action, event.principal)


if __name__ == "__main__":
    asyncio.run(main())
