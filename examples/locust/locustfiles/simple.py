"""Callers at a moderate rate that ask for more than their limits, alone or below one shared parent.

Run it: zae-limiter loadtest run --url sqlite:///load.db -f examples/locust/locustfiles/simple.py
"""

from contextlib import suppress
from functools import cache
from itertools import count

from locust import between, task

from zae_limiter import EntityExistsError, Limit, RateLimitExceeded, SyncRateLimiter
from zae_limiter.locust import RateLimiterUser

RESOURCE = "load-simple"
PARENT = "simple-parent"
# A user calls about 25 times a second, so that most of its calls are rejected.
LIMITS = [Limit.per_second("rps", 10, burst=20)]
# Two children already ask for more than this.
PARENT_LIMITS = [Limit.per_second("rps", 16, burst=32)]

numbers = count(1)


@cache
def prepare(limiter: SyncRateLimiter) -> None:
    """Store the limits and the parent, once per process."""
    limiter.set_resource_defaults(RESOURCE, LIMITS)
    limiter.set_limits(PARENT, PARENT_LIMITS, RESOURCE)
    with suppress(EntityExistsError):
        limiter.create_entity(PARENT)


class SimpleUser(RateLimiterUser):
    """A caller with limits of its own."""

    wait_time = between(0.02, 0.06)

    def on_start(self) -> None:
        """Choose an entity of its own, which no user of another process has."""
        # Calls of the limiter itself are not measured.
        prepare(self.client.limiter)
        worker = getattr(self.environment.runner, "worker_index", 0)
        self.entity_id = f"simple-{worker}-{next(numbers)}"

    @task(50)
    def call(self) -> None:
        """Take a token, as a request to an API would."""
        with suppress(RateLimitExceeded), self.client.acquire(self.entity_id, RESOURCE, {"rps": 1}):
            pass

    @task(1)
    def look(self) -> None:
        """Ask what is left."""
        self.client.available(self.entity_id, RESOURCE)


class SimpleCascadeUser(SimpleUser):
    """A caller that also takes from the parent that all of them share."""

    def on_start(self) -> None:
        """Create a child."""
        super().on_start()
        self.entity_id += "-child"
        with suppress(EntityExistsError):
            self.client.limiter.create_entity(self.entity_id, parent_id=PARENT, cascade=True)
