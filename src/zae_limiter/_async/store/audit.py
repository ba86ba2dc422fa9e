"""Audit events, read back. They are written with the changes they tell of."""

from zae_limiter._async.store.index_reader import IndexReader
from zae_limiter._async.store.scope import Scope
from zae_limiter.core.audit import AuditEvent
from zae_limiter.schema import audit_item


class AuditStore:
    """The audit events of one namespace."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def events(self, audit_id: str, limit: int, before: str | None) -> list[AuditEvent]:
        """Return up to ``limit`` events, the newest first, those older than ``before`` only."""
        query = audit_item.newest_first(self._scope.namespace_id, audit_id, limit, before)
        found = await IndexReader(self._scope.table).read(query)
        return [audit_item.from_item(item) for item in found.items]
