"""What a table of DynamoDB makes of answers that no engine gives on demand."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import InfrastructureNotFoundError, RateLimiterUnavailable
from zae_limiter.core.outcome import Applied, Cancelled, Committed, Conflict, Missing, Refused, Throttled, Unavailable
from zae_limiter.schema.operations import Equals, Key, Query, Update
from zae_limiter.tables.dynamodb.errors import AccessRefused

from .responder import DEADLINE_S, LOST, TABLE, UNREACHED, Responder, cancelled, failed, table_before, told

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
    return lambda responder: table_before(responder, monkeypatch)


def test_a_transaction_in_the_way_of_another_is_a_conflict(table_of):
    """Nothing was judged: it is not a failed condition."""
    responder = Responder(cancelled("None", "TransactionConflict"))

    assert Conflict() == table_of(responder).transact(PAIR, TOKEN)
    assert ["TransactWriteItems"] == responder.verbs


def test_a_failed_condition_is_told_although_there_is_a_conflict_beside_it(table_of):
    """The item that refused it is news, and sent again it would be refused again."""
    responder = Responder(cancelled({"Code": "ConditionalCheckFailed", "Item": ITEM}, "TransactionConflict"))

    assert Cancelled((Refused(READ), None)) == table_of(responder).transact(PAIR, TOKEN)


def test_a_single_write_in_the_way_of_a_transaction_is_told_so(table_of):
    """It heals by waiting a moment, and nothing was written."""
    responder = Responder(failed("TransactionConflictException"))

    assert Throttled(contested=True) == table_of(responder).write(TAKE)
    assert 1 == len(responder.calls)


def test_a_throttled_transaction_is_its_callers_to_send_again(table_of):
    """What it was decided on may be old by then."""
    responder = Responder(cancelled("ThrottlingError", "None"))

    assert Throttled() == table_of(responder).transact(PAIR, TOKEN)
    assert 1 == len(responder.calls)


@pytest.mark.parametrize(
    "lost", [LOST, failed("InternalServerError", status=500), failed("TransactionInProgressException")]
)
def test_a_transaction_in_doubt_is_sent_again_as_it_was(table_of, lost):
    """With the same token and the same operations it is carried out once."""
    responder = Responder(lost, lost, told())

    assert Committed() == table_of(responder).transact(PAIR, TOKEN)
    assert 3 == len(responder.calls)
    assert 1 == len(set(responder.calls))
    assert TOKEN == responder.bodies[0]["ClientRequestToken"]


@pytest.mark.parametrize("then", [THROTTLE, cancelled("TransactionConflict", "None"), UNREACHED, DENIED])
def test_only_its_own_answer_ends_the_doubt_about_a_transaction(table_of, then):
    """What befell a later try says nothing about the first."""
    responder = Responder(LOST, then)

    assert LOST == table_of(responder).transact(PAIR, TOKEN)
    assert 1 == len(set(responder.calls))


def test_a_transaction_that_was_sent_again_may_be_refused(table_of):
    """Had the first try been carried out, the token would have said so; but it may be yet, if it comes late."""
    responder = Responder(LOST, cancelled({"Code": "ConditionalCheckFailed", "Item": ITEM}, "None"))

    assert Cancelled((Refused(READ), None), in_doubt=True) == table_of(responder).transact(PAIR, TOKEN)


@pytest.mark.parametrize("lost", [LOST, failed("InternalServerError", status=500), failed("", status=503)])
def test_a_single_write_in_doubt_is_not_sent_again(table_of, lost):
    """It would be applied twice; only its caller can tell."""
    responder = Responder(lost, told(Attributes=ITEM))

    outcome = table_of(responder).write(TAKE)
    assert (Unavailable, True) == (type(outcome), outcome.ambiguous)
    assert 1 == len(responder.calls)


def test_what_never_reached_the_server_is_sent_again(table_of):
    """A connection that cannot be made may be made the next moment."""
    responder = Responder(UNREACHED, UNREACHED, told(Attributes=ITEM))

    assert Applied(READ) == table_of(responder).write(TAKE)


def test_what_never_reaches_the_server_is_sent_three_times(table_of):
    """Writes and transactions say that nothing was written, reads raise."""
    for ask in (lambda table: table.write(TAKE), lambda table: table.transact(PAIR, TOKEN)):
        responder = Responder(UNREACHED)

        assert UNREACHED == ask(table_of(responder))
        assert 3 == len(responder.calls)

    responder = Responder(UNREACHED)
    with pytest.raises(RateLimiterUnavailable, match="refused"):
        table_of(responder).get(KEY)
    assert 3 == len(responder.calls)


def test_a_lost_connection_after_tries_that_went_nowhere_leaves_doubt(table_of):
    """One try did reach the server."""
    responder = Responder(UNREACHED, LOST, told(Attributes=ITEM))

    assert LOST == table_of(responder).write(TAKE)
    assert 2 == len(responder.calls)


def test_what_keeps_calls_from_being_made_at_all_is_not_tried_again(table_of):
    """No credentials now are no credentials in a moment."""
    broken = Unavailable(RuntimeError("no credentials"), ambiguous=False)
    responder = Responder(broken)

    assert broken == table_of(responder).write(TAKE)
    assert 1 == len(responder.calls)


@pytest.mark.parametrize("lost", [THROTTLE, LOST, failed("InternalServerError", status=500)])
def test_a_read_is_made_again_until_it_is_answered(table_of, lost):
    """It changes nothing, however often it is made."""
    responder = Responder(lost, lost, lost, told(Item=ITEM))

    assert READ == table_of(responder).get(KEY)
    assert 4 == len(responder.calls)


@pytest.mark.parametrize("lost", [THROTTLE, LOST, failed("InternalServerError", status=500)])
def test_a_read_is_given_up_at_the_deadline(table_of, lost):
    """Not before, and not after."""
    responder = Responder(lost, takes_ms=100)
    began_s = responder.clock.monotonic_s()

    with pytest.raises(RateLimiterUnavailable):
        table_of(responder).get(KEY)
    assert DEADLINE_S / 2 < responder.clock.monotonic_s() - began_s <= DEADLINE_S
    assert 4 <= len(responder.calls)


def test_a_read_has_the_deadline_of_its_caller(table_of):
    """What else was waited for counts."""
    responder = Responder(THROTTLE, takes_ms=100)
    until_s = responder.clock.monotonic_s() + 0.35

    with pytest.raises(RateLimiterUnavailable):
        table_of(responder).get(KEY, until_s=until_s)
    assert 3 <= len(responder.calls)
    assert round(until_s * 1000) >= responder.clock.now_ms()


def test_a_throttled_write_is_its_callers_to_send_again(table_of):
    """There may be a better shard to go to."""
    responder = Responder(THROTTLE)

    assert Throttled() == table_of(responder).write(TAKE)
    assert 1 == len(responder.calls)


def test_refused_access_is_not_tried_again(table_of):
    """Nothing was done, and waiting does not help; the cause says what to check."""
    responder = Responder(DENIED)
    table = table_of(responder)

    written, transacted = table.write(TAKE), table.transact(PAIR, TOKEN)
    with pytest.raises(RateLimiterUnavailable, match="not authorized"):
        table.query(Query("part"))
    assert [(AccessRefused, False)] * 2 == [(type(made.cause), made.ambiguous) for made in (written, transacted)]
    assert ["UpdateItem", "TransactWriteItems", "Query"] == responder.verbs


def test_a_missing_table_is_named(table_of):
    """Nothing is tried again until somebody makes it."""
    responder = Responder(failed("ResourceNotFoundException"))

    for ask in (lambda table: table.get(KEY), lambda table: table.write(TAKE), lambda table: table.transact(PAIR, "t")):
        with pytest.raises(InfrastructureNotFoundError, match=TABLE):
            ask(table_of(responder))
    assert 3 == len(responder.calls)


def test_a_read_refused_for_its_time_is_signed_once_more(table_of):
    """The refusal has told the server's time."""
    responder = Responder(SKEWED, told(Item=ITEM))

    assert READ == table_of(responder).get(TAKE.key)
    assert 2 == len(responder.calls)


def test_a_write_refused_for_its_time_is_judged_anew(table_of):
    """It was decided on by the clock that was wrong, so it is not sent again: the item is the answer."""
    responder = Responder(SKEWED, told(Item=ITEM))

    assert Refused(READ) == table_of(responder).write(TAKE)
    assert ["UpdateItem", "GetItem"] == [call.target.rpartition(".")[2] for call in responder.calls]


def test_a_write_refused_for_its_time_may_find_nothing(table_of):
    """Then there is no item to judge by."""
    responder = Responder(SKEWED, told())

    assert Missing() == table_of(responder).write(TAKE)


def test_a_transaction_refused_for_its_time_is_decided_on_again(table_of):
    """Nothing was written, as after a conflict."""
    responder = Responder(SKEWED)

    assert Conflict() == table_of(responder).transact([TAKE], "token")
    assert 1 == len(responder.calls)


def test_a_call_refused_for_its_time_again_is_refused(table_of):
    """The clock is not what is wrong: the write is not sent again, and the read of the item is signed twice more."""
    responder = Responder(SKEWED)

    outcome = table_of(responder).write(TAKE)
    assert (AccessRefused, False) == (type(outcome.cause), outcome.ambiguous)
    assert 4 == len(responder.calls)
    assert [] == responder.refused_keys


def test_expired_keys_are_replaced_once(table_of):
    """The call is made again with the new ones."""
    responder = Responder(EXPIRED, told(Attributes=ITEM))
    responder.new_keys = ["second keys"]

    assert Applied(READ) == table_of(responder).write(TAKE)
    assert (["first keys"], 2) == (responder.refused_keys, len(responder.calls))


def test_new_keys_that_are_refused_are_not_replaced(table_of):
    """Were there better ones, they would have been found."""
    responder = Responder(EXPIRED)
    responder.new_keys = ["second keys", "third keys"]

    outcome = table_of(responder).write(TAKE)
    assert (AccessRefused, False) == (type(outcome.cause), outcome.ambiguous)
    assert (["first keys"], 2) == (responder.refused_keys, len(responder.calls))


@pytest.mark.parametrize("found", [[], [OSError("no metadata service")]])
def test_without_new_keys_the_call_is_not_made_again(table_of, found):
    """The server has said what is wrong; what kept keys from being found is not more to the point."""
    responder = Responder(EXPIRED)
    responder.new_keys = list(found)

    outcome = table_of(responder).write(TAKE)
    assert "ExpiredTokenException" == outcome.cause.code
    assert 1 == len(responder.calls)
