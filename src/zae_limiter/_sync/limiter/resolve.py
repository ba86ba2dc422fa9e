"""The terms that decide about a request: the caller's own limits, or the stored ones, cached while they are fresh."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Sequence
from contextlib import suppress

from zae_limiter._sync.store.buckets import check_bucket
from zae_limiter._sync.store.configs import ConfigStore
from zae_limiter._sync.store.scope import Scope
from zae_limiter.caches.buckets import BucketId, KnownLimits
from zae_limiter.caches.request import FallbackLimits, OwnLimits
from zae_limiter.core.config import Resolution
from zae_limiter.core.errors import NamespaceNotFoundError, NoLimitsInForceError
from zae_limiter.core.limit import Limit, check_limits
from zae_limiter.core.view import EffectiveLimits, own_effective_limits


class Resolver:
    """Finds the terms for a bucket."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._configs = ConfigStore(scope)

    def terms(self, bucket: BucketId, own: OwnLimits, until_s: float) -> EffectiveLimits:
        """Return the terms; read the configuration if it is not cached or not fresh.

        Raises:
            ValidationError: A name or a limit is invalid, or no limits are in force.
        """
        check_bucket(bucket, allow_all=True)
        checked = check_own_limits(own)
        known = self._configs.fresh(bucket)
        if known is None:
            known = self._read(bucket, checked, until_s)
        else:
            self._scope.caches.hits += 1
        if checked is not None:
            self.allow_own(checked)
        return self.agreed(bucket, checked, known)

    def allow_own(self, own: Sequence[Limit] | FallbackLimits) -> None:
        """Require that the table may store a bucket with the limits of a caller.

        Raises:
            KindNotAllowedError: They are of a kind that the table does not allow yet.
        """
        self._configs.allow_own(own.limits if isinstance(own, FallbackLimits) else own)

    def _read(self, bucket: BucketId, own: "CheckedLimits", until_s: float) -> KnownLimits:
        """Read the configuration of a bucket.

        An eventually consistent read may miss limits that were just stored. If it finds none, a consistent one follows.

        Raises:
            NamespaceNotFoundError: The namespace was deleted.
        """
        if not self._scope.table.index_lag_s:
            return self._configs.read_again(bucket, until_s)
        needs_stored = own is None or isinstance(own, FallbackLimits)
        with suppress(NamespaceNotFoundError):
            known = self._configs.read_again(bucket, until_s)
            if known.terms is not None or not needs_stored:
                return known
        return self._configs.read_again(bucket, until_s, consistent=True)

    def terms_again(self, bucket: BucketId, own: OwnLimits, until_s: float) -> EffectiveLimits:
        """Return the terms after reading the configuration again, consistently."""
        known = self._configs.read_again(bucket, until_s, consistent=True)
        return self.agreed(bucket, check_own_limits(own), known)

    def known_terms(self, bucket: BucketId, own: OwnLimits) -> EffectiveLimits | None:
        """Return the terms if they are cached and fresh; None if not, or if no limits are in force."""
        known = self._configs.fresh(bucket)
        if known is None or (own is None and known.terms is None):
            return None
        return self.agreed(bucket, check_own_limits(own), known)

    def has_stored_limits(self, bucket: BucketId) -> bool:
        """Return whether it is cached that limits are stored for a bucket."""
        known = self._configs.fresh(bucket)
        return known is not None and known.terms is not None

    def agreed(self, bucket: BucketId, own: "CheckedLimits", known: KnownLimits) -> EffectiveLimits:
        """Return the terms that follow from limits that were read, or from the caller's own.

        Raises:
            ValidationError: There are neither.
        """
        if isinstance(own, tuple):
            return self._own_terms(own, known.resolution)
        if known.terms is not None:
            return known.terms
        if own is not None:
            return self._own_terms(tuple(own.limits), known.resolution)
        raise no_limits(bucket)

    def _own_terms(self, own: tuple[Limit, ...], resolution: Resolution) -> EffectiveLimits:
        memory = self._scope.caches.own_terms
        remembered = (own, resolution.stamp, resolution.facts, resolution.links)
        terms = memory.get(remembered)
        if terms is None:
            terms = own_effective_limits(resolution, own, self._scope.settings.bucket_ttl_multiplier)
            memory.keep(remembered, terms)
        return terms


CheckedLimits = tuple[Limit, ...] | FallbackLimits | None
"""Limits that a caller passes, after their check."""


def check_own_limits(own: OwnLimits) -> CheckedLimits:
    """Require valid limits of a caller, None if it passes none.

    Raises:
        ValidationError: The value is not a list of limits that can be used together.
    """
    if own is None:
        return None
    return FallbackLimits(check_limits(own.limits)) if isinstance(own, FallbackLimits) else check_limits(own)


def no_limits(bucket: BucketId) -> NoLimitsInForceError:
    """Return the error for an entity and a resource without limits."""
    entity_id, resource = bucket
    return NoLimitsInForceError(
        "limits",
        None,
        f"no limits are in force for entity {entity_id!r} and resource {resource!r}: pass limits=, or store some with "
        "set_limits, set_resource_defaults or set_system_defaults",
    )
