"""Reports next to traffic: a report yields to the loop between slices of its work, however large it is."""

import asyncio
import gc
import sys

import pytest

from zae_limiter import Limit, RateLimiter, Repository

LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)]
ITEMS = 600
MOST_CALLS = 24_000
"""Maximum of calls between two turns of the loop: a slice of 50 to 100 items, a tenth of all items."""

MOST_SURVIVORS = 300
"""A page of 100 snapshots and what leads to it. Counting 600 buckets once kept 580, and more of more buckets."""


class CallCounter:
    """Counts the calls of Python and C functions between two turns of the running loop."""

    def __init__(self) -> None:
        self.most = 0
        self._calls = 0

    async def __aenter__(self):
        self._ticker = asyncio.create_task(self._tick())
        await asyncio.sleep(0)
        sys.setprofile(self._count)
        return self

    async def __aexit__(self, *_):
        sys.setprofile(None)
        self.most = max(self.most, self._calls)
        self._ticker.cancel()

    async def _tick(self):
        while True:
            self.most = max(self.most, self._calls)
            self._calls = 0
            await asyncio.sleep(0)

    def _count(self, frame, event, argument):
        if event in ("call", "c_call"):
            self._calls += 1


class Survivors:
    """The most objects, beyond those before, that young garbage collections find alive and go on tracking.

    The collector runs every few objects, so that it sees each step of a short report. Dictionaries do not count: those
    of a table are tracked again when they get new items.
    """

    def __init__(self):
        self.most = 0

    def __enter__(self):
        gc.collect()
        self._before = self._tracked()
        self._thresholds = gc.get_threshold()
        gc.callbacks.append(self._note)
        gc.set_threshold(50, 1, 1_000_000)
        return self

    def __exit__(self, *_):
        gc.set_threshold(*self._thresholds)
        gc.callbacks.remove(self._note)

    def _note(self, phase, collection):
        if phase == "stop" and collection["generation"] == 1:
            self.most = max(self.most, self._tracked() - self._before)

    def _tracked(self):
        # Without a loop in Python, since it is called after every second young collection.
        kinds = list(map(type, gc.get_objects()))
        return len(kinds) - kinds.count(dict)


@pytest.fixture(params=["memory", "sqlite"])
async def repo(request, tmp_path):
    url = "memory://" if request.param == "memory" else f"sqlite:///{tmp_path / 'limiter.db'}"
    opened = await Repository.open(url)
    await opened.set_system_defaults(LIMITS)
    yield opened
    await opened.close()


async def use(repo, buckets):
    limiter = RateLimiter(repo)
    for entity_id, resource in buckets:
        async with limiter.acquire(entity_id, resource, {"rpm": 1, "tpm": 10}):
            pass


async def calls_in_a_slice(report):
    async with CallCounter() as counted:
        await report()
    return counted.most


async def survivors_of(report):
    with Survivors() as counted:
        await report()
    return counted.most


def entities():
    return [(f"user-{number:04}", "gpt-4") for number in range(ITEMS)]


async def test_capacity_of_a_resource_with_many_entities_is_reported_in_slices(repo):
    """The buckets of a resource are read and added up a few at a time."""
    await use(repo, entities())

    assert await calls_in_a_slice(lambda: repo.get_resource_capacity("gpt-4", "rpm")) <= MOST_CALLS
    assert await calls_in_a_slice(lambda: repo.get_resource_capacity("gpt-4", "rpm", True)) <= MOST_CALLS


async def test_usage_of_many_buckets_is_counted_and_listed_in_slices(repo):
    """Consumption is logged, counted into snapshots and read back a few items at a time."""
    await use(repo, entities())

    assert await calls_in_a_slice(lambda: repo.get_usage_snapshots(resource="gpt-4", limit=2 * ITEMS)) <= MOST_CALLS
    assert await calls_in_a_slice(lambda: repo.get_usage_snapshots(limit=2 * ITEMS)) <= MOST_CALLS


async def test_usage_of_many_buckets_is_summed_in_slices(repo):
    """Snapshots are added up while they are read, and none is kept."""
    await use(repo, entities())

    assert await calls_in_a_slice(lambda: repo.get_usage_summary(resource="gpt-4")) <= MOST_CALLS
    assert await calls_in_a_slice(lambda: repo.get_usage_summary(window_type="daily")) <= MOST_CALLS


async def test_usage_of_more_buckets_than_the_log_keeps_is_counted(monkeypatch):
    """Logged changes are counted before more are logged, so that a bounded log drops nothing."""
    monkeypatch.setattr("zae_limiter.tables.memory._LONGEST_LOG", ITEMS // 4)
    async with await Repository.open("memory://") as repo:
        await repo.set_system_defaults(LIMITS)
        await use(repo, entities())

        assert {"rpm": ITEMS, "tpm": 10 * ITEMS} == (await repo.get_usage_summary(resource="gpt-4")).total


async def test_buckets_of_an_entity_with_many_resources_are_listed_in_slices(repo):
    """The buckets of an entity are read a few at a time."""
    await use(repo, [("user-1", f"model-{number:04}") for number in range(ITEMS)])

    assert await calls_in_a_slice(lambda: repo.get_buckets("user-1")) <= MOST_CALLS
    assert await calls_in_a_slice(lambda: repo.get_balances("user-1")) <= MOST_CALLS


async def test_lists_of_many_entities_are_read_in_slices(repo):
    """Children, entities and audit events are read page by page."""
    await repo.create_entity("parent")
    for number in range(ITEMS // 2):
        await repo.create_entity(f"user-{number:04}", parent_id="parent")
        await repo.set_limits(f"user-{number:04}", LIMITS, "gpt-4")

    assert await calls_in_a_slice(lambda: repo.get_children("parent")) <= MOST_CALLS
    assert await calls_in_a_slice(lambda: repo.list_entities_with_custom_limits("gpt-4")) <= MOST_CALLS
    assert await calls_in_a_slice(lambda: repo.get_audit_events("user-0001")) <= MOST_CALLS
    assert await calls_in_a_slice(lambda: repo.list_entities()) <= MOST_CALLS
    assert await calls_in_a_slice(lambda: repo.get_audit_events(limit=2 * ITEMS)) <= MOST_CALLS


async def test_namespace_with_many_buckets_is_purged_in_slices(repo):
    """Items are found and removed a few at a time."""
    await repo.register_namespace("team")
    team = await repo.namespace("team")
    await team.set_system_defaults(LIMITS)
    await use(team, entities())
    deleted = await repo.delete_namespace("team")

    assert await calls_in_a_slice(lambda: repo.purge_namespace(deleted.id)) <= MOST_CALLS


REPORTS = {
    "capacity": (lambda repo: repo.get_resource_capacity("gpt-4", "rpm"), ITEMS),
    "capacity of parents": (lambda repo: repo.get_resource_capacity("gpt-4", "rpm", True), ITEMS),
    "snapshots": (lambda repo: repo.get_usage_snapshots(resource="gpt-4", limit=10), 10),
    "snapshots of a namespace": (lambda repo: repo.get_usage_snapshots(limit=10), 10),
    "summary of a namespace": (lambda repo: repo.get_usage_summary(), 0),
    "summary": (lambda repo: repo.get_usage_summary(resource="gpt-4"), 0),
    "status": (lambda repo: repo.get_status(), 0),
}
"""The reports, and how many values the answer of each has."""


@pytest.mark.parametrize("name", REPORTS)
async def test_report_keeps_few_objects_besides_its_answer(repo, name):
    """Objects that outlive young collections make a full one due, which stops all traffic of a large process."""
    report, values = REPORTS[name]
    await use(repo, entities())

    assert await survivors_of(lambda: report(repo)) <= values + MOST_SURVIVORS
