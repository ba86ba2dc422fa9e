"""The namespace registry: names to opaque ids."""

from random import Random

from zae_limiter._async.table import Table
from zae_limiter.clock import Clock
from zae_limiter.core import namespace as life
from zae_limiter.core.errors import NamespaceNotFoundError, RateLimiterUnavailable
from zae_limiter.core.names import check_namespace
from zae_limiter.core.namespace import Namespace
from zae_limiter.core.outcome import Cancelled, Committed, Conflict, Throttled, Unavailable
from zae_limiter.core.timestamp import iso_from_ms
from zae_limiter.schema import namespace_item

_MOST_TRIES = 8


class NamespaceStore:
    """Finds and registers namespaces."""

    def __init__(self, table: Table, clock: Clock, random: Random) -> None:
        self._table = table
        self._clock = clock
        self._random = random

    async def find(self, name: str) -> Namespace:
        """Return an active namespace.

        Raises:
            NamespaceNotFoundError: There is none of that name.
        """
        check_namespace(name)
        item = await self._table.get(namespace_item.forward_key(name))
        if item is None:
            raise NamespaceNotFoundError(name)
        return namespace_item.from_item(item)

    async def register(self, name: str) -> Namespace:
        """Return the active namespace of that name, new if there was none."""
        check_namespace(name)
        outcome: object = None
        for _ in range(_MOST_TRIES):
            item = await self._table.get(namespace_item.forward_key(name), consistent=True)
            if item is not None:
                return namespace_item.from_item(item)
            namespace_id = life.make_namespace_id(self._random.randbytes(8))
            namespace = life.register(name, namespace_id, iso_from_ms(self._clock.now_ms()))
            outcome = await self._table.transact(namespace_item.register(namespace), f"register-{namespace_id}")
            match outcome:
                case Committed():
                    return namespace
                case Cancelled() | Conflict() | Throttled():
                    continue
                case Unavailable(cause=cause):
                    raise RateLimiterUnavailable(cause)
        raise RateLimiterUnavailable(TimeoutError(f"namespace {name!r} could not be registered: {outcome}"))
