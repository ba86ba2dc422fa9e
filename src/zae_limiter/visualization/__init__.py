"""Format usage: snapshots in, text out. Nothing here waits, reads a clock or depends on a terminal."""

from zae_limiter.visualization.factory import SnapshotFormatter, UsageFormatter, format_usage_snapshots, make_formatter

__all__ = ["SnapshotFormatter", "UsageFormatter", "format_usage_snapshots", "make_formatter"]
