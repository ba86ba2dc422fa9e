"""What all tests of the aggregator share."""

import pytest

from zae_limiter_aggregator import transport


@pytest.fixture(autouse=True)
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """An engine on a busy machine may take its time."""
    monkeypatch.setattr(transport, "_CONNECT_S", 60)
    monkeypatch.setattr(transport, "_READ_S", 60)
