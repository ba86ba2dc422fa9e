"""The terms a request is judged by: the caller's own limits, or those in force, from the cache while they are fresh."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Sequence

from zae_limiter._sync.caches import BucketId
from zae_limiter._sync.store.configs import ConfigStore
from zae_limiter._sync.store.scope import Scope
from zae_limiter.core.config import Resolution
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.limit import Limit, check_limits
from zae_limiter.core.names import check_entity_id, check_resource
from zae_limiter.core.view import Terms, own_terms

OwnLimits = Sequence[Limit] | None
"""Limits a caller brings along instead of the stored ones."""


class Resolver:
    """Finds the terms for a bucket."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._configs = ConfigStore(scope)
        self._limits = scope.caches.limits

    def terms(self, bucket: BucketId, own: OwnLimits) -> Terms:
        """Return the terms, reading the configuration where it is not known or not fresh.

        Raises:
            ValidationError: Names or limits are not what they must be, or no limits are in force.
        """
        check_bucket(bucket)
        limits = None if own is None else check_limits(own)
        return self._agreed(bucket, limits, self._configs.resolution(bucket))

    def terms_again(self, bucket: BucketId, own: OwnLimits) -> Terms:
        """Return the terms after reading the configuration again, consistently."""
        known = self._configs.read_again(bucket, consistent=True)
        return self._agreed(bucket, None if own is None else check_limits(own), known.resolution)

    def is_known(self, bucket: BucketId) -> bool:
        """Say whether the terms can be told without reading."""
        return self._configs.fresh(bucket) is not None

    def _agreed(self, bucket: BucketId, own: tuple[Limit, ...] | None, resolution: Resolution) -> Terms:
        if own is not None:
            return self._own_terms(own, resolution)
        known = self._limits.get(bucket)
        if known is None or known.terms is None:
            raise _no_limits(bucket)
        return known.terms

    def _own_terms(self, own: tuple[Limit, ...], resolution: Resolution) -> Terms:
        memory = self._scope.caches.own_terms
        remembered = (own, resolution.stamp, resolution.facts)
        terms = memory.get(remembered)
        if terms is None:
            terms = own_terms(resolution, own, self._scope.settings.bucket_ttl_multiplier)
            memory.keep(remembered, terms)
        return terms


def check_bucket(bucket: BucketId) -> None:
    """Refuse names that cannot be those of an entity and a resource."""
    entity_id, resource = bucket
    check_entity_id(entity_id)
    check_resource(resource)


def _no_limits(bucket: BucketId) -> ValidationError:
    entity_id, resource = bucket
    return ValidationError(
        "limits",
        None,
        f"no limits are in force for entity {entity_id!r} and resource {resource!r}: pass limits=, or store some with "
        "set_limits, set_resource_defaults or set_system_defaults",
    )
