"""When a client does something about a shard that takes no writes for now."""

import pytest

from zae_limiter.core.sharding import may_relieve


@pytest.mark.parametrize(("last_ms", "may"), [(None, True), (1_000, False), (981, False), (980, True), (1_001, True)])
def test_a_client_looks_at_a_throttled_shard_now_and_then(last_ms: int | None, may: bool) -> None:
    """Of all the requests that a throttle hits at once one looks; a clock that was set back holds nobody up."""
    assert may == may_relieve(last_ms, 1_000)
