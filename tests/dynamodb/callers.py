"""The async and sync transports behind blocking calls, so that a test is written once."""

import asyncio
import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from types import TracebackType
from typing import Any, Self

from tests.dynamodb.issuer import TABLE, fresh_session
from tests.dynamodb.trees import KINDS
from zae_limiter._async.dynamodb_table import choose_transport as async_transport
from zae_limiter._sync.dynamodb_table import choose_transport as sync_transport
from zae_limiter.aws.account import Account, EndpointOptions
from zae_limiter.clock import ServerClock, SystemClock
from zae_limiter.core.outcome import Unavailable
from zae_limiter.tables.dynamodb.http_parser import HttpResponse
from zae_limiter.tables.dynamodb.requests import DynamoDbCall

__all__ = ["KINDS", "Caller", "SkippingClock", "account_at"]

WITHIN_S = 60.0
PATIENCE_S = 120.0


class SkippingClock(SystemClock):
    """The machine's clock with skipped time; it may be stopped."""

    def __init__(self) -> None:
        self.skipped_s = 0.0
        self._stopped_s: float | None = None

    def stop(self) -> None:
        """Stop the clock, however long the machine takes."""
        self._stopped_s = time.monotonic()

    def monotonic_s(self) -> float:
        return (self._stopped_s or time.monotonic()) + self.skipped_s


def account_at(url: str) -> Account:
    """Return an account at an endpoint with keys that never expire."""
    session = fresh_session()
    session.set_credentials("AKIDEXAMPLE", "secret-of-a-test", "token-of-a-test")
    return Account(EndpointOptions(TABLE, "us-east-1", url, 0.5), session)


class Caller:
    """The transport that is chosen for an account, async or sync; the async one runs in its own loop."""

    def __init__(self, kind: str, account: Account) -> None:
        self.clock = SkippingClock()
        self.server = ServerClock(self.clock)
        self._kind = kind
        self.transport: Any = (async_transport if kind == "async" else sync_transport)(account, self.clock, self.server)

    def __enter__(self) -> Self:
        self._pool = ThreadPoolExecutor(200)
        self._loop = asyncio.new_event_loop()
        if self._kind == "async":
            self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()
        if self._kind == "async":
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()
        self._pool.shutdown(wait=False)
        self._loop.close()

    def begin(self, call: DynamoDbCall, within_s: float = WITHIN_S) -> "Future[HttpResponse | Unavailable]":
        """Start a call without waiting for it."""
        until_s = self.clock.monotonic_s() + within_s
        if self._kind == "async":
            return asyncio.run_coroutine_threadsafe(self.transport.call(call, until_s), self._loop)
        return self._pool.submit(self.transport.call, call, until_s)

    def call(self, call: DynamoDbCall, within_s: float = WITHIN_S) -> HttpResponse | Unavailable:
        """Make a call and wait for it."""
        return self.begin(call, within_s).result(PATIENCE_S)

    def replace_keys(self, within_s: float = WITHIN_S) -> None:
        """Load the keys again."""
        until_s = self.clock.monotonic_s() + within_s
        self._wait(self.transport.replace_keys, self.transport.signer, until_s)

    def close(self) -> None:
        self._wait(self.transport.close)

    def _wait(self, what: Any, *arguments: Any) -> None:
        if self._kind == "async":
            asyncio.run_coroutine_threadsafe(what(*arguments), self._loop).result(PATIENCE_S)
        else:
            what(*arguments)
