"""Five entities that cascade, for tests of several levels, and a limiter whose calls are counted."""

from zae_limiter import Limit, RateLimiter

from .clients import AsynchronousTable, another

RPM, TPM = Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)
LEVELS = ("key", "user", "team", "org", "top")


async def create_tree(repo):
    """Create five levels: each cascades to the next, and each has 60 requests and 6,000 tokens per minute."""
    await repo.set_system_defaults([RPM, TPM])
    await repo.create_entity("top")
    for child, parent in zip(reversed(LEVELS[:-1]), reversed(LEVELS[1:]), strict=True):
        await repo.create_entity(child, parent_id=parent, cascade=True)


def remote(repo):
    """Return a limiter with its own cache, and the table that counts its calls."""
    other = another(repo, AsynchronousTable)
    return RateLimiter(other), other.scope.table
