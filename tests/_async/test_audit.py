"""Audit events: a change and its event are written together or not at all, and events are read newest first."""

import pytest

from zae_limiter import AuditAction, AuditEvent, Limit, RateLimiter, RateLimiterUnavailable, Repository, ValidationError
from zae_limiter.core.outcome import Cancelled, Conflict, Missing, Throttled, Unavailable

from .clients import Wrapped, another, counted, everything_in, take
from .rivals import RacedTable, ShortPagesTable

LIMITS = [Limit.per_second("rps", 10), Limit.per_minute("tpm", 6_000, burst=9_000)]
DETAILS = {
    "limits": [
        {"name": "rps", "capacity": 10, "refill_amount": 10, "refill_period_seconds": 1},
        {"name": "tpm", "capacity": 9_000, "refill_amount": 6_000, "refill_period_seconds": 60},
    ]
}
DAY_MS = 24 * 3600 * 1000

# The arguments of each call, and the audit id, action, resource and details of its event.
CHANGES = {
    "set_limits": (("user-1", LIMITS, "gpt-4"), "user-1", AuditAction.LIMITS_SET, "gpt-4", DETAILS),
    "delete_limits": (("user-1", "gpt-4"), "user-1", AuditAction.LIMITS_DELETED, "gpt-4", {}),
    "set_resource_defaults": (
        ("gpt-4", LIMITS),
        "$RESOURCE:gpt-4",
        AuditAction.RESOURCE_DEFAULTS_SET,
        "gpt-4",
        DETAILS,
    ),
    "delete_resource_defaults": (
        ("gpt-4",),
        "$RESOURCE:gpt-4",
        AuditAction.RESOURCE_DEFAULTS_DELETED,
        "gpt-4",
        {},
    ),
    "set_system_defaults": (
        (LIMITS, "allow"),
        "$SYSTEM",
        AuditAction.SYSTEM_DEFAULTS_SET,
        None,
        DETAILS | {"on_unavailable": "allow"},
    ),
    "delete_system_defaults": ((), "$SYSTEM", AuditAction.SYSTEM_DEFAULTS_DELETED, None, {}),
}

every_change = pytest.mark.parametrize("verb", CHANGES)


async def store_limits_at_every_level(repo):
    """Store limits at every level, so that each can be deleted."""
    await repo.set_limits("user-1", LIMITS, "gpt-4")
    await repo.set_resource_defaults("gpt-4", LIMITS)
    await repo.set_system_defaults(LIMITS)


async def set_times(repo, clock, times):
    """Set limits several times, a second apart, each time with another principal."""
    for number in range(times):
        await repo.set_limits("user-1", LIMITS, "gpt-4", principal=f"p{number}")
        clock.advance(1_000)


def principals(events):
    return [event.principal for event in events]


@every_change
@pytest.mark.parametrize("principal", ["alice", "arn:aws:iam::1:user/日本", None])
async def test_every_change_records_who_when_what_and_the_new_values(repo, clock, verb, principal):
    """The event has the principal, the time, the action and the new limits."""
    arguments, audit_id, action, resource, details = CHANGES[verb]
    await store_limits_at_every_level(repo)
    clock.advance(1_000)
    await getattr(repo, verb)(*arguments, principal=principal)

    newest = (await repo.get_audit_events(audit_id))[0]
    expected = AuditEvent(newest.event_id, "2023-11-14T22:13:21.123Z", action, audit_id, principal, resource, details)
    assert expected == newest
    assert str(clock.now_ms()) == newest.event_id.partition("-")[0]


@every_change
async def test_a_change_and_its_event_are_one_transaction(repo, verb):
    """A change makes one read and one transaction, and writes nothing else."""
    await store_limits_at_every_level(repo)
    limiter, table = counted(repo)
    await getattr(limiter, verb)(*CHANGES[verb][0])

    assert ["get", "transact"] == table.drain()


class RefusingTable(Wrapped):
    """A table whose transactions all fail in the same way."""

    failure = Unavailable(ConnectionError("the store is unavailable"), ambiguous=False)

    async def transact(self, operations, token, *, until_s=None):
        return self.failure


@every_change
async def test_change_whose_transaction_fails_writes_neither_change_nor_event(repo, verb):
    """Change and event are written together or not at all, and the caller gets an error."""
    await store_limits_at_every_level(repo)
    before = everything_in(repo)

    with pytest.raises(RateLimiterUnavailable):
        await getattr(another(repo, RefusingTable), verb)(*CHANGES[verb][0])

    assert before == everything_in(repo)


@pytest.mark.parametrize("failure", [Conflict(), Throttled(), Cancelled((Missing(), None, None, None))])
async def test_change_that_is_always_refused_raises_and_writes_nothing(repo, failure):
    """Retries end with an error, and nothing is stored."""
    before = everything_in(repo)
    other = another(repo, RefusingTable)
    other.scope.table.failure = failure

    with pytest.raises(RateLimiterUnavailable, match="kept changing"):
        await other.set_limits("user-1", LIMITS)

    assert before == everything_in(repo)


@every_change
@pytest.mark.parametrize("principal", [5, "x" * 257, "\ud800"])
async def test_change_with_an_invalid_principal_is_refused(repo, verb, principal):
    """A principal is a short string, or None."""
    await store_limits_at_every_level(repo)
    before = everything_in(repo)

    with pytest.raises(ValidationError, match="principal"):
        await getattr(repo, verb)(*CHANGES[verb][0], principal=principal)

    assert before == everything_in(repo)


async def test_change_with_invalid_limits_records_no_event(repo):
    """An event is recorded only for a change that was made."""
    with pytest.raises(ValidationError):
        await repo.set_limits("user-1", [])

    assert [] == await repo.get_audit_events("user-1")


async def test_change_that_was_retried_records_one_event(repo):
    """Events are in the order in which the changes were made."""
    one, two = another(repo), another(repo, RacedTable)
    two.scope.table.rivals = [lambda: one.set_limits("user-1", LIMITS, principal="faster")] * 3
    await two.set_limits("user-1", LIMITS, principal="slower")

    assert ["slower", "faster", "faster", "faster"] == principals(await repo.get_audit_events("user-1"))


async def test_change_that_loses_every_race_raises_and_records_no_event(repo):
    """The caller gets an error and may retry."""
    one, two = another(repo), another(repo, RacedTable)
    two.scope.table.rivals = [lambda: one.set_limits("user-1", LIMITS, principal="faster")] * 64

    with pytest.raises(RateLimiterUnavailable, match="kept changing"):
        await two.set_limits("user-1", LIMITS, principal="slower")

    assert ["faster"] * 64 == principals(await repo.get_audit_events("user-1"))


async def test_audit_events_are_returned_newest_first(repo, clock):
    """The last change is the one that is usually looked for."""
    await set_times(repo, clock, 5)

    assert ["p4", "p3", "p2", "p1", "p0"] == principals(await repo.get_audit_events("user-1"))


async def test_events_of_one_client_within_one_millisecond_keep_their_order(repo):
    """Event ids increase even if the clock does not."""
    for number in range(20):
        await repo.set_limits("user-1", LIMITS, principal=str(number))

    assert [str(number) for number in reversed(range(20))] == principals(await repo.get_audit_events("user-1"))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8])
async def test_paging_through_audit_events_returns_every_event_once(repo, clock, size):
    """The next page starts after the last event of the previous one."""
    await set_times(repo, clock, 7)
    found, page = [], await repo.get_audit_events("user-1", size)
    while page:
        assert len(page) <= size
        found += page
        page = await repo.get_audit_events("user-1", limit=size, start_event_id=page[-1].event_id)

    assert found == await repo.get_audit_events("user-1")
    assert 7 == len(found)


async def test_event_recorded_between_two_pages_does_not_shift_the_next_page(repo, clock):
    """New events come before all events that were already read."""
    await set_times(repo, clock, 4)
    first = await repo.get_audit_events("user-1", 2)
    await repo.set_limits("user-1", LIMITS, principal="late")

    assert ["p1", "p0"] == principals(await repo.get_audit_events("user-1", 2, first[-1].event_id))


async def test_get_audit_events_returns_at_most_100_events_by_default(repo):
    """A larger ``limit`` returns more."""
    for _ in range(103):
        await repo.set_limits("user-1", LIMITS)

    assert (100, 103) == (
        len(await repo.get_audit_events("user-1")),
        len(await repo.get_audit_events("user-1", limit=1_000)),
    )


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 100])
async def test_audit_page_is_full_even_if_the_table_returns_short_pages(repo, clock, size):
    """A page has the requested length, however many table reads it takes."""
    await set_times(repo, clock, 5)

    assert ["p4", "p3", "p2", "p1", "p0"][:size] == principals(
        await another(repo, ShortPagesTable).get_audit_events("user-1", size)
    )


async def test_audit_events_are_separate_per_audit_id(repo):
    """The system, each resource and each entity have their own events."""
    await store_limits_at_every_level(repo)
    await repo.set_limits("user-10", LIMITS)

    assert [1, 1, 1, 1, 0, 0] == [
        len(await repo.get_audit_events(audit_id))
        for audit_id in ("$SYSTEM", "$RESOURCE:gpt-4", "user-1", "user-10", "$RESOURCE:gpt", "user-2")
    ]


@pytest.mark.parametrize("audit_id", ["", "$", "$system", "$RESOURCE:", "$RESOURCE:a#b", "a#b", 5])
async def test_get_audit_events_of_an_invalid_audit_id_raises(repo, audit_id):
    """A misspelt id is an error, not an empty list."""
    with pytest.raises(ValidationError):
        await repo.get_audit_events(audit_id)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, None])
async def test_get_audit_events_with_an_invalid_limit_raises(repo, limit):
    """A page has at least one event."""
    with pytest.raises(ValidationError, match="limit"):
        await repo.get_audit_events("user-1", limit)


@pytest.mark.parametrize("start", ["", "x", 5, "#AUDIT#", "1700000000123"])
async def test_get_audit_events_after_an_invalid_event_id_raises(repo, start):
    """A page starts after an event id."""
    with pytest.raises(ValidationError, match="start_event_id"):
        await repo.get_audit_events("user-1", start_event_id=start)


@pytest.mark.parametrize("days", [90, 7])
async def test_audit_event_expires_after_the_retention_days(repo, clock, days):
    """The ttl attribute is the time of the event plus the retention."""
    limiter = RateLimiter(another(repo, audit_retention_days=days))
    await limiter.set_system_defaults([Limit.per_second("rps", 1_000_000)], principal="alice")
    (event,) = [item for key, item in everything_in(repo).items() if "$SYSTEM" in key[0]]

    assert clock.now_ms() // 1000 + days * DAY_MS // 1000 == event["ttl"]


async def test_expired_audit_events_are_removed_and_the_others_stay(clock):
    """A memory table in use removes expired items by itself."""
    async with await Repository.open("memory://", clock=clock) as repo:
        limiter = RateLimiter(repo)
        await repo.set_system_defaults([Limit.per_second("rps", 1_000_000)], principal="early")
        clock.advance(60 * DAY_MS)
        await repo.set_system_defaults([Limit.per_second("rps", 2_000_000)], principal="late")
        clock.advance(31 * DAY_MS)
        for _ in range(600):
            await take(limiter, {"rps": 1})

        assert ["late"] == principals(await repo.get_audit_events("$SYSTEM"))


async def test_acquire_records_no_audit_event(limiter):
    """Consumption is counted in usage records, not in audit events."""
    await limiter.set_system_defaults(LIMITS)
    await take(limiter, {"rps": 1})

    assert [] == await limiter.get_audit_events("user-1")
    assert 1 == len(await limiter.get_audit_events("$SYSTEM"))
