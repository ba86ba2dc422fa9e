"""The level of a quota: what is left of its period, and when it is full again."""

from zae_limiter.core import quota
from zae_limiter.core.bucket import LimitShare, OfShare, TimeBounds
from zae_limiter.core.calendar import CalendarSchedule, period_at
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.quota import QuotaView
from zae_limiter.core.reserve import LevelAbove, Reserve, level_above


@dataclass(slots=True)
class QuotaLevel(OfShare):
    """One quota, on one shard, as the next request would find it. ``qk`` is the number that is stored."""

    share: LimitShare
    qk: int

    @property
    def is_exact(self) -> bool:
        """Whether the wait is exact if no other request takes from the limit."""
        return True

    def in_use_milli(self, now: TimeBounds) -> int | None:
        """Return None: a quota has no slots."""
        return None

    def available_milli(self, now: TimeBounds) -> int:
        """Return what is left, in thousandths."""
        return self._view(now).level_milli

    def less(self, milli: int, at: TimeBounds) -> "QuotaLevel":
        """Return the quota after a take of ``milli`` thousandths."""
        seen = self._view(at)
        return QuotaLevel(self.share, seen.full - seen.spent - milli // 1000) if milli else self

    def full_ms(self) -> int:
        """Return the millisecond at which the quota is full if nothing is taken from it."""
        epoch = quota.epoch_of(self.qk)
        schedule = self._schedule
        seen = QuotaView(self.qk, epoch, self._capacity, schedule.tolerance)
        return quota.renews_s(seen, schedule, epoch // 2) * 1000 if seen.spent else epoch * 500

    def wait_ms(self, needed_milli: int, now: TimeBounds) -> int:
        """Return the milliseconds until the next period, 0 if enough is left."""
        if not needed_milli or self.available_milli(now) >= needed_milli:
            return 0
        return max(0, quota.renews_s(self._view(now), self._schedule, now[0] // 1000) * 1000 - now[0])

    def resets_s(self, now: TimeBounds) -> int | None:
        """Return when the quota is full again, in seconds since the epoch."""
        return quota.renews_s(self._view(now), self._schedule, now[0] // 1000)

    def above(self, reserve: Reserve) -> LevelAbove:
        """Return what the quota has above a reserve."""
        return level_above(self, self.share, reserve)

    @property
    def _capacity(self) -> int:
        return self.share.capacity_milli // 1000

    @property
    def _schedule(self) -> CalendarSchedule:
        schedule = self.share.limit.schedule
        assert schedule is not None, "a quota has a schedule"
        return schedule

    def _view(self, now: TimeBounds) -> QuotaView:
        return quota.view_at(self.qk, self._capacity, self._schedule, now[0] // 1000)


def full_quota(share: LimitShare, now: TimeBounds) -> QuotaLevel:
    """Return the level of a quota that does not exist yet, as it would be created."""
    schedule = share.limit.schedule
    assert schedule is not None, "a quota has a schedule"
    return QuotaLevel(share, quota.created(period_at(schedule, now[1] // 1000)[0], 0))
