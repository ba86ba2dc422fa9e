"""Resolve the addresses of an endpoint. A lookup has no timeout, so it runs on a thread and is shared."""

import socket
from typing import Any

from zae_limiter.aws.shared_call import SharedCall, SharedResult
from zae_limiter.tables.dynamodb.signing import Endpoint

Address = tuple[socket.AddressFamily, Any]
"""An address family, and an address in the form that sockets of that family use."""

_MOST_ADDRESSES = 4


class Lookup:
    """Resolve the addresses of one endpoint."""

    __slots__ = ("_finding", "endpoint")

    def __init__(self, endpoint: Endpoint) -> None:
        self.endpoint = endpoint
        self._finding = SharedCall(self._find)

    def begin(self) -> SharedResult[list[Address]]:
        """Start a lookup and return its result: at least one address. A numeric host needs no lookup."""
        try:
            found = self._asked(socket.AI_NUMERICHOST)
        except OSError:
            return self._finding.begin()
        known: SharedResult[list[Address]] = SharedResult()
        known.set(found)
        return known

    def _find(self) -> list[Address]:
        return self._asked(0)

    def _asked(self, flags: int) -> list[Address]:
        host, port = self.endpoint.host, self.endpoint.port
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=flags)
        return [(socket.AddressFamily(family), address) for family, _, _, _, address in found][:_MOST_ADDRESSES]
