"""Sends requests through botocore, for a proxy, an event hook or another kind of signature."""

from itertools import count

import zae_limiter.runtime.aio as runtime
from zae_limiter.aws.account import Account
from zae_limiter.aws.botocore_client import BotocoreClient
from zae_limiter.clock import Clock, ServerClock
from zae_limiter.core.outcome import Unavailable
from zae_limiter.process import renew_in_copies
from zae_limiter.tables.dynamodb.http_parser import HttpResponse
from zae_limiter.tables.dynamodb.requests import DynamoDbCall
from zae_limiter.tables.dynamodb.signing import Signer


class BotocoreTransport:
    """Sends requests with a botocore client on threads; it has its own connections and renews its credentials."""

    def __init__(self, account: Account, clock: Clock, server: ServerClock) -> None:
        self._account = account
        self._client = account.botocore_client()
        self._monotonic_s = clock.monotonic_s
        self._server = server
        self._numbers = count(1)
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Forget the server's time in a restored copy of the process; botocore replaces dead connections itself."""
        if restored:
            self._server.forget()

    @property
    def signer(self) -> Signer:
        """The credentials that were loaded first; botocore signs the requests itself."""
        return self._account.signer

    async def call(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Send one request, once."""
        # Botocore does not report which connection it used. So all of them have the number 0, and the server's time
        # is not confirmed by two of them.
        return await self._call(self._client, 0, call, until_s)

    async def call_alone(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Send one request, once, with a new botocore client, which opens a new connection."""
        client = await runtime.in_thread(self._account.new_botocore_client)
        try:
            return await self._call(client, next(self._numbers), call, until_s)
        finally:
            client.close()

    async def _call(
        self, client: BotocoreClient, connection: int, call: DynamoDbCall, until_s: float
    ) -> HttpResponse | Unavailable:
        sent_s = self._monotonic_s()
        left_s = until_s - sent_s
        if left_s <= 0:
            return Unavailable(TimeoutError("no time was left to send the request"), ambiguous=False)
        try:
            answer = await runtime.within(left_s, lambda: runtime.in_thread(self._send, client, call, until_s))
        except TimeoutError:
            return Unavailable(TimeoutError(f"no answer within {left_s:.3f} s"), ambiguous=True)
        if isinstance(answer, HttpResponse):
            self._server.hear(answer.date_s, sent_s, self._monotonic_s(), connection)
        return answer

    def _send(self, client: BotocoreClient, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Send a request on a thread, unless the deadline has passed."""
        # If all threads were busy, the caller has given up by now. A write must not be sent after that.
        if self._monotonic_s() >= until_s:
            return Unavailable(TimeoutError("no time was left to send the request"), ambiguous=False)
        return client.call(call)

    async def replace_keys(self, refused: Signer, until_s: float) -> None:
        """Do nothing: botocore renews its credentials."""

    async def close(self) -> None:
        """Close the connections."""
        self._client.close()
