"""An unavailable store: calls end within the deadline as the caller chose, and work again afterwards."""

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest

from tests.dynamodb.engines import free_port, fresh_table_name
from tests.dynamodb.faulty_table import CONSUME, LIMITS
from tests.dynamodb.ledgers import RESOURCE, quick_engine, table_url
from tests.dynamodb.switchable_proxy import SwitchableProxy
from tests.dynamodb.trees import KINDS, tree
from zae_limiter import RateLimiterUnavailable

DEADLINE_S = 1.0
DEFAULT_S = 1.0
LONG_DEADLINE_S = 30.0
GENEROUS = 20
USER, CHILD, PARENT, NEW_USER = "user-1", "child-1", "parent-1", "new-user-1"
NO_HOST = "no-such-host.invalid"
NOWHERE = f"http://{NO_HOST}:8000"

FAILURES: dict[str, Callable[[SwitchableProxy], None]] = {
    "refused": SwitchableProxy.refuse,
    "silent": lambda proxy: proxy.silence(cut=False),
    "cut off": lambda proxy: proxy.silence(cut=True),
    "backlog full": SwitchableProxy.ignore,
}


class Site:
    """A table behind a switchable proxy, and clients that have used it while it was available."""

    def __init__(self, kind: str, stack: ExitStack) -> None:
        self.proxy = stack.enter_context(SwitchableProxy(quick_engine().url))
        self.url = table_url(fresh_table_name(), self.proxy.url)
        self.tree = stack.enter_context(tree(kind))
        self._stack = stack
        self.limiter().set_system_defaults(LIMITS)

    def limiter(self, deadline_s: float | None = LONG_DEADLINE_S) -> Any:
        """Return a client; None keeps the default deadline."""
        settings = {} if deadline_s is None else {"deadline_s": deadline_s}
        repo = self.tree.open(self.url, **settings)
        self._stack.callback(repo.close)
        return self.tree.limiter(repo)

    def open(self, limiter: Any) -> None:
        """Make the store available, and give calls a long deadline again."""
        self.proxy.open()
        set_deadline(limiter, LONG_DEADLINE_S)

    def moved(self, limiter: Any, endpoint_url: str) -> Any:
        """Return the same client for a store at another endpoint."""
        repo = self.tree.elsewhere(limiter.repository, endpoint_url, DEADLINE_S)
        self._stack.callback(repo.close)
        return self.tree.limiter(repo)


@pytest.fixture(params=KINDS)
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with ExitStack() as stack:
        yield Site(request.param, stack)


@pytest.fixture(params=FAILURES.values(), ids=FAILURES)
def disconnect(request: pytest.FixtureRequest) -> Callable[[SwitchableProxy], None]:
    chosen: Callable[[SwitchableProxy], None] = request.param
    return chosen


def take(limiter: Any, entity_id: str = USER, choice: str = "block") -> bool:
    """Take tokens; return whether the request was allowed without limiting."""
    with limiter.acquire(entity_id, RESOURCE, CONSUME, on_unavailable=choice) as lease:
        return bool(lease.degraded)


def refused(limiter: Any, entity_id: str = USER) -> RateLimiterUnavailable:
    with pytest.raises(RateLimiterUnavailable) as caught:
        take(limiter, entity_id)
    return caught.value


def set_deadline(limiter: Any, deadline_s: float = DEADLINE_S) -> None:
    """Set the deadline of later calls."""
    limiter._client._deadline_s = deadline_s


def timed(act: Callable[[], object]) -> float:
    began_s = time.monotonic()
    act()
    return time.monotonic() - began_s


@pytest.mark.parametrize("entity_id", [USER, NEW_USER])
def test_an_unavailable_engine_is_detected_in_time_and_used_again_afterwards(
    site: Site, disconnect: Callable[[SwitchableProxy], None], entity_id: str
):
    """The call is blocked or allowed as the caller chose, for cached buckets and for new ones."""
    limiter = site.limiter()
    take(limiter)
    disconnect(site.proxy)
    set_deadline(limiter)
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


def test_every_error_of_an_unavailable_engine_names_the_stack(site: Site):
    """An operator of several stacks sees which one it is: for a cached bucket, a new one, a read and a change."""
    limiter = site.limiter(DEADLINE_S)
    take(site.limiter())
    take_cached = site.limiter()
    take(take_cached)
    site.proxy.refuse()
    set_deadline(take_cached)
    calls: list[Callable[[], object]] = [
        lambda: take(take_cached),
        lambda: take(limiter, NEW_USER),
        lambda: limiter.available(NEW_USER, RESOURCE),
        lambda: limiter.get_limits(USER),
        lambda: limiter.set_limits(USER, LIMITS),
    ]
    names = []
    for call in calls:
        with pytest.raises(RateLimiterUnavailable) as caught:
            call()
        names.append(caught.value.stack_name)

    assert [limiter.stack_name] * len(calls) == names


def test_a_cascade_on_an_unavailable_engine_ends_within_the_deadline(
    site: Site, disconnect: Callable[[SwitchableProxy], None]
):
    """Child and parent share the deadline."""
    limiter = site.limiter()
    limiter.create_entity(PARENT)
    limiter.create_entity(CHILD, parent_id=PARENT, cascade=True)
    take(limiter, CHILD)
    disconnect(site.proxy)
    set_deadline(limiter)
    took_s = timed(lambda: refused(limiter, CHILD))
    site.open(limiter)

    assert took_s < DEADLINE_S * GENEROUS
    assert not take(limiter, CHILD)


@pytest.mark.parametrize("failure", ["silent", "backlog full"])
def test_the_default_deadline_is_one_second(site: Site, failure: str):
    """Common clients wait for 25 seconds or more."""
    limiter = site.limiter(None)
    default_s = limiter._client._deadline_s
    set_deadline(limiter, LONG_DEADLINE_S)
    take(limiter)
    FAILURES[failure](site.proxy)
    set_deadline(limiter, default_s)

    assert DEFAULT_S == default_s
    assert timed(lambda: refused(limiter)) < DEFAULT_S * GENEROUS


def test_leaving_a_lease_on_an_unavailable_engine_ends_within_the_deadline(
    site: Site, disconnect: Callable[[SwitchableProxy], None]
):
    """A debit that cannot be charged raises an error; a lost credit does not."""
    limiter = site.limiter()

    def leave_with(change: int) -> None:
        with limiter.acquire(USER, RESOURCE, CONSUME, on_unavailable="block") as lease:
            lease.adjust(tpm=change)
            disconnect(site.proxy)
            set_deadline(limiter)

    def owe() -> None:
        with pytest.raises(RateLimiterUnavailable):
            leave_with(5)

    owed_s = timed(owe)
    site.open(limiter)
    given_s = timed(lambda: leave_with(-5))

    assert owed_s < DEADLINE_S * GENEROUS
    assert given_s < DEADLINE_S * GENEROUS


def test_is_available_returns_false_while_the_engine_is_unavailable(
    site: Site, disconnect: Callable[[SwitchableProxy], None]
):
    """It never raises."""
    limiter = site.limiter()
    before = limiter.is_available(LONG_DEADLINE_S)
    disconnect(site.proxy)
    meanwhile = limiter.is_available(DEADLINE_S)
    site.proxy.open()

    assert [True, False, True] == [before, meanwhile, limiter.is_available(LONG_DEADLINE_S)]


@pytest.mark.parametrize("entity_id", [USER, NEW_USER])
def test_a_host_name_that_does_not_resolve_is_detected_in_time(site: Site, entity_id: str):
    """The store was reachable before. The error names the cause."""
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
def test_opening_an_unreachable_store_fails_in_time(kind: str, host: str):
    """The host does not resolve, or no server listens at the port; the error says which."""
    url = table_url(fresh_table_name(), f"http://{host}:{free_port()}")
    errors = []

    def open_it() -> None:
        with pytest.raises(RateLimiterUnavailable) as caught, tree(kind) as opened:
            opened.open(url, deadline_s=DEADLINE_S)
        errors.append(caught.value)

    # Administrative calls have five times the deadline.
    assert timed(open_it) < DEADLINE_S * 5 * GENEROUS
    assert isinstance(errors[0].cause, OSError)
