"""Calls that botocore carries, where a proxy, an event hook or another kind of signature asks for it."""  # generated from _async by tools/mirror.py; do not edit

from itertools import count

import zae_limiter.runtime.threads as runtime
from zae_limiter.aws.account import Account
from zae_limiter.aws.botocore_client import BotocoreClient
from zae_limiter.clock import Clock, ServerClock
from zae_limiter.core.outcome import Unavailable
from zae_limiter.process import renew_in_copies
from zae_limiter.tables.dynamodb.http_parser import HttpResponse
from zae_limiter.tables.dynamodb.requests import DynamoDbCall
from zae_limiter.tables.dynamodb.signing import Signer


class BotocoreTransport:
    """Makes calls with a botocore client, on threads; it keeps its own connections and renews its own keys."""

    def __init__(self, account: Account, clock: Clock, server: ServerClock) -> None:
        self._account = account
        self._carrier = account.carrier()
        self._monotonic_s = clock.monotonic_s
        self._server = server
        self._witnesses = count(1)
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Learn the server's time again, in a restored copy of the process. Botocore replaces dead connections."""
        if restored:
            self._server.forget()

    @property
    def signer(self) -> Signer:
        """Botocore signs; this one only stands for the keys it began with."""
        return self._account.signer

    def call(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Make one call, once.

        Botocore does not say which of its connections it used, so all of them count as one witness of the time.
        """
        return self._call(self._carrier, 0, call, until_s)

    def call_alone(self, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Make one call, once, with a new botocore client, which has connections of its own."""
        carrier = runtime.in_thread(self._account.new_carrier)
        try:
            return self._call(carrier, next(self._witnesses), call, until_s)
        finally:
            carrier.close()

    def _call(
        self, carrier: BotocoreClient, connection: int, call: DynamoDbCall, until_s: float
    ) -> HttpResponse | Unavailable:
        sent_s = self._monotonic_s()
        left_s = until_s - sent_s
        if left_s <= 0:
            return Unavailable(TimeoutError("no time was left to send the request"), ambiguous=False)
        try:
            answer = runtime.within(left_s, lambda: runtime.in_thread(self._carry, carrier, call, until_s))
        except TimeoutError:
            return Unavailable(TimeoutError(f"no answer within {left_s:.3f} s"), ambiguous=True)
        if isinstance(answer, HttpResponse):
            self._server.hear(answer.date_s, sent_s, self._monotonic_s(), connection)
        return answer

    def _carry(self, carrier: BotocoreClient, call: DynamoDbCall, until_s: float) -> HttpResponse | Unavailable:
        """Make a call, on a thread, unless one was to be had only when nobody waits for the answer any more."""
        if self._monotonic_s() >= until_s:
            return Unavailable(TimeoutError("no time was left to send the request"), ambiguous=False)
        return carrier.call(call)

    def replace_keys(self, refused: Signer, until_s: float) -> None:
        """Leave it to botocore."""

    def close(self) -> None:
        """Let go of the connections."""
        self._carrier.close()
