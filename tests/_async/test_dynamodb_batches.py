"""Batches that DynamoDB answers in parts, and the creation of a DynamoDB table."""

import pytest

from zae_limiter import RateLimiterUnavailable
from zae_limiter.schema.operations import Key

from .responder import DEADLINE_S, TABLE, UNREACHED, Responder, described, dynamo_table, failed, succeeded

KEYS = [Key("part", f"{number:03}") for number in range(250)]
NO_TABLE = failed("ResourceNotFoundException", "Requested resource not found")
IN_USE = failed("ResourceInUseException", f"Table already exists: {TABLE}")
ENABLED = failed("ValidationException", "TimeToLive is already enabled")
THROTTLE = failed("ThrottlingException")


@pytest.fixture
def table_of(monkeypatch):
    return lambda responder: dynamo_table(responder, monkeypatch)


def encoded(*keys):
    return [{"PK": {"S": key.pk}, "SK": {"S": key.sk}} for key in keys]


def read(*keys, unread=()):
    """Return the response to a batch read: the items of some keys, and other keys left unprocessed."""
    left = {TABLE: {"Keys": encoded(*unread)}} if unread else {}
    return succeeded(Responses={TABLE: encoded(*keys)}, UnprocessedKeys=left)


def deleted(*left):
    """Return the response to a batch of deletes, with some keys left unprocessed."""
    requests = [{"DeleteRequest": {"Key": key}} for key in encoded(*left)]
    return succeeded(UnprocessedItems={TABLE: requests} if left else {})


def items(*keys):
    return [{"PK": key.pk, "SK": key.sk} for key in keys]


def keys_read(responder):
    return [[key["SK"]["S"] for key in body["RequestItems"][TABLE]["Keys"]] for body in responder.bodies]


def keys_deleted(responder):
    requests = [body["RequestItems"][TABLE] for body in responder.bodies]
    return [[request["DeleteRequest"]["Key"]["SK"]["S"] for request in some] for some in requests]


async def test_batch_get_retries_unprocessed_keys(table_of):
    """The items are returned in the order of the keys."""
    responder = Responder(read(KEYS[2], unread=KEYS[:2]), read(KEYS[1], unread=KEYS[:1]), read())

    assert [None, *items(KEYS[1], KEYS[2])] == await table_of(responder).batch_get(KEYS[:3])
    assert [["000", "001", "002"], ["000", "001"], ["000"]] == keys_read(responder)


async def test_batch_get_of_more_than_100_keys_makes_several_calls(table_of):
    """Unprocessed keys of one call are sent with the next."""
    responder = Responder(read(*KEYS[1:100], unread=KEYS[:1]), read(*KEYS[100:199], KEYS[0]), read(*KEYS[199:]))

    assert items(*KEYS, *KEYS[:3]) == await table_of(responder).batch_get([*KEYS, *KEYS[:3]])
    assert [100, 100, 51] == [len(keys) for keys in keys_read(responder)]


async def test_batch_get_whose_keys_stay_unprocessed_raises_at_the_deadline(table_of):
    """A batch that makes no progress means that the table is unavailable."""
    for until_s in (None, DEADLINE_S):
        responder = Responder(read(unread=KEYS[:3]), takes_ms=50)
        began_s = responder.clock.monotonic_s()

        with pytest.raises(RateLimiterUnavailable):
            await table_of(responder).batch_get(KEYS[:3], until_s=until_s and began_s + until_s)
        assert DEADLINE_S / 2 < responder.clock.monotonic_s() - began_s <= DEADLINE_S


async def test_batch_delete_retries_unprocessed_keys(table_of):
    """Calls are repeated until no keys are left."""
    responder = Responder(deleted(KEYS[1], KEYS[0]), deleted(KEYS[0]), deleted())

    await table_of(responder).batch_delete(KEYS[:3])
    assert [["000", "001", "002"], ["001", "000"], ["000"]] == keys_deleted(responder)


async def test_batch_delete_of_more_than_25_keys_makes_several_calls(table_of):
    """A key that is passed twice is deleted once."""
    responder = Responder(deleted())

    await table_of(responder).batch_delete([*KEYS[:60], *KEYS[:3]])
    assert [25, 25, 10] == [len(keys) for keys in keys_deleted(responder)]


async def test_batch_delete_whose_keys_stay_unprocessed_raises_at_the_admin_deadline(table_of):
    """Administrative calls have a longer deadline than requests."""
    responder = Responder(deleted(*KEYS[:3]), takes_ms=50)
    began_s = responder.clock.monotonic_s()

    with pytest.raises(RateLimiterUnavailable):
        await table_of(responder).batch_delete(KEYS[:3])
    assert DEADLINE_S < responder.clock.monotonic_s() - began_s <= 5 * DEADLINE_S


async def test_empty_batch_makes_no_call(table_of):
    """DynamoDB refuses a batch without keys."""
    responder = Responder(read())

    assert [] == await table_of(responder).batch_get([])
    await table_of(responder).batch_delete([])
    assert [] == responder.calls


async def test_create_of_an_existing_table_only_enables_ttl(table_of):
    """CreateTable is called only if the table is missing."""
    responder = Responder(described("ACTIVE"), described("ACTIVE"), ENABLED)

    await table_of(responder).create()
    assert ["DescribeTable", "DescribeTable", "UpdateTimeToLive"] == responder.verbs


async def test_create_of_a_missing_table_waits_until_it_is_active(table_of):
    """The new table may be reported as missing for a while."""
    steps = [
        NO_TABLE,
        succeeded(),
        NO_TABLE,
        described("CREATING"),
        described("CREATING"),
        described("ACTIVE"),
        succeeded(),
    ]
    responder = Responder(*steps)

    await table_of(responder).create()
    expected = ["DescribeTable", "CreateTable", *["DescribeTable"] * 4, "UpdateTimeToLive"]
    assert expected == responder.verbs


async def test_create_waits_until_the_indexes_are_active(table_of):
    """A query of an index that is being created would fail."""
    making = succeeded(Table={"TableStatus": "ACTIVE", "GlobalSecondaryIndexes": [{"IndexStatus": "CREATING"}]})
    responder = Responder(making, making, described("ACTIVE"), succeeded())

    await table_of(responder).create()
    assert [*["DescribeTable"] * 3, "UpdateTimeToLive"] == responder.verbs


async def test_create_of_a_table_that_another_client_creates_uses_it(table_of):
    """Two clients that open at the same time create one table."""
    responder = Responder(NO_TABLE, IN_USE, described("CREATING"), described("ACTIVE"), ENABLED)

    await table_of(responder).create()
    assert ["DescribeTable", "CreateTable", "DescribeTable", "DescribeTable", "UpdateTimeToLive"] == responder.verbs


async def test_create_retries_throttled_and_failed_calls(table_of):
    """The table is created once, however many calls it takes."""
    failing = [THROTTLE, UNREACHED, failed("InternalServerError", status=500)]
    responder = Responder(NO_TABLE, *failing, IN_USE, described("ACTIVE"), *failing, succeeded())

    await table_of(responder).create()
    expected = ["DescribeTable", *["CreateTable"] * 4, "DescribeTable", *["UpdateTimeToLive"] * 4]
    assert expected == responder.verbs


@pytest.mark.parametrize("steps", [[], [NO_TABLE], [NO_TABLE, succeeded(), described("ACTIVE")]])
async def test_create_without_permission_raises_with_the_reason(table_of, steps):
    """Every step reports what is not allowed, without a retry."""
    responder = Responder(*steps, failed("AccessDeniedException", "not authorized to perform this"))

    with pytest.raises(RateLimiterUnavailable, match="not authorized to perform this"):
        await table_of(responder).create()
    assert len(steps) + 1 == len(responder.calls)


async def test_create_of_a_table_that_never_becomes_active_raises(table_of):
    """For example, a table that is being deleted."""
    responder = Responder(described("DELETING"), takes_ms=1_000)

    with pytest.raises(RateLimiterUnavailable, match="could not be used"):
        await table_of(responder).create()
    assert {"DescribeTable"} == set(responder.verbs)
