"""Who changed what: every change leaves one event, with it or not at all, and they are read newest first."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import AuditAction, AuditEvent, Limit, SyncRateLimiter, RateLimiterUnavailable, SyncRepository, ValidationError
from zae_limiter.core.outcome import Cancelled, Conflict, Missing, Throttled, Unavailable

from .clients import Wrapped, another, counted, everything_in, take
from .rivals import Overtaken, Sparing

LIMITS = [Limit.per_second("rps", 10), Limit.per_minute("tpm", 6_000, burst=9_000)]
DETAILS = {
    "limits": [
        {"name": "rps", "capacity": 10, "refill_amount": 10, "refill_period_seconds": 1},
        {"name": "tpm", "capacity": 9_000, "refill_amount": 6_000, "refill_period_seconds": 60},
    ]
}
DAY_MS = 24 * 3600 * 1000

# What is called, under which id it is told, and what is told of it.
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


def everything_stored(repo):
    """Store limits at every level, so that there is something to delete."""
    repo.set_limits("user-1", LIMITS, "gpt-4")
    repo.set_resource_defaults("gpt-4", LIMITS)
    repo.set_system_defaults(LIMITS)


def set_times(repo, clock, times):
    """Set limits several times, a second apart, each by somebody else."""
    for number in range(times):
        repo.set_limits("user-1", LIMITS, "gpt-4", principal=f"p{number}")
        clock.advance(1_000)


def principals(events):
    return [event.principal for event in events]


@every_change
@pytest.mark.parametrize("principal", ["alice", "arn:aws:iam::1:user/日本", None])
def test_every_change_is_told(repo, clock, verb, principal):
    """Who, when, what, and to what it was changed."""
    arguments, audit_id, action, resource, details = CHANGES[verb]
    everything_stored(repo)
    clock.advance(1_000)
    getattr(repo, verb)(*arguments, principal=principal)

    newest = (repo.get_audit_events(audit_id))[0]
    expected = AuditEvent(newest.event_id, "2023-11-14T22:13:21.123Z", action, audit_id, principal, resource, details)
    assert expected == newest
    assert str(clock.now_ms()) == newest.event_id.partition("-")[0]


@every_change
def test_a_change_and_its_event_are_one_transaction(repo, verb):
    """One read and one transaction; nothing else is written."""
    everything_stored(repo)
    limiter, table = counted(repo)
    getattr(limiter, verb)(*CHANGES[verb][0])

    assert ["get", "transact"] == table.drain()


class RefusingTable(Wrapped):
    """A table that answers every transaction with one and the same failure."""

    failure = Unavailable(ConnectionError("the store is away"), ambiguous=False)

    def transact(self, operations, token, *, until_s=None):
        return self.failure


@every_change
def test_a_change_that_fails_leaves_neither_change_nor_event(repo, verb):
    """Both or nothing; the caller is told."""
    everything_stored(repo)
    before = everything_in(repo)

    with pytest.raises(RateLimiterUnavailable):
        getattr(another(repo, RefusingTable), verb)(*CHANGES[verb][0])

    assert before == everything_in(repo)


@pytest.mark.parametrize("failure", [Conflict(), Throttled(), Cancelled((Missing(), None, None, None))])
def test_a_change_that_is_refused_again_and_again_is_given_up(repo, failure):
    """And nothing of it is left."""
    before = everything_in(repo)
    other = another(repo, RefusingTable)
    other.scope.table.failure = failure

    with pytest.raises(RateLimiterUnavailable, match="kept changing"):
        other.set_limits("user-1", LIMITS)

    assert before == everything_in(repo)


@every_change
@pytest.mark.parametrize("principal", [5, "x" * 257, "\ud800"])
def test_a_change_by_nobody_who_can_be_named_is_not_made(repo, verb, principal):
    """A principal is short text, or none."""
    everything_stored(repo)
    before = everything_in(repo)

    with pytest.raises(ValidationError, match="principal"):
        getattr(repo, verb)(*CHANGES[verb][0], principal=principal)

    assert before == everything_in(repo)


def test_a_change_that_is_refused_for_its_limits_is_not_told(repo):
    """Nothing happened."""
    with pytest.raises(ValidationError):
        repo.set_limits("user-1", [])

    assert [] == repo.get_audit_events("user-1")


def test_a_change_that_had_to_be_tried_again_is_told_once(repo):
    """In the order in which the changes were made."""
    one, two = another(repo), another(repo, Overtaken)
    two.scope.table.overtakers = [lambda: one.set_limits("user-1", LIMITS, principal="faster")] * 3
    two.set_limits("user-1", LIMITS, principal="slower")

    assert ["slower", "faster", "faster", "faster"] == principals(repo.get_audit_events("user-1"))


def test_a_change_that_others_keep_overtaking_is_given_up_and_not_told(repo):
    """The caller is told, and may try again."""
    one, two = another(repo), another(repo, Overtaken)
    two.scope.table.overtakers = [lambda: one.set_limits("user-1", LIMITS, principal="faster")] * 64

    with pytest.raises(RateLimiterUnavailable, match="kept changing"):
        two.set_limits("user-1", LIMITS, principal="slower")

    assert ["faster"] * 64 == principals(repo.get_audit_events("user-1"))


def test_events_come_newest_first(repo, clock):
    """What was changed last is what is looked for first."""
    set_times(repo, clock, 5)

    assert ["p4", "p3", "p2", "p1", "p0"] == principals(repo.get_audit_events("user-1"))


def test_changes_of_one_client_within_a_millisecond_are_told_in_order(repo):
    """The clock stands still, and the ids rise."""
    for number in range(20):
        repo.set_limits("user-1", LIMITS, principal=str(number))

    assert [str(number) for number in reversed(range(20))] == principals(repo.get_audit_events("user-1"))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 8])
def test_pages_lead_to_every_event_once(repo, clock, size):
    """The next page starts after the last event of the one before."""
    set_times(repo, clock, 7)
    found, page = [], repo.get_audit_events("user-1", size)
    while page:
        assert len(page) <= size
        found += page
        page = repo.get_audit_events("user-1", limit=size, start_event_id=page[-1].event_id)

    assert found == repo.get_audit_events("user-1")
    assert 7 == len(found)


def test_events_that_come_while_pages_are_turned_do_not_shift_them(repo, clock):
    """They are newer than all that was seen."""
    set_times(repo, clock, 4)
    first = repo.get_audit_events("user-1", 2)
    repo.set_limits("user-1", LIMITS, principal="late")

    assert ["p1", "p0"] == principals(repo.get_audit_events("user-1", 2, first[-1].event_id))


def test_a_hundred_events_are_read_unless_more_are_asked_for(repo):
    """A page has an end."""
    for _ in range(103):
        repo.set_limits("user-1", LIMITS)

    assert (100, 103) == (
        len(repo.get_audit_events("user-1")),
        len(repo.get_audit_events("user-1", limit=1_000)),
    )


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5, 100])
def test_short_answers_of_a_table_make_no_short_pages(repo, clock, size):
    """A page is as long as was asked for, in however many answers it comes."""
    set_times(repo, clock, 5)

    assert ["p4", "p3", "p2", "p1", "p0"][:size] == principals(
        another(repo, Sparing).get_audit_events("user-1", size)
    )


def test_events_of_one_id_are_not_those_of_another(repo):
    """The system, each resource and each entity have their own."""
    everything_stored(repo)
    repo.set_limits("user-10", LIMITS)

    assert [1, 1, 1, 1, 0, 0] == [
        len(repo.get_audit_events(audit_id))
        for audit_id in ("$SYSTEM", "$RESOURCE:gpt-4", "user-1", "user-10", "$RESOURCE:gpt", "user-2")
    ]


@pytest.mark.parametrize("audit_id", ["", "$", "$system", "$RESOURCE:", "$RESOURCE:a#b", "a#b", None, 5])
def test_what_no_event_is_kept_under_is_refused(repo, audit_id):
    """A misspelt id is an error, and not an empty list."""
    with pytest.raises(ValidationError):
        repo.get_audit_events(audit_id)


@pytest.mark.parametrize("limit", [0, -1, True, 1.5, None])
def test_what_is_no_length_of_a_page_is_refused(repo, limit):
    """A page has at least one event."""
    with pytest.raises(ValidationError, match="limit"):
        repo.get_audit_events("user-1", limit)


@pytest.mark.parametrize("start", ["", "x", 5, "#AUDIT#", "1700000000123"])
def test_what_is_no_event_id_is_refused(repo, start):
    """A page starts after an event."""
    with pytest.raises(ValidationError, match="start_event_id"):
        repo.get_audit_events("user-1", start_event_id=start)


@pytest.mark.parametrize("days", [90, 7])
def test_events_are_kept_for_their_time(repo, clock, days):
    """Then they go, as everything does that expires."""
    limiter = SyncRateLimiter(another(repo, audit_retention_days=days))
    limiter.set_system_defaults([Limit.per_second("rps", 1_000_000)], principal="alice")
    (event,) = [item for key, item in everything_in(repo).items() if "$SYSTEM" in key[0]]

    assert clock.now_ms() // 1000 + days * DAY_MS // 1000 == event["ttl"]


def test_events_whose_time_is_over_are_swept_away(clock):
    """A table in use removes them by itself; what is not over stays."""
    with SyncRepository.open("memory://", clock=clock) as repo:
        limiter = SyncRateLimiter(repo)
        repo.set_system_defaults([Limit.per_second("rps", 1_000_000)], principal="early")
        clock.advance(60 * DAY_MS)
        repo.set_system_defaults([Limit.per_second("rps", 2_000_000)], principal="late")
        clock.advance(31 * DAY_MS)
        for _ in range(600):
            take(limiter, {"rps": 1})

        assert ["late"] == principals(repo.get_audit_events("$SYSTEM"))


def test_acquires_are_no_changes(limiter):
    """Taking is counted elsewhere."""
    limiter.set_system_defaults(LIMITS)
    take(limiter, {"rps": 1})

    assert [] == limiter.get_audit_events("user-1")
    assert 1 == len(limiter.get_audit_events("$SYSTEM"))
