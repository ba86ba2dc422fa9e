"""Keep two tenants in one file, each in its own namespace: equal names, separate limits, balances and usage.

Run it: python examples/multi_tenant.py
"""

import asyncio
import tempfile
from pathlib import Path

from zae_limiter import Limit, NamespaceNotFoundError, RateLimiter, RateLimitExceeded, Repository

PLANS = {
    "acme": [Limit.per_minute("rpm", 600)],
    "globex": [Limit.per_minute("rpm", 60)],
}


async def serve(limiter: RateLimiter, tenant: str, calls: int) -> None:
    """Make concurrent calls for user-1 of a tenant, and print how many were admitted."""

    async def call() -> bool:
        try:
            async with limiter.acquire("user-1", "search", {"rpm": 1}):
                return True
        except RateLimitExceeded:
            return False

    admitted = sum(await asyncio.gather(*(call() for _ in range(calls))))
    print(f"user-1 of {tenant}: {admitted} of {calls} calls admitted")


async def report(limiter: RateLimiter, tenant: str) -> None:
    """Print the hourly usage of a tenant so far."""
    snapshots, _ = await limiter.get_usage_snapshots(entity_id="user-1", window_type="hourly")
    print(f"{tenant} used {sum(snapshot.counters['rpm'] for snapshot in snapshots)} requests")


async def remove(repo: Repository, tenant: str) -> None:
    """Delete a tenant: the delete hides it, and the purge removes its data."""
    deleted = await repo.delete_namespace(tenant, principal="billing")
    try:
        await repo.namespace(tenant)
    except NamespaceNotFoundError:
        print(f"{tenant} is deleted; it can be recovered until it is purged")
    await repo.purge_namespace(deleted.id, principal="billing")
    print("tenants now:", *sorted(one.name for one in await repo.list_namespaces()))


async def main() -> None:
    """Serve both tenants, report their usage, and remove one."""
    with tempfile.TemporaryDirectory() as folder:
        async with await Repository.open(f"sqlite:///{Path(folder, 'limits.db')}") as repo:
            await repo.register_namespaces(list(PLANS))
            limiters = {tenant: RateLimiter(await repo.namespace(tenant)) for tenant in PLANS}
            for tenant, limits in PLANS.items():
                await limiters[tenant].set_system_defaults(limits)

            await asyncio.gather(*(serve(limiter, tenant, calls=100) for tenant, limiter in limiters.items()))
            for tenant, limiter in limiters.items():
                await report(limiter, tenant)
            await remove(repo, "globex")


if __name__ == "__main__":
    asyncio.run(main())
