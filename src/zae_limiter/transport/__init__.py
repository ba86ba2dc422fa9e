"""Sends one signed DynamoDB request: one module for asyncio, one for threads, and here what both share."""

from zae_limiter.aws.key_renewal import KeyRenewal
from zae_limiter.clock import ServerClock


class RestorableTransport:
    """The part of a transport that a restored copy of the process needs."""

    _server: ServerClock
    _keys: KeyRenewal

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
