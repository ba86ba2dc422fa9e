"""Limit a project with two API keys: each key by its own limits, and both together by those of the project.

Run it: python examples/hierarchical.py
"""

from concurrent.futures import ThreadPoolExecutor

from zae_limiter import Limit, RateLimitExceeded, SyncRateLimiter, SyncRepository

CALL = {"rpm": 1, "tpm": 100}


def set_up(repo: SyncRepository) -> None:
    """Give each key 1000 tokens a minute, and the project 1500 for all its keys."""
    repo.set_resource_defaults("gpt-4", [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 1_000)])
    repo.create_entity("search-team", name="Search")
    repo.set_limits("search-team", [Limit.per_minute("tpm", 1_500)])
    for key in ("key-1", "key-2"):
        repo.create_entity(key, parent_id="search-team", cascade=True)


def call_until_refused(limiter: SyncRateLimiter, key: str) -> tuple[int, str]:
    """Return the number of calls that a key was allowed, and which entity lacked tokens for the next."""
    calls = 0
    while True:
        try:
            with limiter.acquire(key, "gpt-4", CALL):
                calls += 1
        except RateLimitExceeded as exceeded:
            short = exceeded.primary_violation
            return calls, f"{short.entity_id} has {short.available} {short.limit_name}, {short.requested} requested"


def main() -> None:
    """Let both keys call at the same time, from threads."""
    with SyncRepository.open("memory://") as repo:
        set_up(repo)
        limiter = SyncRateLimiter(repo)

        with limiter.acquire("key-1", "gpt-4", CALL) as lease:
            for entry in lease.entries:
                print("one call takes from", entry.entity_id, entry.consumed)

        with ThreadPoolExecutor(2) as pool:
            running = {key: pool.submit(call_until_refused, limiter, key) for key in ("key-1", "key-2")}
        for key, done in running.items():
            calls, why = done.result()
            print(f"{key}: {calls} calls, then refused: {why}")

        for entity in ("key-1", "key-2", "search-team"):
            print(entity, "has left", limiter.available(entity, "gpt-4"))


if __name__ == "__main__":
    main()
