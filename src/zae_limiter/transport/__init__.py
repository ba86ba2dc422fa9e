"""Sends one signed DynamoDB request: one module for asyncio, one for threads, and here what both share."""

from zae_limiter.aws.account import Account
from zae_limiter.aws.key_renewal import KeyRenewal
from zae_limiter.clock import Clock, ServerClock
from zae_limiter.process import renew_in_copies


class RestorableTransport:
    """The account and the clocks of a transport, and their renewal in a restored copy of the process."""

    def __init__(self, account: Account, clock: Clock, server: ServerClock) -> None:
        self._account = account
        self._clock = clock
        self._monotonic_s = clock.monotonic_s
        self._server = server
        self._closed = False
        self._keys = KeyRenewal(account, clock.monotonic_s)
        renew_in_copies(self)

    def renew(self, *, restored: bool) -> None:
        """Drop connections, forget the server's time and check credentials, in a restored copy of the process.

        A forked child opens its own connections at its first call, and the time that its parent learned stays valid.
        """
        if restored:
            self._drop_connections()
            self._server.forget()
            self._keys.check_soon()

    def _drop_connections(self) -> None:
        raise NotImplementedError
