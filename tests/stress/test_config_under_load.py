"""A limit that is changed while real processes take from its bucket: all follow in the cache's time and a second."""

import time
from collections.abc import Callable
from pathlib import Path

from tests.stress.fleet import fleet_of, most_allowed, most_in_any_window
from tests.stress.worker import BUCKET
from zae_limiter import Limit, SyncRepository

HIGH = Limit.per_second("rps", 1_000)
LOW = Limit.per_second("rps", 100)
TTL_S = 1
SETTLED_NS = (TTL_S + 1) * 1_000_000_000
SECONDS = 8
LOWERED_AT_S = 1.5
RAISED_AT_S = 5


def change(url: str, make: Callable[[SyncRepository], None]) -> int:
    """Change stored limits as somebody else does, and return when it was done."""
    with SyncRepository.open(url, deadline_s=10) as admin:
        make(admin)
        return time.time_ns()


def test_a_limit_that_is_changed_under_load_counts_everywhere_soon(tmp_path: Path) -> None:
    """Lowered, then raised at another level: afterwards nobody is judged by what was, nor admitted beyond what is.

    And each change is one rebase of the bucket, however many race for it.
    """
    with fleet_of(tmp_path, HIGH) as fleet:
        fleet.start("threads", 4, 4, config_cache_ttl=TTL_S)
        begun_s = time.monotonic()
        fleet.work_for(SECONDS)
        time.sleep(LOWERED_AT_S)
        generation = fleet.stored("gn")
        lowered_ns = change(fleet.url, lambda admin: admin.set_system_defaults([LOW]))
        time.sleep(max(0, begun_s + RAISED_AT_S - time.monotonic()))
        raising_ns = time.time_ns()
        raised_ns = change(fleet.url, lambda admin: admin.set_limits(BUCKET[0], [HIGH]))
        codes = fleet.exit_codes()
        admissions, rejections = fleet.all_admissions(), fleet.all_rejections()

        while_low = [
            one for one in admissions if lowered_ns + SETTLED_NS <= one.before_ns and one.after_ns < raising_ns
        ]
        judged_low = {one.capacity for one in rejections if lowered_ns + SETTLED_NS <= one.before_ns < raising_ns}
        judged_high = {one.capacity for one in rejections if raised_ns + SETTLED_NS <= one.before_ns}
        while_high = [one for one in admissions if raised_ns + SETTLED_NS <= one.before_ns]
        high_s = (fleet.until_ns - raised_ns - SETTLED_NS) / 1e9

        assert [0] * 4 == codes
        assert {LOW.capacity} == judged_low
        assert judged_high <= {HIGH.capacity}
        assert 0 < most_in_any_window(while_low, LOW) <= most_allowed(while_low, LOW)
        assert most_in_any_window(admissions, HIGH) <= most_allowed(admissions, HIGH)
        assert len(while_high) >= HIGH.refill_rate * high_s / 2
        assert len(admissions) == fleet.consumed()
        assert 2 == fleet.stored("gn") - generation
