"""A process that works from its cache of a namespace: ``python -m tests.limiter_sync.purge_worker KIND URL``.

It reads many entities and holds a lease on another, prints ``ready`` and waits for a line. Then it adjusts
the lease. It takes from these entities with cached limits, and from others with limits that it passes. It
prints the outcomes.
"""

import sys
from collections import Counter

from tests.dynamodb.trees import tree
from zae_limiter import Limit, NamespaceNotFoundError

ENTITIES = 160
LIMITS = [Limit.per_minute("rpm", 60)]


def main(kind: str, url: str) -> None:
    outcomes: Counter[str] = Counter()
    with tree(kind) as opened:
        limiter = opened.limiter(opened.open(url, namespace="tenant", config_cache_ttl=3600, deadline_s=60))
        for number in range(ENTITIES // 2):
            limiter.available(f"new-{number}", "gpt-4")
        with limiter.acquire("user-2", "gpt-4", {"rpm": 1}) as lease:
            sys.stdout.write("ready\n")
            sys.stdout.flush()
            sys.stdin.readline()
            lease.adjust(rpm=1)
        for number in range(ENTITIES):
            own = None if number < ENTITIES // 2 else LIMITS
            try:
                with limiter.acquire(f"new-{number}", "gpt-4", {"rpm": 1}, own):
                    outcomes["admitted"] += 1
            except NamespaceNotFoundError:
                outcomes["gone"] += 1
        limiter.close()
    sys.stdout.write(f"{dict(outcomes)}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
