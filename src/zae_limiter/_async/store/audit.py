"""Audit events, read back. They are written with the changes they tell of."""

from dataclasses import replace

from zae_limiter._async.store.scope import Scope
from zae_limiter.core.audit import AuditEvent
from zae_limiter.schema import audit_item


class AuditStore:
    """The audit events of one namespace."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope

    async def events(self, audit_id: str, limit: int, before: str | None) -> list[AuditEvent]:
        """Return up to ``limit`` events, the newest first, those older than ``before`` only."""
        found: list[AuditEvent] = []
        query = audit_item.newest_first(self._scope.namespace_id, audit_id, limit, before)
        while True:
            page = await self._scope.table.query(query)
            found += map(audit_item.from_item, page.items)
            if page.next is None or len(found) >= limit:
                return found
            query = replace(query, start=page.next, limit=limit - len(found))
