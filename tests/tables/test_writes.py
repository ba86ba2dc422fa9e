"""Single operations: what they write and what they return."""

from pathlib import Path

import pytest

from tests.tables.engines import KEY, FixedClock, item, sqlite
from zae_limiter._async.table import Table
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.outcome import Applied, Missing, Refused
from zae_limiter.schema.operations import Delete, Equals, ItemAbsent, ItemExists, Key, Put, Update


async def test_a_put_item_is_returned_and_read(table: Table) -> None:
    """The put and the read return the same item."""
    outcome = await table.write(Put(item(a=1)))

    assert Applied(item(a=1)) == outcome
    assert item(a=1) == await table.get(KEY)
    assert item(a=1) == await table.get(KEY, consistent=True)


async def test_reading_a_missing_item_returns_none(table: Table) -> None:
    """A missing item is None."""
    await table.write(Put(item()))

    assert await table.get(Key("part", "other")) is None
    assert await table.get(Key("other", "sort")) is None


async def test_a_put_replaces_the_whole_item(table: Table) -> None:
    """No attribute of the old item stays."""
    await table.write(Put(item(a=1, b=2)))
    await table.write(Put(item(c=3)))

    assert item(c=3) == await table.get(KEY)


async def test_a_refused_put_returns_the_stored_item(table: Table) -> None:
    """A refusal returns the current item and changes nothing."""
    await table.write(Put(item(a=1)))
    outcome = await table.write(Put(item(a=2), when=(ItemAbsent(),)))

    assert Refused(item(a=1)) == outcome
    assert item(a=1) == await table.get(KEY)


async def test_an_update_adds_sets_and_removes(table: Table) -> None:
    """All changes of an update are applied together."""
    await table.write(Put(item(number=10, word="old", gone=True, kept=None)))
    outcome = await table.write(Update(KEY, add={"number": -3}, set={"word": "new"}, remove=("gone",)))

    assert Applied(item(number=7, word="new", kept=None)) == outcome
    assert item(number=7, word="new", kept=None) == await table.get(KEY)


async def test_an_update_creates_a_missing_item(table: Table) -> None:
    """No condition forbids it here; a missing number counts as zero."""
    outcome = await table.write(Update(KEY, add={"number": 5}, set={"word": "new"}, remove=("gone",)))

    assert Applied(item(number=5, word="new")) == outcome
    assert item(number=5, word="new") == await table.get(KEY)


async def test_an_update_without_changes_creates_the_item(table: Table) -> None:
    """An item may consist of its key only."""
    assert Applied(item()) == await table.write(Update(KEY))
    assert item() == await table.get(KEY)


async def test_an_update_that_requires_an_item_does_not_create_it(table: Table) -> None:
    """The outcome is missing, not refused."""
    assert Missing() == await table.write(Update(KEY, add={"number": 5}, when=(ItemExists(),)))
    assert Missing() == await table.write(Update(KEY, add={"number": 5}, when=(Equals("word", "old"),)))
    assert await table.get(KEY) is None


async def test_a_refused_update_changes_nothing(table: Table) -> None:
    """Every condition has to hold."""
    await table.write(Put(item(number=1, word="old")))
    outcome = await table.write(
        Update(KEY, add={"number": 1}, set={"word": "new"}, when=(Equals("number", 1), Equals("word", "other")))
    )

    assert Refused(item(number=1, word="old")) == outcome
    assert item(number=1, word="old") == await table.get(KEY)


async def test_an_update_of_a_stale_client_is_checked_against_the_stored_item(table: Table) -> None:
    """Conditions apply to the current item, also if another client wrote it."""
    await table.write(Put(item(number=1)))
    await table.write(Update(KEY, add={"number": 1}))
    await table.write(Put(item(number=10)))

    assert Refused(item(number=10)) == await table.write(Update(KEY, add={"number": 1}, when=(Equals("number", 2),)))
    assert Applied(item(number=11)) == await table.write(Update(KEY, add={"number": 1}, when=(Equals("number", 10),)))


async def test_an_update_after_a_delete_starts_from_an_empty_item(table: Table) -> None:
    """A deleted item leaves nothing behind."""
    await table.write(Put(item(number=1)))
    await table.write(Update(KEY, add={"number": 1}))
    await table.write(Delete(KEY))

    assert Missing() == await table.write(Update(KEY, add={"number": 1}, when=(ItemExists(),)))
    assert Applied(item(number=1)) == await table.write(Update(KEY, add={"number": 1}))


@pytest.mark.parametrize("before", ["word", True, None, [1], {"a": 1}])
async def test_adding_to_an_attribute_that_is_not_a_number_raises_an_error(table: Table, before: object) -> None:
    """The item stays unchanged."""
    await table.write(Put(item(number=before, other=1)))

    with pytest.raises(ValidationError):
        await table.write(Update(KEY, add={"other": 1, "number": 1}))
    assert item(number=before, other=1) == await table.get(KEY)


async def test_an_update_that_changes_the_key_raises_an_error(table: Table) -> None:
    """This includes an update that creates the item."""
    for operation in (Update(KEY, set={"SK": "other"}), Update(KEY, remove=("PK",))):
        with pytest.raises(ValidationError):
            await table.write(operation)
    assert await table.get(KEY) is None

    await table.write(Put(item()))
    with pytest.raises(ValidationError):
        await table.write(Update(KEY, set={"PK": "other"}))
    assert item() == await table.get(KEY)


async def test_reading_a_deleted_item_returns_none(table: Table) -> None:
    """The delete and later reads return None."""
    await table.write(Put(item(a=1)))

    assert Applied({}) == await table.write(Delete(KEY))
    assert await table.get(KEY) is None


async def test_deleting_a_missing_item_succeeds(table: Table) -> None:
    """A delete without a condition only requires absence."""
    assert Applied({}) == await table.write(Delete(KEY))
    assert Missing() == await table.write(Delete(KEY, when=(ItemExists(),)))


async def test_a_refused_delete_keeps_the_item(table: Table) -> None:
    """A delete may have conditions as any write."""
    await table.write(Put(item(a=1)))

    assert Refused(item(a=1)) == await table.write(Delete(KEY, when=(Equals("a", 2),)))
    assert item(a=1) == await table.get(KEY)
    assert Applied({}) == await table.write(Delete(KEY, when=(Equals("a", 1),)))


async def test_returned_items_do_not_change_with_later_writes(table: Table) -> None:
    """A caller may keep a returned item."""
    put = await table.write(Put(item(number=1)))
    read = await table.get(KEY)
    updated = await table.write(Update(KEY, add={"number": 1}))
    refused = await table.write(Put(item(), when=(ItemAbsent(),)))
    await table.write(Update(KEY, add={"number": 1}, set={"word": "new"}))
    await table.write(Delete(KEY))

    assert (Applied(item(number=1)), item(number=1)) == (put, read)
    assert (Applied(item(number=2)), Refused(item(number=2))) == (updated, refused)


async def test_a_table_copies_the_items_it_is_given(table: Table) -> None:
    """A caller may change its dictionary afterwards."""
    mine = item(number=1)
    await table.write(Put(mine))
    mine["number"] = 2

    assert item(number=1) == await table.get(KEY)


async def test_a_batch_get_returns_items_in_the_order_of_its_keys(table: Table) -> None:
    """A missing item is None, and a repeated key is returned twice."""
    for sk in ("a", "b", "c"):
        await table.write(Put(item("part", sk)))
    keys = [Key("part", sk) for sk in ("c", "absent", "a", "c")]

    assert [item("part", "c"), None, item("part", "a"), item("part", "c")] == await table.batch_get(keys)
    assert [] == await table.batch_get([])


async def test_a_batch_get_may_have_more_than_a_hundred_keys(table: Table) -> None:
    """The table splits it into several requests."""
    for number in range(120):
        await table.write(Put(item("part", f"{number:03}")))
    keys = [Key("part", f"{number:03}") for number in reversed(range(125))]

    assert [None] * 5 + [item(*key) for key in keys[5:]] == await table.batch_get(keys, consistent=True)


async def test_a_batch_delete_removes_every_key(table: Table) -> None:
    """Missing and repeated keys are allowed, and so are more than a hundred."""
    for number in range(120):
        await table.write(Put(item("part", f"{number:03}", GSI1PK="index", GSI1SK="same")))
    await table.batch_delete([Key("part", f"{number % 110:03}") for number in range(230)] + [Key("no", "such")])

    assert await table.get(Key("part", "109")) is None
    assert item("part", "110", GSI1PK="index", GSI1SK="same") == await table.get(Key("part", "110"))
    await table.batch_delete([])


async def test_an_invalid_update_is_checked_against_the_stored_item(tmp_path: Path, clock: FixedClock) -> None:
    """An item corrected by another connection to the file raises no error."""
    first, second = sqlite(tmp_path, clock), sqlite(tmp_path, clock)
    await first.write(Put(item(number="word")))
    await second.write(Put(item(number=1)))

    assert Applied(item(number=2)) == await first.write(Update(KEY, add={"number": 1}))
    await first.close()
    await second.close()
