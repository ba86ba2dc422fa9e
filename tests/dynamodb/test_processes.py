"""Real processes on one bucket of a real engine: every acknowledged take is counted, within the limit."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dynamodb.engines import Engine, EngineAbsentError, running
from tests.stress.fleet import Fleet, most_allowed, most_in_any_window
from zae_limiter import Limit, SyncRepository

SECONDS = 2.0
PROCESSES = 4
EACH = 4
DEADLINE_S = 60.0


class EngineFleet(Fleet):
    """Processes that take from one bucket on an engine."""

    def __init__(self, directory: Path, limit: Limit, url: str) -> None:
        super().__init__(directory, limit)
        self.url = url
        with SyncRepository.open(f"{url}&create=true", deadline_s=DEADLINE_S) as repo:
            repo.set_system_defaults([limit])


def fastest() -> Engine:
    """Return the installed engine with the highest write rate."""
    try:
        return running("dynoxide")
    except EngineAbsentError:
        pass
    try:
        return running("ministack")
    except EngineAbsentError as absent:
        pytest.skip(str(absent))


@pytest.fixture
def url(table_name: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """The URL for the processes, with keys in the environment that are not checked."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "engine")
    return f"dynamodb://{table_name}?region=us-east-1&endpoint_url={fastest().url}"


@contextlib.contextmanager
def fleet_of(directory: Path, limit: Limit, url: str) -> Iterator[Fleet]:
    """Yield a fleet that is ended afterwards."""
    fleet = EngineFleet(directory, limit, url)
    try:
        yield fleet
    finally:
        fleet.stop()


@pytest.mark.parametrize("kind", ["tasks", "threads"])
def test_processes_share_a_bucket_within_its_limit(tmp_path: Path, url: str, kind: str) -> None:
    """The count equals what was admitted, and is within the limit."""
    limit = Limit.per_second("rps", 100)
    with fleet_of(tmp_path, limit, url) as fleet:
        fleet.start(kind, PROCESSES, EACH)
        fleet.work_for(SECONDS)
        # The last process that learns the server's time is the first to be admitted then.
        fleet.work_until(lambda: all(fleet.admissions(number) for number in range(PROCESSES)))
        codes = fleet.exit_codes()
        admissions = fleet.all_admissions()

        assert [0] * PROCESSES == codes
        assert len(admissions) == fleet.consumed()
        assert most_in_any_window(admissions, limit) <= most_allowed(admissions, limit)
        assert all(fleet.admissions(number) for number in range(PROCESSES))


def test_processes_on_an_unlimited_bucket_lose_no_take(tmp_path: Path, url: str) -> None:
    """They take as fast as they can, and nothing is rejected."""
    limit = Limit.custom("rps", 10**6, 1, 3600)
    with fleet_of(tmp_path, limit, url) as fleet:
        fleet.start("tasks", PROCESSES, EACH)
        fleet.work_for(SECONDS)

        assert [0] * PROCESSES == fleet.exit_codes()
        assert len(fleet.all_admissions()) == fleet.consumed()
        assert [] == fleet.all_rejections()
