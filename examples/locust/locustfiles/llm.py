"""Callers of a model: take an estimate, wait for the model, adjust to the actual cost. Some disconnect.

Run it: zae-limiter loadtest run --url sqlite:///load.db -f examples/locust/locustfiles/llm.py
"""

import random
import time
from contextlib import suppress
from functools import cache
from itertools import count

from locust import constant_throughput, task

from zae_limiter import EntityExistsError, Limit, RateLimitExceeded, SyncRateLimiter
from zae_limiter.locust import RateLimiterUser

MODEL = "load-llm"
PROJECT = "llm-project"
# A key calls once a second with 500 tokens on average: 30,000 a minute. The buckets hold a few seconds of that.
KEY_LIMITS = [Limit.custom("rpm", 10, 90, 60), Limit.custom("tpm", 2_000, 20_000, 60)]
PROJECT_LIMITS = [Limit.custom("tpm", 10_000, 100_000, 60)]
DISCONNECTS = 0.1
"""The share of clients that do not wait for the answer."""

numbers = count(1)


class ClientDisconnectedError(Exception):
    """The client did not wait for the answer."""


@cache
def prepare(limiter: SyncRateLimiter) -> None:
    """Store the limits and the project, once per process."""
    limiter.set_resource_defaults(MODEL, KEY_LIMITS)
    limiter.set_limits(PROJECT, PROJECT_LIMITS, MODEL)
    with suppress(EntityExistsError):
        limiter.create_entity(PROJECT)


class LlmUser(RateLimiterUser):
    """An API key of a project, which calls a model once a second."""

    # A paced user: latencies count from the time at which a call was due.
    wait_time = constant_throughput(1)

    def on_start(self) -> None:
        """Create a key of the project."""
        # Calls of the limiter itself are not measured.
        prepare(self.client.limiter)
        worker = getattr(self.environment.runner, "worker_index", 0)
        self.key = f"llm-key-{worker}-{next(numbers)}"
        with suppress(EntityExistsError):
            self.client.limiter.create_entity(self.key, parent_id=PROJECT, cascade=True)

    @task
    def ask(self) -> None:
        """Ask the model, unless a limit rejects the call."""
        estimate = random.randint(200, 800)
        with suppress(RateLimitExceeded, ClientDisconnectedError):
            self.ask_model(estimate)

    def ask_model(self, estimate: int) -> None:
        """Take the estimate, and adjust it to what the model used.

        Raises:
            RateLimitExceeded: A limit of the key or of the project lacks the tokens.
            ClientDisconnectedError: The client is gone. It has to pay nevertheless.
        """
        with self.client.acquire(self.key, MODEL, {"rpm": 1, "tpm": estimate}) as lease:
            # Locust has replaced this function: other users run meanwhile.
            time.sleep(random.uniform(0.05, 0.2))
            # The model has begun to answer, and bills what it does. Without this, an exception gives everything back.
            lease.commit()
            if random.random() < DISCONNECTS:
                raise ClientDisconnectedError
            time.sleep(random.uniform(0.1, 0.4))
            lease.adjust(tpm=round(estimate * random.uniform(-0.3, 0.3)))
