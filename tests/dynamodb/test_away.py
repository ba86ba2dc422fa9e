"""A store that is away: an answer within the deadline, as the caller chose, and all is well once it is back."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.dynamodb.engines import free_port, fresh_table_name
from tests.dynamodb.gate import Gate
from tests.dynamodb.ledgers import RESOURCE, quick_engine, table_url
from tests.dynamodb.stage import CONSUME, LIMITS
from tests.dynamodb.trees import KINDS, tree
from zae_limiter import RateLimiterUnavailable

DEADLINE_S = 1.0
DEFAULT_S = 1.0
PATIENT_S = 30.0
GENEROUS = 20
USER, CHILD, PARENT, STRANGER = "user-1", "child-1", "parent-1", "stranger-1"
NO_HOST = "no-such-host.invalid"
NOWHERE = f"http://{NO_HOST}:8000"

WAYS: dict[str, Callable[[Gate], None]] = {
    "refused": Gate.refuse,
    "silent": lambda gate: gate.silence(cut=False),
    "cut off": lambda gate: gate.silence(cut=True),
    "backlog full": Gate.ignore,
}


class Site:
    """A table behind a gate, and clients that have used it while it was open."""

    def __init__(self, kind: str, stack: ExitStack) -> None:
        self.gate = stack.enter_context(Gate(quick_engine().url))
        self.url = table_url(fresh_table_name(), self.gate.url)
        self.tree = stack.enter_context(tree(kind))
        self._stack = stack
        self.limiter().set_system_defaults(LIMITS)

    def limiter(self, deadline_s: float | None = PATIENT_S) -> Any:
        """A client; None leaves the deadline as it is by default."""
        settings = {} if deadline_s is None else {"deadline_s": deadline_s}
        repo = self.tree.open(self.url, **settings)
        self._stack.callback(repo.close)
        return self.tree.limiter(repo)

    def open(self, limiter: Any) -> None:
        """The store is back, and calls have plenty of time again."""
        self.gate.open()
        hurry(limiter, PATIENT_S)

    def moved(self, limiter: Any, endpoint_url: str) -> Any:
        """The same client, of a store that is looked for elsewhere."""
        repo = self.tree.elsewhere(limiter.repository, endpoint_url, DEADLINE_S)
        self._stack.callback(repo.close)
        return self.tree.limiter(repo)


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(request.param, stack)


@pytest.fixture(params=WAYS.values(), ids=WAYS)
def shut(request: pytest.FixtureRequest) -> Callable[[Gate], None]:
    shutting: Callable[[Gate], None] = request.param
    return shutting


def take(limiter: Any, entity_id: str = USER, choice: str = "block") -> bool:
    """Take; whether it was let through unlimited."""
    with limiter.acquire(entity_id, RESOURCE, CONSUME, on_unavailable=choice) as lease:
        return bool(lease.degraded)


def refused(limiter: Any, entity_id: str = USER) -> RateLimiterUnavailable:
    with pytest.raises(RateLimiterUnavailable) as caught:
        take(limiter, entity_id)
    return caught.value


def hurry(limiter: Any, deadline_s: float = DEADLINE_S) -> None:
    """What is begun from now on has so long."""
    limiter._client._deadline_s = deadline_s


def timed(act: Callable[[], object]) -> float:
    began_s = time.monotonic()
    act()
    return time.monotonic() - began_s


@pytest.mark.parametrize("entity_id", [USER, STRANGER])
def test_an_engine_that_dies_is_noticed_in_time_and_again_when_it_is_back(
    site: Site, shut: Callable[[Gate], None], entity_id: str
):
    """Blocked or let through as the caller says, for buckets that are known and for those that are not."""
    limiter = site.limiter()
    take(limiter)
    shut(site.gate)
    hurry(limiter)
    errors = []
    blocked_s = timed(lambda: errors.append(refused(limiter, entity_id)))
    degraded = []
    allowed_s = timed(lambda: degraded.append(take(limiter, entity_id, "allow")))
    site.open(limiter)

    assert blocked_s < DEADLINE_S * GENEROUS
    assert allowed_s < DEADLINE_S * GENEROUS
    assert isinstance(errors[0].cause, OSError)
    assert str(errors[0].cause)
    assert [True] == degraded
    assert [False] * 10 == [take(limiter, entity_id) for _ in range(10)]


def test_a_cascade_is_answered_in_time(site: Site, shut: Callable[[Gate], None]):
    """Child and parent share the deadline."""
    limiter = site.limiter()
    limiter.create_entity(PARENT)
    limiter.create_entity(CHILD, parent_id=PARENT, cascade=True)
    take(limiter, CHILD)
    shut(site.gate)
    hurry(limiter)
    took_s = timed(lambda: refused(limiter, CHILD))
    site.open(limiter)

    assert took_s < DEADLINE_S * GENEROUS
    assert not take(limiter, CHILD)


@pytest.mark.parametrize("way", ["silent", "backlog full"])
def test_by_default_the_answer_comes_within_a_second(site: Site, way: str):
    """Not after the 25 s and more of the usual clients."""
    limiter = site.limiter(None)
    default_s = limiter._client._deadline_s
    hurry(limiter, PATIENT_S)
    take(limiter)
    WAYS[way](site.gate)
    hurry(limiter, default_s)

    assert DEFAULT_S == default_s
    assert timed(lambda: refused(limiter)) < DEFAULT_S * GENEROUS


def test_leaving_a_lease_is_answered_in_time(site: Site, shut: Callable[[Gate], None]):
    """What is owed and cannot be charged is an error; what cannot be given back is none."""
    limiter = site.limiter()

    def leave_with(change: int) -> None:
        with limiter.acquire(USER, RESOURCE, CONSUME, on_unavailable="block") as lease:
            lease.adjust(tpm=change)
            shut(site.gate)
            hurry(limiter)

    def owe() -> None:
        with pytest.raises(RateLimiterUnavailable):
            leave_with(5)

    owed_s = timed(owe)
    site.open(limiter)
    given_s = timed(lambda: leave_with(-5))

    assert owed_s < DEADLINE_S * GENEROUS
    assert given_s < DEADLINE_S * GENEROUS


def test_is_available_says_so(site: Site, shut: Callable[[Gate], None]):
    """It answers, and never raises."""
    limiter = site.limiter()
    before = limiter.is_available(PATIENT_S)
    shut(site.gate)
    while_away = limiter.is_available(DEADLINE_S)
    site.gate.open()

    assert [True, False, True] == [before, while_away, limiter.is_available(PATIENT_S)]


@pytest.mark.parametrize("entity_id", [USER, STRANGER])
def test_a_name_that_does_not_exist_is_noticed_in_time(site: Site, entity_id: str):
    """Of a store that was there before, too; and the error says that it is the name."""
    limiter = site.limiter()
    take(limiter)
    moved = site.moved(limiter, NOWHERE)
    errors = []
    took_s = timed(lambda: errors.append(refused(moved, entity_id)))

    assert took_s < DEADLINE_S * GENEROUS
    assert isinstance(errors[0].cause, OSError)
    assert take(moved, entity_id, "allow")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("host", [NO_HOST, "127.0.0.1"])
def test_opening_what_is_not_there_fails_in_time(kind: str, host: str):
    """A name that does not exist, a port nobody listens on: the error says which."""
    url = table_url(fresh_table_name(), f"http://{host}:{free_port()}")
    errors = []

    def open_it() -> None:
        with pytest.raises(RateLimiterUnavailable) as caught, tree(kind) as opened:
            opened.open(url, deadline_s=DEADLINE_S)
        errors.append(caught.value)

    # Administration has five times the deadline.
    assert timed(open_it) < DEADLINE_S * 5 * GENEROUS
    assert isinstance(errors[0].cause, OSError)
