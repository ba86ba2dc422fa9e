"""How large a bucket's item is by DynamoDB's rules, and so from when on a take costs two write units.

The items are worn: balances in debt and totals of years, which take the most room; each has a parent.
"""

import pytest

from tests.dynamodb.billing import item_bytes, write_units
from tests.one_bucket import Item, stored
from zae_limiter import Limit
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_writes import Owner, Signature
from zae_limiter.tables.dynamodb.codec import encode_item

UUID = "5f0c6b3e-8a1d-4c57-9e42-d1b7a9036c28"
NAMESPACE = "aB3dE6gH9kL"
SHORT = ("rpm", "tpm", "rpd", "tpd", "rps", "tps", "ipm")
LONG = ("requests_per_min", "tokens_in_minute", "tokens_out_daily", "images_generated")
CREATED_MS = 1_790_000_000_123
SIGNATURE = Signature(2**60 - 1, 2**32 - 1)


def worn_bucket(*names: str, entity_id: str = UUID, resource: str = "openai/gpt-4o") -> Item:
    """The largest item that such limits of up to a million tokens come to in years."""
    terms = stored(*(Limit.per_minute(name, 987_654) for name in names), ttl=7, stamp=12_345)
    item = dict(bucket_writes.create(Owner(NAMESPACE, entity_id, resource), terms, {}, CREATED_MS, SIGNATURE).item)
    balances = {f"b_{name}_tk": -987_654_321_987 for name in names}
    totals = {f"b_{name}_tc": 987_654_321_987_654_321 for name in names}
    return {**item, **balances, **totals, "b_wcu_tc": 987_654_321_987, "parent_id": UUID}


def units(item: Item) -> float:
    return write_units(item_bytes(encode_item(item)))


class TestRules:
    @pytest.mark.parametrize(
        ("value", "size"),
        [(0, 1), (7, 2), (-7, 3), (12, 2), (123, 3), (1_000_000, 2), (-123_000, 4), (10**38 - 1, 20)],
    )
    def test_a_number_takes_a_byte_for_two_digits(self, value, size):
        """And one more, and one for its sign; zeros at its end take none."""
        assert len("n") + size == item_bytes(encode_item({"n": value}))

    @pytest.mark.parametrize(("value", "size"), [("", 0), ("abc", 3), ("é", 2), (True, 1), (None, 1), ([1, "a"], 8)])
    def test_what_other_values_take(self, value, size):
        """Text by its bytes, lists three bytes and one for each part."""
        assert len("n") + size == item_bytes(encode_item({"n": value}))

    @pytest.mark.parametrize(("size", "expected"), [(0, 1), (1, 1), (1024, 1), (1025, 2), (2048, 2), (2049, 3)])
    def test_a_write_unit_is_a_kilobyte(self, size, expected):
        """Begun ones are whole."""
        assert expected == write_units(size)


class TestBuckets:
    def test_five_limits_of_short_names_stay_within_one_unit(self):
        """With UUIDs for entity and parent, after years of use."""
        item = worn_bucket("rpm", "tpm", "rpd", "tpd", "imgs")

        assert item_bytes(encode_item(item)) < 1024

    @pytest.mark.parametrize(("count", "expected"), [(6, 1), (7, 2)])
    def test_seven_limits_of_short_names_take_two_units(self, count, expected):
        """Six take one."""
        assert expected == units(worn_bucket(*SHORT[:count]))

    @pytest.mark.parametrize(("count", "expected"), [(3, 1), (4, 2)])
    def test_four_limits_of_sixteen_letters_take_two_units(self, count, expected):
        """A name stands in five attributes of its limit."""
        assert expected == units(worn_bucket(*LONG[:count]))

    @pytest.mark.parametrize(("length", "expected"), [(102, 1), (103, 2)])
    def test_two_limits_take_two_units_where_the_entity_has_a_long_name(self, length, expected):
        """An entity's name stands in the item five times: in its key, in three indexes, and by itself."""
        assert expected == units(worn_bucket("rpm", "tpm", entity_id="e" * length))

    def test_a_letter_more_costs_five_bytes(self):
        """Of the entity, of the resource, or of a limit."""
        item = item_bytes(encode_item(worn_bucket("rpm")))
        longer = [
            worn_bucket("rpm", entity_id=UUID + "x"),
            worn_bucket("rpm", resource="openai/gpt-4ox"),
            worn_bucket("rpmx"),
        ]

        assert [item + 5] * 3 == [item_bytes(encode_item(one)) for one in longer]

    def test_a_limit_more_costs_sixty_to_seventy_bytes(self):
        """With a name of three letters, after years of use."""
        one, two = (item_bytes(encode_item(worn_bucket(*SHORT[:count]))) for count in (1, 2))

        assert 60 <= two - one <= 70
