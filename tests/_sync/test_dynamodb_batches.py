"""Batches that DynamoDB answers in parts, and how a table of it comes to be."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import RateLimiterUnavailable
from zae_limiter.schema.operations import Key

from .responder import DEADLINE_S, TABLE, UNREACHED, Responder, described, failed, table_before, told

KEYS = [Key("part", f"{number:03}") for number in range(250)]
NO_TABLE = failed("ResourceNotFoundException", "Requested resource not found")
IN_USE = failed("ResourceInUseException", f"Table already exists: {TABLE}")
ENABLED = failed("ValidationException", "TimeToLive is already enabled")
THROTTLE = failed("ThrottlingException")


@pytest.fixture
def table_of(monkeypatch):
    return lambda responder: table_before(responder, monkeypatch)


def encoded(*keys):
    return [{"PK": {"S": key.pk}, "SK": {"S": key.sk}} for key in keys]


def read(*keys, unread=()):
    """Return the answer to a batch: the items of some keys, and other keys left to be asked for."""
    left = {TABLE: {"Keys": encoded(*unread)}} if unread else {}
    return told(Responses={TABLE: encoded(*keys)}, UnprocessedKeys=left)


def deleted(*left):
    """Return the answer to a batch of deletes, some left to be asked for."""
    requests = [{"DeleteRequest": {"Key": key}} for key in encoded(*left)]
    return told(UnprocessedItems={TABLE: requests} if left else {})


def items(*keys):
    return [{"PK": key.pk, "SK": key.sk} for key in keys]


def keys_read(responder):
    return [[key["SK"]["S"] for key in body["RequestItems"][TABLE]["Keys"]] for body in responder.bodies]


def keys_deleted(responder):
    requests = [body["RequestItems"][TABLE] for body in responder.bodies]
    return [[request["DeleteRequest"]["Key"]["SK"]["S"] for request in some] for some in requests]


def test_keys_that_were_not_read_are_asked_for_again(table_of):
    """The items come in the order of the keys, whenever they came."""
    responder = Responder(read(KEYS[2], unread=KEYS[:2]), read(KEYS[1], unread=KEYS[:1]), read())

    assert [None, *items(KEYS[1], KEYS[2])] == table_of(responder).batch_get(KEYS[:3])
    assert [["000", "001", "002"], ["000", "001"], ["000"]] == keys_read(responder)


def test_keys_beyond_a_hundred_are_read_by_another_call(table_of):
    """What was left of the first goes with the second."""
    responder = Responder(read(*KEYS[1:100], unread=KEYS[:1]), read(*KEYS[100:199], KEYS[0]), read(*KEYS[199:]))

    assert items(*KEYS, *KEYS[:3]) == table_of(responder).batch_get([*KEYS, *KEYS[:3]])
    assert [100, 100, 51] == [len(keys) for keys in keys_read(responder)]


def test_keys_that_are_never_read_are_given_up_at_the_deadline(table_of):
    """A batch that gets nowhere is a table that does not answer."""
    for until_s in (None, DEADLINE_S):
        responder = Responder(read(unread=KEYS[:3]), takes_ms=50)
        began_s = responder.clock.monotonic_s()

        with pytest.raises(RateLimiterUnavailable):
            table_of(responder).batch_get(KEYS[:3], until_s=until_s and began_s + until_s)
        assert DEADLINE_S / 2 < responder.clock.monotonic_s() - began_s <= DEADLINE_S


def test_keys_that_were_not_deleted_are_asked_for_again(table_of):
    """Until there are none."""
    responder = Responder(deleted(KEYS[1], KEYS[0]), deleted(KEYS[0]), deleted())

    table_of(responder).batch_delete(KEYS[:3])
    assert [["000", "001", "002"], ["001", "000"], ["000"]] == keys_deleted(responder)


def test_keys_beyond_twenty_five_are_deleted_by_another_call(table_of):
    """A key that is named twice is deleted once."""
    responder = Responder(deleted())

    table_of(responder).batch_delete([*KEYS[:60], *KEYS[:3]])
    assert [25, 25, 10] == [len(keys) for keys in keys_deleted(responder)]


def test_keys_that_are_never_deleted_are_given_up(table_of):
    """In the time that administration has."""
    responder = Responder(deleted(*KEYS[:3]), takes_ms=50)
    began_s = responder.clock.monotonic_s()

    with pytest.raises(RateLimiterUnavailable):
        table_of(responder).batch_delete(KEYS[:3])
    assert DEADLINE_S < responder.clock.monotonic_s() - began_s <= 5 * DEADLINE_S


def test_an_empty_batch_asks_for_nothing(table_of):
    """There is no call without keys."""
    responder = Responder(read())

    assert [] == table_of(responder).batch_get([])
    table_of(responder).batch_delete([])
    assert [] == responder.calls


def test_a_table_that_is_there_is_not_made(table_of):
    """Creating is for the first who comes."""
    responder = Responder(described("ACTIVE"), described("ACTIVE"), ENABLED)

    table_of(responder).create()
    assert ["DescribeTable", "DescribeTable", "UpdateTimeToLive"] == responder.verbs


def test_a_table_that_is_not_there_is_made_and_waited_for(table_of):
    """It may take its time, and not be known everywhere at once."""
    steps = [NO_TABLE, told(), NO_TABLE, described("CREATING"), described("CREATING"), described("ACTIVE"), told()]
    responder = Responder(*steps)

    table_of(responder).create()
    expected = ["DescribeTable", "CreateTable", *["DescribeTable"] * 4, "UpdateTimeToLive"]
    assert expected == responder.verbs


def test_a_table_waits_for_its_indexes(table_of):
    """A query of an index that is being made would fail."""
    making = told(Table={"TableStatus": "ACTIVE", "GlobalSecondaryIndexes": [{"IndexStatus": "CREATING"}]})
    responder = Responder(making, making, described("ACTIVE"), told())

    table_of(responder).create()
    assert [*["DescribeTable"] * 3, "UpdateTimeToLive"] == responder.verbs


def test_a_table_that_another_makes_meanwhile_is_used(table_of):
    """Two who open at once make one table."""
    responder = Responder(NO_TABLE, IN_USE, described("CREATING"), described("ACTIVE"), ENABLED)

    table_of(responder).create()
    assert ["DescribeTable", "CreateTable", "DescribeTable", "DescribeTable", "UpdateTimeToLive"] == responder.verbs


def test_making_a_table_is_tried_again_while_that_may_help(table_of):
    """A table is made once, however often it is asked for."""
    failing = [THROTTLE, UNREACHED, failed("InternalServerError", status=500)]
    responder = Responder(NO_TABLE, *failing, IN_USE, described("ACTIVE"), *failing, told())

    table_of(responder).create()
    expected = ["DescribeTable", *["CreateTable"] * 4, "DescribeTable", *["UpdateTimeToLive"] * 4]
    assert expected == responder.verbs


@pytest.mark.parametrize("steps", [[], [NO_TABLE], [NO_TABLE, told(), described("ACTIVE")]])
def test_a_table_that_may_not_be_made_is_an_error(table_of, steps):
    """It says what is not allowed, whichever step it is."""
    responder = Responder(*steps, failed("AccessDeniedException", "not authorized to perform this"))

    with pytest.raises(RateLimiterUnavailable, match="not authorized to perform this"):
        table_of(responder).create()
    assert len(steps) + 1 == len(responder.calls)


def test_a_table_that_never_becomes_usable_is_given_up(table_of):
    """One that is being deleted, for example."""
    responder = Responder(described("DELETING"), takes_ms=1_000)

    with pytest.raises(RateLimiterUnavailable, match="could not be used"):
        table_of(responder).create()
    assert {"DescribeTable"} == set(responder.verbs)
