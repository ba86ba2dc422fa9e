"""A limit that is changed while real processes take from its bucket: all follow in the cache's time and a second."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from tests.stress.fleet import Admission, Fleet, Rejection, fleet_of, most_allowed, most_in_any_window, offered
from tests.stress.worker import BUCKET, DEADLINE_S
from zae_limiter import Limit, SyncRepository

HIGH = Limit.per_second("rps", 1_000)
LOW = Limit.per_second("rps", 100)
TTL_S = 1
SETTLED_S = TTL_S + 1
SETTLED_NS = SETTLED_S * 1_000_000_000
LOW_S = 1.5
HIGH_S = 1.0


def change(url: str, make: Callable[[SyncRepository], None]) -> int:
    """Change stored limits as somebody else does, and return when it was done."""
    with SyncRepository.open(url, deadline_s=DEADLINE_S) as admin:
        make(admin)
        return time.time_ns()


def settled(fleet: Fleet, since_ns: int) -> list[Admission]:
    """What was admitted when a change had been made for as long as all need to follow it."""
    return [one for one in fleet.all_admissions() if since_ns + SETTLED_NS <= one.before_ns]


def rejected(fleet: Fleet, since_ns: int) -> list[Rejection]:
    """What was rejected then."""
    return [one for one in fleet.all_rejections() if since_ns + SETTLED_NS <= one.before_ns]


def exceeds(admissions: Sequence[Admission], limit: Limit) -> bool:
    """Whether more was admitted than a limit allows."""
    return bool(admissions) and most_in_any_window(admissions, limit) > most_allowed(admissions, limit)


def test_a_limit_that_is_changed_under_load_counts_everywhere_soon(tmp_path: Path) -> None:
    """Lowered, then raised at another level: afterwards nobody is judged by what was, nor admitted beyond what is.

    And each change is one rebase of the bucket, however many race for it.
    """
    with fleet_of(tmp_path, HIGH) as fleet:
        fleet.start("threads", 4, 4, config_cache_ttl=TTL_S)
        fleet.begin()
        fleet.work_until(lambda: len(fleet.all_admissions()) > HIGH.capacity)
        generation = fleet.stored("gn")
        lowered_ns = change(fleet.url, lambda admin: admin.set_system_defaults([LOW]))
        time.sleep(SETTLED_S + LOW_S)
        fleet.work_until(lambda: settled(fleet, lowered_ns) and rejected(fleet, lowered_ns))
        raising_ns = time.time_ns()
        raised_ns = change(fleet.url, lambda admin: admin.set_limits(BUCKET[0], [HIGH]))
        time.sleep(SETTLED_S + HIGH_S)
        fleet.work_until(lambda: exceeds(settled(fleet, raised_ns), LOW))
        codes = fleet.exit_codes()
        admissions = fleet.all_admissions()

        while_low = [one for one in settled(fleet, lowered_ns) if one.after_ns < raising_ns]
        while_high = settled(fleet, raised_ns)
        rejected_low = [one for one in rejected(fleet, lowered_ns) if one.before_ns < raising_ns]
        rejected_high = rejected(fleet, raised_ns)

        assert [0] * 4 == codes
        assert {LOW.capacity} == {one.capacity for one in rejected_low}
        assert {one.capacity for one in rejected_high} <= {HIGH.capacity}
        assert 0 < most_in_any_window(while_low, LOW) <= most_allowed(while_low, LOW)
        assert most_in_any_window(admissions, HIGH) <= most_allowed(admissions, HIGH)
        assert exceeds(while_high, LOW)
        assert not rejected_high or len(while_high) >= (offered(rejected_high, HIGH) - HIGH.capacity) / 2
        assert len(admissions) == fleet.consumed()
        assert 2 == fleet.stored("gn") - generation
