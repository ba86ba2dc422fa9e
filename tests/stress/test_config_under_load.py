"""After a limit changes, all processes use it within the cache time plus one second."""

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
    """Change stored limits from another client, and return the time at which it was done."""
    with SyncRepository.open(url, deadline_s=DEADLINE_S) as admin:
        make(admin)
        return time.time_ns()


def settled(fleet: Fleet, since_ns: int) -> list[Admission]:
    """Return the admissions from the time at which all processes must use a change."""
    return [one for one in fleet.all_admissions() if since_ns + SETTLED_NS <= one.before_ns]


def rejected(fleet: Fleet, since_ns: int) -> list[Rejection]:
    """Return the rejections from that time."""
    return [one for one in fleet.all_rejections() if since_ns + SETTLED_NS <= one.before_ns]


def exceeds(admissions: Sequence[Admission], limit: Limit) -> bool:
    """Return whether more was admitted than a limit allows."""
    return bool(admissions) and most_in_any_window(admissions, limit) > most_allowed(admissions, limit)


def test_limit_changed_under_load_is_in_force_in_every_process_soon(tmp_path: Path) -> None:
    """After a lower and then a higher limit, no request is judged by the old one or admitted beyond the new one.

    Each change is one rebase of the bucket, however many processes race for it.
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
