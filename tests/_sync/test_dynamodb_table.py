"""How a DynamoDB table handles responses that no engine returns on demand."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import InfrastructureNotFoundError, RateLimiterUnavailable
from zae_limiter.core.outcome import Applied, Cancelled, Committed, Conflict, Missing, Refused, Throttled, Unavailable
from zae_limiter.schema.operations import Equals, Key, Query, Update
from zae_limiter.tables.dynamodb.errors import AccessRefused

from .responder import DEADLINE_S, LOST, TABLE, UNREACHED, Responder, cancelled, dynamo_table, failed, succeeded

KEY, OTHER = Key("part", "sort"), Key("part", "other")
ITEM = {"PK": {"S": "part"}, "SK": {"S": "sort"}, "x": {"N": "1"}}
READ = {"PK": "part", "SK": "sort", "x": 1}
TAKE = Update(KEY, add={"x": -1}, when=(Equals("y", 1),))
PAIR = [TAKE, Update(OTHER, add={"x": 1})]
THROTTLE = failed("ProvisionedThroughputExceededException")
DENIED = failed("AccessDeniedException", "not authorized")
SKEWED = failed("InvalidSignatureException", "Signature expired: 20260101T000000Z is now earlier than ...")
EXPIRED = failed("ExpiredTokenException", "The security token included in the request is expired")
TOKEN = "token"


@pytest.fixture
def table_of(monkeypatch):
    return lambda responder: dynamo_table(responder, monkeypatch)


def test_transaction_that_collides_with_another_returns_conflict(table_of):
    """No condition was evaluated, so it is not a failed condition."""
    responder = Responder(cancelled("None", "TransactionConflict"))

    assert Conflict() == table_of(responder).transact(PAIR, TOKEN)
    assert ["TransactWriteItems"] == responder.verbs


def test_transaction_with_a_failed_condition_and_a_conflict_returns_cancelled(table_of):
    """The refusing item is new information, and a retry would be refused again."""
    responder = Responder(cancelled({"Code": "ConditionalCheckFailed", "Item": ITEM}, "TransactionConflict"))

    assert Cancelled((Refused(READ), None)) == table_of(responder).transact(PAIR, TOKEN)


def test_write_that_collides_with_a_transaction_returns_contested_throttled(table_of):
    """Nothing was written, and a retry after a moment succeeds."""
    responder = Responder(failed("TransactionConflictException"))

    assert Throttled(contested=True) == table_of(responder).write(TAKE)
    assert 1 == len(responder.calls)


def test_throttled_transaction_is_returned_without_a_retry(table_of):
    """The caller decides again, since its view may be stale by then."""
    responder = Responder(cancelled("ThrottlingError", "None"))

    assert Throttled() == table_of(responder).transact(PAIR, TOKEN)
    assert 1 == len(responder.calls)


@pytest.mark.parametrize(
    "lost", [LOST, failed("InternalServerError", status=500), failed("TransactionInProgressException")]
)
def test_transaction_with_a_lost_response_is_retried_unchanged(table_of, lost):
    """With the same token and operations, DynamoDB carries it out only once."""
    responder = Responder(lost, lost, succeeded())

    assert Committed() == table_of(responder).transact(PAIR, TOKEN)
    assert 3 == len(responder.calls)
    assert 1 == len(set(responder.calls))
    assert TOKEN == responder.bodies[0]["ClientRequestToken"]


@pytest.mark.parametrize("then", [THROTTLE, cancelled("TransactionConflict", "None"), UNREACHED, DENIED])
def test_ambiguous_transaction_stays_ambiguous_after_another_failure(table_of, then):
    """The failure of a retry says nothing about the first attempt."""
    responder = Responder(LOST, then)

    assert LOST == table_of(responder).transact(PAIR, TOKEN)
    assert 1 == len(set(responder.calls))


def test_retried_transaction_that_is_refused_returns_cancelled_in_doubt(table_of):
    """The first attempt was not applied so far, but may still arrive late."""
    responder = Responder(LOST, cancelled({"Code": "ConditionalCheckFailed", "Item": ITEM}, "None"))

    assert Cancelled((Refused(READ), None), in_doubt=True) == table_of(responder).transact(PAIR, TOKEN)


@pytest.mark.parametrize("lost", [LOST, failed("InternalServerError", status=500), failed("", status=503)])
def test_write_with_a_lost_response_is_not_retried(table_of, lost):
    """A retry could apply it twice; only the caller can detect that."""
    responder = Responder(lost, succeeded(Attributes=ITEM))

    outcome = table_of(responder).write(TAKE)
    assert (Unavailable, True) == (type(outcome), outcome.ambiguous)
    assert 1 == len(responder.calls)


def test_write_that_never_reached_the_server_is_retried(table_of):
    """The next connection attempt may succeed."""
    responder = Responder(UNREACHED, UNREACHED, succeeded(Attributes=ITEM))

    assert Applied(READ) == table_of(responder).write(TAKE)


def test_call_that_never_reaches_the_server_is_given_up_after_three_attempts(table_of):
    """Writes and transactions return an unambiguous failure; reads raise."""
    for ask in (lambda table: table.write(TAKE), lambda table: table.transact(PAIR, TOKEN)):
        responder = Responder(UNREACHED)

        assert UNREACHED == ask(table_of(responder))
        assert 3 == len(responder.calls)

    responder = Responder(UNREACHED)
    with pytest.raises(RateLimiterUnavailable, match="refused"):
        table_of(responder).get(KEY)
    assert 3 == len(responder.calls)


def test_write_lost_after_failed_connections_is_ambiguous(table_of):
    """One of the attempts reached the server."""
    responder = Responder(UNREACHED, LOST, succeeded(Attributes=ITEM))

    assert LOST == table_of(responder).write(TAKE)
    assert 2 == len(responder.calls)


def test_call_that_fails_before_it_is_sent_is_not_retried(table_of):
    """Missing credentials, for example, will still be missing a moment later."""
    broken = Unavailable(RuntimeError("no credentials"), ambiguous=False)
    responder = Responder(broken)

    assert broken == table_of(responder).write(TAKE)
    assert 1 == len(responder.calls)


@pytest.mark.parametrize("lost", [THROTTLE, LOST, failed("InternalServerError", status=500)])
def test_read_is_retried_until_it_succeeds(table_of, lost):
    """A read changes nothing, so it may be repeated."""
    responder = Responder(lost, lost, lost, succeeded(Item=ITEM))

    assert READ == table_of(responder).get(KEY)
    assert 4 == len(responder.calls)


@pytest.mark.parametrize("lost", [THROTTLE, LOST, failed("InternalServerError", status=500)])
def test_read_that_keeps_failing_raises_at_the_deadline(table_of, lost):
    """It is retried until the deadline and not longer."""
    responder = Responder(lost, takes_ms=100)
    began_s = responder.clock.monotonic_s()

    with pytest.raises(RateLimiterUnavailable):
        table_of(responder).get(KEY)
    assert DEADLINE_S / 2 < responder.clock.monotonic_s() - began_s <= DEADLINE_S
    assert 4 <= len(responder.calls)


def test_read_ends_at_the_deadline_of_its_caller(table_of):
    """The time that the caller has already spent counts."""
    responder = Responder(THROTTLE, takes_ms=100)
    until_s = responder.clock.monotonic_s() + 0.35

    with pytest.raises(RateLimiterUnavailable):
        table_of(responder).get(KEY, until_s=until_s)
    assert 3 <= len(responder.calls)
    assert round(until_s * 1000) >= responder.clock.now_ms()


def test_throttled_write_is_returned_without_a_retry(table_of):
    """The caller may prefer another shard."""
    responder = Responder(THROTTLE)

    assert Throttled() == table_of(responder).write(TAKE)
    assert 1 == len(responder.calls)


def test_access_denied_is_not_retried(table_of):
    """Nothing was written, and the cause says what to check."""
    responder = Responder(DENIED)
    table = table_of(responder)

    written, transacted = table.write(TAKE), table.transact(PAIR, TOKEN)
    with pytest.raises(RateLimiterUnavailable, match="not authorized"):
        table.query(Query("part"))
    assert [(AccessRefused, False)] * 2 == [(type(made.cause), made.ambiguous) for made in (written, transacted)]
    assert ["UpdateItem", "TransactWriteItems", "Query"] == responder.verbs


def test_call_on_a_missing_table_raises_with_its_name(table_of):
    """It is not retried."""
    responder = Responder(failed("ResourceNotFoundException"))

    for ask in (lambda table: table.get(KEY), lambda table: table.write(TAKE), lambda table: table.transact(PAIR, "t")):
        with pytest.raises(InfrastructureNotFoundError, match=TABLE):
            ask(table_of(responder))
    assert 3 == len(responder.calls)


def test_read_refused_for_clock_skew_is_signed_again(table_of):
    """The refusal contains the server's time."""
    responder = Responder(SKEWED, succeeded(Item=ITEM))

    assert READ == table_of(responder).get(TAKE.key)
    assert 2 == len(responder.calls)


def test_write_refused_for_clock_skew_returns_the_current_item(table_of):
    """It was decided with a wrong clock, so it is not retried; the item is read instead."""
    responder = Responder(SKEWED, succeeded(Item=ITEM))

    assert Refused(READ) == table_of(responder).write(TAKE)
    assert ["UpdateItem", "GetItem"] == [call.target.rpartition(".")[2] for call in responder.calls]


def test_write_refused_for_clock_skew_on_a_missing_item_returns_missing(table_of):
    """There is no item to decide with."""
    responder = Responder(SKEWED, succeeded())

    assert Missing() == table_of(responder).write(TAKE)


def test_transaction_refused_for_clock_skew_returns_conflict(table_of):
    """Nothing was written, so the caller decides again."""
    responder = Responder(SKEWED)

    assert Conflict() == table_of(responder).transact([TAKE], "token")
    assert 1 == len(responder.calls)


def test_call_refused_for_clock_skew_repeatedly_returns_access_refused(table_of):
    """The clock is not the cause: after the write, the read is tried three times with new signatures."""
    responder = Responder(SKEWED)

    outcome = table_of(responder).write(TAKE)
    assert (AccessRefused, False) == (type(outcome.cause), outcome.ambiguous)
    assert 4 == len(responder.calls)
    assert [] == responder.refused_keys


def test_call_with_expired_credentials_is_retried_with_new_ones(table_of):
    """Credentials are refreshed once per call."""
    responder = Responder(EXPIRED, succeeded(Attributes=ITEM))
    responder.new_keys = ["second keys"]

    assert Applied(READ) == table_of(responder).write(TAKE)
    assert (["first keys"], 2) == (responder.refused_keys, len(responder.calls))


def test_new_credentials_that_are_refused_are_not_replaced_again(table_of):
    """A second refresh would not find better ones."""
    responder = Responder(EXPIRED)
    responder.new_keys = ["second keys", "third keys"]

    outcome = table_of(responder).write(TAKE)
    assert (AccessRefused, False) == (type(outcome.cause), outcome.ambiguous)
    assert (["first keys"], 2) == (responder.refused_keys, len(responder.calls))


@pytest.mark.parametrize("found", [[], [OSError("no metadata service")]])
def test_expired_credentials_without_new_ones_return_the_servers_error(table_of, found):
    """The server's error is more useful than the failure of the refresh."""
    responder = Responder(EXPIRED)
    responder.new_keys = list(found)

    outcome = table_of(responder).write(TAKE)
    assert "ExpiredTokenException" == outcome.cause.code
    assert 1 == len(responder.calls)
