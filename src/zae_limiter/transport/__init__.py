"""One signed DynamoDB call, written by hand for asyncio and for threads; and the part that both share."""

from typing import Protocol


class _ServerTime(Protocol):
    def forget(self) -> None: ...


class _Keys(Protocol):
    def check_soon(self) -> None: ...


class RestorableTransport:
    """The part of a transport that a restored copy of the process needs."""

    _server: _ServerTime
    _keys: _Keys

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
