"""The admin methods that change the balances of buckets."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Mapping
from typing import TYPE_CHECKING

from zae_limiter._sync.store.scope import Scope
from zae_limiter.core.audit import check_principal
from zae_limiter.core.names import check_entity_id, check_resource

if TYPE_CHECKING:
    from zae_limiter._sync.store.operator_actions import OperatorActions


class OperatorVerbs:
    """Resets buckets, and gives back what was spent."""

    _scope: Scope

    def reset_buckets(
        self, entity_id: str, resource: str | None = None, principal: str | None = None
    ) -> list[str]:
        """Make all limits of an entity full, for one resource or, if it is None, for all; return the resources.

        Each bucket is reset with all its shards in one step. A quota is full until its next edge, which comes as usual.
        Limits of concurrent use stay as they are, because leases still hold their slots. Debts end. What was used stays
        in the usage. Open leases may still give back what they took, as far as there is room.

        Without a resource, ``ALL_RESOURCES`` is included. A bucket that does not exist is full already, and is not in
        the result. On DynamoDB a bucket that is newer than a moment may be missed, because buckets are found through an
        index. Other clients notice a reset within a second.

        Raises:
            ValidationError: A name is invalid.
            RateLimiterUnavailable: The table did not respond. Some of the buckets may have been reset.
        """
        check_entity_id(entity_id)
        if resource is not None:
            check_resource(resource, allow_all=True)
        check_principal(principal)
        return _operator_actions(self._scope).reset(entity_id, resource, principal)

    def credit(
        self,
        entity_id: str,
        resource: str,
        amounts: Mapping[str, int],
        idempotency_key: str,
        principal: str | None = None,
    ) -> dict[str, int]:
        """Give an entity back what it has spent, and return how much of each limit was given.

        At most what was spent is given. Of a rate limit, that is what it lacks to be full. Of a quota, it is what was
        spent in the current period. To grant more, raise the limit. The usage falls by what is given.

        A credit is given once with its key, also if two operators call this at the same time. So a call that failed can
        be repeated. A repeated call changes nothing and returns what the first has given. Keys are those of an entity.
        They are kept as long as audit events.

        Raises:
            ValidationError: A limit is not in force or is one of concurrent use, or an argument is invalid.
            IdempotencyKeyReusedError: The key was used for another resource or for other amounts.
            RateLimiterUnavailable: The table did not respond. The credit may have been given.

        Example:
            ```python
            given = repo.credit("user-1", "gpt-4", {"tpm": 500}, "ticket-1234")
            ```
        """
        check_entity_id(entity_id)
        check_resource(resource, allow_all=True)
        check_principal(principal)
        return _operator_actions(self._scope).credit((entity_id, resource), amounts, idempotency_key, principal)


def _operator_actions(scope: Scope) -> "OperatorActions":
    # Imported here, because a process that only limits does not need it.
    from zae_limiter._sync.store.operator_actions import OperatorActions

    return OperatorActions(scope)
