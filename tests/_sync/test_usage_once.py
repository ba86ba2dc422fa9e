"""Usage is counted once, even if counting is interrupted, repeated, or done concurrently."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import Limit, SyncRateLimiter, RateLimiterUnavailable, SyncRepository
from zae_limiter._sync.store.usage import UsageStore
from zae_limiter.core.outcome import Cancelled, Unavailable
from zae_limiter.schema import namespace_item
from zae_limiter.schema.operations import Delete, Update

from .clients import Wrapped, another, everything_in, take

LIMITS = [Limit.per_minute("rpm", 100_000)]


@pytest.fixture
def limiter(repo):
    made = SyncRateLimiter(repo)
    made.set_system_defaults(LIMITS)
    return made


class ProcessEndedError(Exception):
    """The process that counts ends here."""


class InterruptedTable(Wrapped):
    """A table whose client ends after ``left`` steps of counting, before or after the step is carried out."""

    def __init__(self, table):
        super().__init__(table)
        self.log = self
        self.together = None
        self.left = 10**9
        self.between = None

    def step(self):
        self.left -= 1
        if self.left < 0:
            raise ProcessEndedError

    def batch_get(self, keys, *, consistent=False, until_s=None):
        self.step()
        return super().batch_get(keys, consistent=consistent, until_s=until_s)

    def transact(self, operations, token, *, until_s=None):
        self.step()
        if self.between is not None:
            self.between()
        outcome = super().transact(operations, token, until_s=until_s)
        self.step()
        return outcome

    def log_changes(self, start):
        self.step()
        after = self.table.log.log_changes(start)
        self.step()
        return after

    def changes(self, after, limit):
        self.step()
        return self.table.log.changes(after, limit)

    def trim(self, up_to):
        self.step()
        self.table.log.trim(up_to)
        self.step()


def use(limiter, times=3):
    """Let three entities use something."""
    for number in range(3):
        for _ in range(times):
            take(limiter, {"rpm": 1}, f"user-{number}")


def used(repo):
    """Return the sums of all windows of each entity."""
    found = [(repo.get_usage_snapshots(f"user-{number}"))[0] for number in range(3)]
    return [[one.counters["rpm"] for one in snapshots] for snapshots in found]


def test_counting_interrupted_at_any_step_is_resumed_correctly(repo, limiter, monkeypatch):
    """The next count continues from there, and the sums are correct."""
    monkeypatch.setattr("zae_limiter_aggregator.plan.SNAPSHOTS_AT_ONCE", 2)
    monkeypatch.setattr("zae_limiter._sync.store.usage._CHANGES_AT_ONCE", 2)
    expected = ended = 0
    while True:
        use(limiter)
        expected += 3
        other = another(repo, InterruptedTable)
        other.scope.table.left = ended
        try:
            UsageStore(other.scope).count()
        except ProcessEndedError:
            ended += 1
            if ended % 2:
                assert [[expected] * 3] * 3 == used(repo)
        else:
            break

    assert ended > 15
    assert [[expected] * 3] * 3 == used(repo)


def test_two_clients_that_count_concurrently_count_everything_once(repo, limiter):
    """The slower client sees what the faster one has counted."""
    use(limiter)
    other = another(repo, InterruptedTable)
    others = []

    def between():
        if not others:
            others.append(used(repo))

    other.scope.table.between = between

    assert [[3] * 3] * 3 == used(other)
    assert [[[3] * 3] * 3] == others
    assert [[3] * 3] * 3 == used(repo)


def test_consumption_during_a_count_is_counted_once_by_the_next(repo, limiter):
    """It is neither lost nor counted twice."""
    use(limiter)
    other = another(repo, InterruptedTable)

    def between():
        use(limiter, 1)

    other.scope.table.between = between
    UsageStore(other.scope).count()

    (total,) = {sum(sums) for sums in used(repo)}
    buckets = [item for key, item in everything_in(repo).items() if "BUCKET#" in key[0]]
    assert {total // 3 * 1000} == {bucket["b_rpm_tc"] for bucket in buckets}


def test_counting_on_an_unavailable_table_raises_and_loses_nothing(repo, limiter):
    """The log is not trimmed."""
    use(limiter)

    class UnavailableTable(Wrapped):
        def transact(self, operations, token, *, until_s=None):
            return Unavailable(ConnectionError("unavailable"), ambiguous=False)

    class ContendedTable(Wrapped):
        def transact(self, operations, token, *, until_s=None):
            return Cancelled((None,) * len(operations))

    for wrap in (UnavailableTable, ContendedTable):
        with pytest.raises(RateLimiterUnavailable):
            another(repo, wrap).get_usage_snapshots("user-1")
    assert [[3] * 3] * 3 == used(repo)


def test_usage_of_a_table_without_a_log_is_only_read(repo, limiter):
    """A deployed table is counted by the aggregator."""
    use(limiter)

    class DeployedTable(Wrapped):
        def __init__(self, table):
            super().__init__(table)
            self.log = None

    assert [[]] * 3 == used(another(repo, DeployedTable))
    used(repo)
    assert [[3] * 3] * 3 == used(another(repo, DeployedTable))


@pytest.mark.parametrize("purged", ["gone", "purging", "between"])
def test_usage_of_a_purged_namespace_is_not_counted(repo, limiter, purged):
    """This holds even if it is purged between the read and the write."""
    use(limiter)
    key = namespace_item.reverse_key(repo.scope.namespace_id)
    other = another(repo, InterruptedTable)

    def purge():
        if purged == "purging":
            repo.scope.table.write(Update(key, set={"status": "purging"}))
        else:
            repo.scope.table.write(Delete(key))

    if purged == "between":
        other.scope.table.between = purge
    else:
        purge()
    UsageStore(other.scope).count()

    assert [] == [key for key in everything_in(repo) if key[1].startswith("#USAGE#")]
    assert [] == repo.scope.table.log.changes(0, 10)


def test_two_clients_of_one_file_return_the_same_usage(tmp_path, clock):
    """Each has its own connection and cache."""
    url = f"sqlite:///{tmp_path / 'limiter.db'}"
    with SyncRepository.open(url, clock=clock) as one, SyncRepository.open(url, clock=clock) as two:
        one.set_system_defaults(LIMITS)
        limiters = [SyncRateLimiter(one), SyncRateLimiter(two)]
        for hour in range(3):
            for limiter in limiters:
                use(limiter)
            clock.advance(3_600_000 * (hour < 2))
            if hour == 1:
                assert [12] * 3 == [sums[0] for sums in used(one)]

        assert used(one) == used(two)
        assert 18 == (two.get_usage_summary("user-0")).total["rpm"]
