"""As many calls as possible: no wait between calls, and limits that never reject.

Run it: zae-limiter loadtest run --url sqlite:///load.db -f examples/locust/locustfiles/max_rps.py MaxRpsUser
"""

from contextlib import suppress
from functools import cache
from itertools import count

from locust import constant, task

from zae_limiter import EntityExistsError, Limit, SyncRateLimiter
from zae_limiter.locust import RateLimiterUser

RESOURCE = "load-max-rps"
PARENT = "max-rps-parent"
LIMITS = [Limit.per_second("rps", 1_000_000)]

numbers = count(1)


@cache
def prepare(limiter: SyncRateLimiter) -> None:
    """Store the limits and the parent, once per process."""
    limiter.set_resource_defaults(RESOURCE, LIMITS)
    with suppress(EntityExistsError):
        limiter.create_entity(PARENT)


class MaxRpsUser(RateLimiterUser):
    """A caller that takes from its own bucket, again and again."""

    wait_time = constant(0)

    def on_start(self) -> None:
        """Choose an entity of its own, which no user of another process has."""
        # Calls of the limiter itself are not measured.
        prepare(self.client.limiter)
        worker = getattr(self.environment.runner, "worker_index", 0)
        self.entity_id = f"max-rps-{worker}-{next(numbers)}"

    @task
    def call(self) -> None:
        """Take one token."""
        with self.client.acquire(self.entity_id, RESOURCE, {"rps": 1}):
            pass


class MaxRpsCascadeUser(MaxRpsUser):
    """A caller whose calls also take from a shared parent, to measure what a cascade costs."""

    def on_start(self) -> None:
        """Create a child."""
        super().on_start()
        self.entity_id += "-child"
        with suppress(EntityExistsError):
            self.client.limiter.create_entity(self.entity_id, parent_id=PARENT, cascade=True)
