"""Break rules of writes across shards, which no single writer can break, in the world of a sharded bucket."""

from collections.abc import Callable
from typing import Any

from tests.mutations.mutation import Patches, patch
from tests.mutations.writes import Change
from tests.promise.shard_world import Operations, ShardWorld

Send = Callable[..., None]


def across(kind: str, change: Change) -> Patches:
    """Return the patch that changes every write of this kind that is sent to several shards."""

    def changed(operations: Operations) -> Operations:
        return [(shard, change(write)) for shard, write in operations] if len(operations) > 1 else operations

    return _sending(kind, changed)


def in_part(kind: str) -> Patches:
    """Return the patch that sends only the first write of a transaction of this kind."""
    return _sending(kind, lambda operations: operations[:1])


def _sending(kind: str, change: Callable[[Operations], Operations]) -> Patches:
    def around(send: Send) -> Send:
        def changed(self: Any, client: Any, operations: Operations, use: Any) -> None:
            send(self, client, change(operations) if use.kind == kind else operations, use)

        return changed

    return patch(ShardWorld, "_send", around)
