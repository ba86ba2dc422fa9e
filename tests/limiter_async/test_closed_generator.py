"""A generator that is closed before its end, as a server does when the client of a stream disconnects."""

from zae_limiter import Limit, RateLimiter, Repository


async def test_generator_that_is_closed_after_a_commit_charges_what_was_used():
    """The lease is left by GeneratorExit, which is an exception like any other."""
    limiter = RateLimiter(await Repository.open("memory://"))
    await limiter.set_system_defaults([Limit.per_day("rpd", 60), Limit.per_day("tpd", 6_000)])

    async def stream():
        async with limiter.acquire("user-1", "gpt-4", {"rpd": 1, "tpd": 500}) as lease:
            await lease.commit()
            for used in range(1, 1_000):
                await lease.adjust(tpd=1)
                yield used

    chunks = stream()
    last = [await anext(chunks) for _ in range(3)][-1]
    await chunks.aclose()

    assert 3 == last
    assert {"rpd": 59, "tpd": 5_497} == await limiter.available("user-1", "gpt-4")
