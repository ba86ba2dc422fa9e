"""Count the usage of buckets, from the stream of a deployed table or from the log of an embedded one.

Public names are imported on first use: counting for an embedded table needs no AWS client.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zae_limiter_aggregator.batch_processor import BatchReport as ProcessResult
    from zae_limiter_aggregator.handler import handler
    from zae_limiter_aggregator.records import BucketChange as ParsedBucketRecord
    from zae_limiter_aggregator.records import ConsumptionDelta, ParsedBucketLimit

__all__ = ["ConsumptionDelta", "ParsedBucketLimit", "ParsedBucketRecord", "ProcessResult", "handler"]

_PLACES = {
    "ConsumptionDelta": ("records", "ConsumptionDelta"),
    "ParsedBucketLimit": ("records", "ParsedBucketLimit"),
    "ParsedBucketRecord": ("records", "BucketChange"),
    "ProcessResult": ("batch_processor", "BatchReport"),
}

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        """Import a public name on first use."""
        if name == "handler":
            # The module itself, which can be called. Importing it sets this name too, so both must be the same.
            return import_module(f"{__name__}.handler")
        if name not in _PLACES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module, value = _PLACES[name]
        return getattr(import_module(f"{__name__}.{module}"), value)

    def __dir__() -> list[str]:
        """List the public names."""
        return sorted(__all__)
