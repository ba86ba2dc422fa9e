"""Who changed what, as users ask for it."""  # generated from _async by tools/mirror.py; do not edit

from zae_limiter._sync.store.audit import AuditStore
from zae_limiter._sync.store.scope import Scope
from zae_limiter.core.audit import AuditEvent, check_audit_id, check_event_id
from zae_limiter.core.names import MAX_AMOUNT, check_whole_number


class AuditVerbs:
    """Reads audit events."""

    _scope: Scope

    def get_audit_events(
        self, entity_id: str, limit: int = 100, start_event_id: str | None = None
    ) -> list[AuditEvent]:
        """Return the changes of an entity, the newest first.

        ``$SYSTEM`` in place of an entity's id finds the changes of the system's defaults, ``$RESOURCE:name`` those of
        a resource's, ``$NAMESPACE:name`` those of a namespace as a whole. The next page starts after
        ``start_event_id``, the ``event_id`` of the last event of a page. Events are kept for 90 days, or as
        the stack says.

        Raises:
            ValidationError: An id or the limit is not what it must be.
        """
        check_audit_id(entity_id)
        check_whole_number("limit", limit, 1, MAX_AMOUNT)
        if start_event_id is not None:
            check_event_id(start_event_id, "start_event_id")
        return AuditStore(self._scope).events(entity_id, limit, start_event_id)
