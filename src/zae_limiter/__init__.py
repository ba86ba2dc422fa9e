"""Rate limits for LLM gateways and multi-tenant APIs, on one SQLite file or on DynamoDB.

Public names are imported on first use, which keeps the import of the package fast.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zae_limiter._async.builder import RepositoryBuilder
    from zae_limiter._async.limiter.lease import Lease
    from zae_limiter._async.limiter.lease_facts import LeaseEntry
    from zae_limiter._async.limiter.limiter import RateLimiter
    from zae_limiter._async.protocol import RepositoryProtocol
    from zae_limiter._async.repository import Repository
    from zae_limiter._sync.builder import SyncRepositoryBuilder
    from zae_limiter._sync.limiter.lease import SyncLease
    from zae_limiter._sync.limiter.limiter import SyncRateLimiter
    from zae_limiter._sync.protocol import SyncRepositoryProtocol
    from zae_limiter._sync.repository import SyncRepository
    from zae_limiter.clock import Clock, SystemClock
    from zae_limiter.core.audit import AuditAction, AuditEvent
    from zae_limiter.core.cascade import Also
    from zae_limiter.core.config import ResolvedLimits
    from zae_limiter.core.entity import Entity, EntityBlock
    from zae_limiter.core.errors import (
        AmountExceedsCapacityError,
        CorruptItemError,
        EntityBlockedError,
        EntityError,
        EntityExistsError,
        EntityHasChildrenError,
        EntityNotFoundError,
        InfrastructureError,
        InfrastructureNotFoundError,
        InvalidIdentifierError,
        InvalidNameError,
        LeaseExpiredError,
        LocalAwsError,
        MissingExtraError,
        NamespaceNotFoundError,
        NamespaceStateError,
        NoLimitsInForceError,
        RateLimitError,
        RateLimiterUnavailable,
        RateLimitExceeded,
        RepositoryClosedError,
        StackAlreadyExistsError,
        StackCreationError,
        StackOperationError,
        StorageError,
        TooManyBucketsError,
        UnsupportedByBackendError,
        ValidationError,
        ZAELimiterError,
    )
    from zae_limiter.core.limit import Limit, LimitName
    from zae_limiter.core.money import consume_from_usage, money, usd
    from zae_limiter.core.names import ALL_RESOURCES
    from zae_limiter.core.namespace import Namespace
    from zae_limiter.core.status import (
        BackendCapabilities,
        Balance,
        BucketState,
        CacheStats,
        EntityCapacity,
        LimitStatus,
        OnUnavailable,
        ResourceCapacity,
        Status,
    )
    from zae_limiter.core.usage import UsageSnapshot, UsageSummary
    from zae_limiter.core.version_errors import (
        IncompatibleSchemaError,
        KindNotAllowedError,
        UnknownKindError,
        VersionError,
        VersionMismatchError,
    )
    from zae_limiter.core.waiting import PaceProgress, Queue
    from zae_limiter.decorator import limited
    from zae_limiter.infra.discovery import LimiterInfo
    from zae_limiter.infra.options import StackOptions
    from zae_limiter.process import renew_clients
    from zae_limiter.visualization.factory import SnapshotFormatter, UsageFormatter, format_usage_snapshots
    from zae_limiter.visualization.page import HtmlFormatter
    from zae_limiter.visualization.plot import PlotFormatter
    from zae_limiter.visualization.table import CsvFormatter, TableFormatter

    __version__: str

_MODULES = {
    **dict.fromkeys(("Clock", "SystemClock"), "clock"),
    **dict.fromkeys(("AuditAction", "AuditEvent"), "core.audit"),
    "Also": "core.cascade",
    "ResolvedLimits": "core.config",
    **dict.fromkeys(("Entity", "EntityBlock"), "core.entity"),
    **dict.fromkeys(("Limit", "LimitName"), "core.limit"),
    **dict.fromkeys(("consume_from_usage", "money", "usd"), "core.money"),
    "ALL_RESOURCES": "core.names",
    "Namespace": "core.namespace",
    **dict.fromkeys(
        (
            "BackendCapabilities",
            "Balance",
            "BucketState",
            "CacheStats",
            "EntityCapacity",
            "LimitStatus",
            "OnUnavailable",
            "ResourceCapacity",
            "Status",
        ),
        "core.status",
    ),
    **dict.fromkeys(("UsageSnapshot", "UsageSummary"), "core.usage"),
    **dict.fromkeys(("PaceProgress", "Queue"), "core.waiting"),
    "limited": "decorator",
    "LimiterInfo": "infra.discovery",
    "StackOptions": "infra.options",
    "Lease": "_async.limiter.lease",
    "LeaseEntry": "_async.limiter.lease_facts",
    "RateLimiter": "_async.limiter.limiter",
    "Repository": "_async.repository",
    "RepositoryBuilder": "_async.builder",
    "RepositoryProtocol": "_async.protocol",
    "SyncLease": "_sync.limiter.lease",
    "SyncRateLimiter": "_sync.limiter.limiter",
    "SyncRepository": "_sync.repository",
    "SyncRepositoryBuilder": "_sync.builder",
    "SyncRepositoryProtocol": "_sync.protocol",
    **dict.fromkeys(("SnapshotFormatter", "UsageFormatter", "format_usage_snapshots"), "visualization.factory"),
    "renew_clients": "process",
    "HtmlFormatter": "visualization.page",
    "PlotFormatter": "visualization.plot",
    **dict.fromkeys(("CsvFormatter", "TableFormatter"), "visualization.table"),
    **dict.fromkeys(
        (
            "IncompatibleSchemaError",
            "KindNotAllowedError",
            "UnknownKindError",
            "VersionError",
            "VersionMismatchError",
        ),
        "core.version_errors",
    ),
}
"""The modules of all public names but most errors, which are in ``core.errors``."""

__all__ = [
    "ALL_RESOURCES",
    "Also",
    "AmountExceedsCapacityError",
    "AuditAction",
    "AuditEvent",
    "BackendCapabilities",
    "Balance",
    "BucketState",
    "CacheStats",
    "Clock",
    "CorruptItemError",
    "CsvFormatter",
    "Entity",
    "EntityBlock",
    "EntityBlockedError",
    "EntityCapacity",
    "EntityError",
    "EntityExistsError",
    "EntityHasChildrenError",
    "EntityNotFoundError",
    "HtmlFormatter",
    "IncompatibleSchemaError",
    "InfrastructureError",
    "InfrastructureNotFoundError",
    "InvalidIdentifierError",
    "InvalidNameError",
    "KindNotAllowedError",
    "Lease",
    "LeaseEntry",
    "LeaseExpiredError",
    "Limit",
    "LimitName",
    "LimitStatus",
    "LimiterInfo",
    "LocalAwsError",
    "MissingExtraError",
    "Namespace",
    "NamespaceNotFoundError",
    "NamespaceStateError",
    "NoLimitsInForceError",
    "OnUnavailable",
    "PaceProgress",
    "PlotFormatter",
    "Queue",
    "RateLimitError",
    "RateLimitExceeded",
    "RateLimiter",
    "RateLimiterUnavailable",
    "Repository",
    "RepositoryBuilder",
    "RepositoryClosedError",
    "RepositoryProtocol",
    "ResolvedLimits",
    "ResourceCapacity",
    "SnapshotFormatter",
    "StackAlreadyExistsError",
    "StackCreationError",
    "StackOperationError",
    "StackOptions",
    "Status",
    "StorageError",
    "SyncLease",
    "SyncRateLimiter",
    "SyncRepository",
    "SyncRepositoryBuilder",
    "SyncRepositoryProtocol",
    "SystemClock",
    "TableFormatter",
    "TooManyBucketsError",
    "UnknownKindError",
    "UnsupportedByBackendError",
    "UsageFormatter",
    "UsageSnapshot",
    "UsageSummary",
    "ValidationError",
    "VersionError",
    "VersionMismatchError",
    "ZAELimiterError",
    "__version__",
    "consume_from_usage",
    "format_usage_snapshots",
    "limited",
    "money",
    "renew_clients",
    "usd",
]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a public name on first use; ``__version__`` is read from the installed distribution."""
        if name == "__version__":
            globals()[name] = import_module("importlib.metadata").version("zae-limiter")
            return globals()[name]
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_MODULES.get(name, 'core.errors')}"), name)
        # Python calls this function only for missing names, so a stored name is looked up once.
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        """List the public names."""
        return sorted(__all__)
