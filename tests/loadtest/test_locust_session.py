"""The calls of a Locust user: what they return, which events they fire, and what is counted."""

import json
from typing import Any

import pytest

from tests.loadtest.locust_runs import ROOT, python

PROGRAM = ROOT / "tests" / "loadtest" / "locust_program.py"


@pytest.fixture(scope="module")
def told() -> Any:
    """What the program with Locust has printed."""
    done = python(str(PROGRAM))
    assert 0 == done.returncode, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(
    ("way", "events", "raised"),
    [
        ("admitted", ["ACQUIRE"], None),
        ("adjusted", ["ACQUIRE", "COMMIT"], None),
        ("adjusted by 0", ["ACQUIRE"], None),
        ("consumed more", ["ACQUIRE"], None),
        ("rejected", ["ACQUIRE", "RATE_LIMITED"], "RateLimitExceeded"),
        ("above the capacity", ["RATE_LIMITED"], "AmountExceedsCapacityError"),
        ("given back", ["ACQUIRE"], "ConnectionError"),
        ("kept", ["ACQUIRE", "COMMIT"], "ConnectionError"),
    ],
)
def test_acquire_fires_its_events_without_an_exception(told, way, events, raised):
    """A rejection is no failure of the limiter, but the caller gets it. A commit is fired if something is adjusted."""
    found = told["acquires"][way]

    assert [[event, "api", None] for event in events] == found["events"]
    assert raised == found["raised"]


def test_acquire_that_fails_otherwise_fires_its_exception(told):
    """Locust counts it as a failure, under the name that was given."""
    found = told["acquires"]["invalid"]

    assert [["ACQUIRE", "mine", "ValidationError"]] == found["events"]
    assert {"ACQUIRE ValidationError": 1} == found["errors"]


@pytest.mark.parametrize(
    ("way", "counts"),
    [
        ("admitted", {"rpd": [1, 0, 0]}),
        ("adjusted", {"rpd": [1, 0, 0], "tpd": [0, 50, 0]}),
        ("consumed more", {"rpd": [1, 0, 0], "tpd": [0, 20, 0]}),
        ("given back", {"rpd": [2, 0, 2]}),
        ("kept", {"rpd": [2, 0, 0], "tpd": [0, 10, 0]}),
    ],
)
def test_recorder_counts_what_was_taken_charged_and_given_back(told, way, counts):
    """The counts agree with what is left in the store."""
    found = told["acquires"][way]
    used = {name: taken + charged - given for name, (taken, charged, given) in counts.items()}

    assert counts == found["counts"]
    assert {"rpd": 3 - used["rpd"], "tpd": 1_000 - used.get("tpd", 0)} == found["left"]


def test_every_call_fires_its_name_in_upper_case(told):
    """The name of an event is the resource, else the entity, else the system, unless one is given."""
    events = [f"{kind} {name}" for kind, name, _ in told["other_calls"]["events"]]

    assert [
        "AVAILABLE api",
        "TIME_UNTIL_AVAILABLE api",
        "IS_AVAILABLE system",
        "SET_SYSTEM_DEFAULTS system",
        "GET_SYSTEM_DEFAULTS system",
        "DELETE_SYSTEM_DEFAULTS system",
        "SET_RESOURCE_DEFAULTS api",
        "GET_RESOURCE_DEFAULTS api",
        "LIST_RESOURCES_WITH_DEFAULTS system",
        "DELETE_RESOURCE_DEFAULTS api",
        "SET_LIMITS user-1",
        "GET_LIMITS api",
        "DELETE_LIMITS user-1",
        "CREATE_ENTITY parent",
        "CREATE_ENTITY child",
        "GET_ENTITY nobody",
        "GET_CHILDREN parent",
        "DELETE_ENTITY parent",
        "DELETE_ENTITY nobody",
        "DELETE_ENTITY end",
    ] == events


def test_every_call_returns_what_the_limiter_returns(told):
    """The session only measures."""
    everything = {"rpd": 3, "tpd": 1_000}
    answers = told["other_calls"]["answers"]

    assert [everything, 0.0, True, None, True, None, None, True, ["api"], None] == answers[:10]
    assert [None, [], None, "parent", "parent", None, ["child"], None, None, None] == answers[10:]


def test_deletion_that_is_refused_is_reported_and_not_raised(told):
    """Users that clean up need not know in which order the others do."""
    failures = [exception for kind, _, exception in told["other_calls"]["events"] if kind == "DELETE_ENTITY"]

    assert ["EntityHasChildrenError", "EntityNotFoundError", None] == failures


def test_event_has_the_fields_that_locust_expects(told):
    """Listeners of other plugins read them."""
    fields = ["context", "exception", "name", "request_type", "response_length", "response_time"]

    assert (fields, 0) == (told["facts"]["fields"], told["facts"]["length"])


def test_users_of_a_process_share_one_sync_limiter(told):
    """It waits with greenlets, because gevent is detected."""
    facts = told["facts"]

    assert ("SyncRateLimiter", True, "gevent") == (facts["limiter"], facts["shared"], facts["mode"])


def test_interval_of_a_paced_user_is_known(told):
    """A user that waits for a random time has none."""
    assert [2.0, 0.25, None] == told["facts"]["pacing"]


def test_first_call_of_a_late_task_counts_from_when_it_was_due(told):
    """The user then catches up, and the second call of the task counts from its own start."""
    assert {"scheduled": 2, "is late": True, "next wait": 0.0} == told["paced"]


def test_acquire_that_waits_for_a_locked_file_lets_other_greenlets_run(told):
    """Another process holds the lock until they have run."""
    assert (20, None) == (told["locked"]["ticks"], told["locked"]["raised"])


def test_import_without_locust_raises_the_error_for_missing_extras():
    """The message has the command that installs it."""
    program = "import sys; sys.modules['locust'] = None; import zae_limiter.locust"
    done = python("-c", program)

    assert 1 == done.returncode
    assert "MissingExtraError: locust is not installed; install it: " in done.stderr
