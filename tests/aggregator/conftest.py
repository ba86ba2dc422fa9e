"""Settings that all tests of the aggregator share."""

import pytest

from zae_limiter_aggregator import transport


@pytest.fixture(autouse=True)
def long_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Use long socket timeouts, since an engine on a busy machine may be slow."""
    monkeypatch.setattr(transport, "_CONNECT_S", 60)
    monkeypatch.setattr(transport, "_READ_S", 60)
