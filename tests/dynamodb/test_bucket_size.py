"""The size of a bucket item by DynamoDB's rules, and when a take costs two write units.

The items are the largest possible: balances in debt and totals of years, and each has a parent.
"""

from typing import Any
from zoneinfo import available_timezones

import pytest

from tests.dynamodb.billing import item_bytes, write_units
from tests.one_bucket import Item, stored
from zae_limiter import Limit
from zae_limiter.core.names import MAX_QUOTA
from zae_limiter.core.quota import BAND, MOST_SPENT
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_writes import Owner, Signature
from zae_limiter.tables.dynamodb.codec import encode_item

UUID = "5f0c6b3e-8a1d-4c57-9e42-d1b7a9036c28"
NAMESPACE = "aB3dE6gH9kL"
SHORT = ("rpm", "tpm", "rpd", "tpd", "rps", "tps", "ipm")
LONG = ("requests_per_min", "tokens_in_minute", "tokens_out_daily", "images_generated")
LONGEST_ZONE = "America/Argentina/ComodRivadavia"
CREATED_MS = 1_790_000_000_123
SIGNATURE = Signature(2**60 - 1, 2**32 - 1)


def worn_bucket(*names: str, entity_id: str = UUID, resource: str = "openai/gpt-4o") -> Item:
    """Return the largest item of such limits, with up to a million tokens each, after years of use."""
    terms = stored(*(Limit.per_minute(name, 987_654) for name in names), ttl=7, stamp=12_345)
    item = dict(bucket_writes.create(Owner(NAMESPACE, entity_id, resource), terms, {}, CREATED_MS, SIGNATURE).item)
    balances = {f"b_{name}_tk": -987_654_321_987 for name in names}
    totals = {f"b_{name}_tc": 987_654_321_987_654_321 for name in names}
    return {**item, **balances, **totals, "b_wcu_tc": 987_654_321_987, "parent_id": UUID}


def worn_budget(**options: Any) -> Item:
    """Return the largest item of rpm, tpm and a budget in the time zone with the longest name."""
    schedule = {"starts": (31, "23:59"), "tz": LONGEST_ZONE}
    spend = Limit.quota("spend", MAX_QUOTA, **schedule, **options)
    terms = stored(Limit.per_minute("rpm", 987_654), Limit.per_minute("tpm", 987_654), spend, ttl=7, stamp=12_345)
    item = dict(bucket_writes.create(Owner(NAMESPACE, UUID, "openai/gpt-4o"), terms, {}, CREATED_MS, SIGNATURE).item)
    balances = {f"b_{name}_tk": -987_654_321_987 for name in ("rpm", "tpm")}
    totals = {f"b_{name}_tc": 987_654_321_987_654_321 for name in ("rpm", "tpm", "spend")}
    # The largest number before the year 2128, saturated.
    spent = {"b_spend_qk": -BAND * 9_999_999_999 - MOST_SPENT}
    return {**item, **balances, **totals, **spent, "b_wcu_tc": 987_654_321_987, "parent_id": UUID}


def units(item: Item) -> float:
    return write_units(item_bytes(encode_item(item)))


class TestRules:
    @pytest.mark.parametrize(
        ("value", "size"),
        [(0, 1), (7, 2), (-7, 3), (12, 2), (123, 3), (1_000_000, 2), (-123_000, 4), (10**38 - 1, 20)],
    )
    def test_a_number_takes_a_byte_per_two_digits(self, value, size):
        """It takes one more byte, and one for the sign; trailing zeros take none."""
        assert len("n") + size == item_bytes(encode_item({"n": value}))

    @pytest.mark.parametrize(("value", "size"), [("", 0), ("abc", 3), ("é", 2), (True, 1), (None, 1), ([1, "a"], 8)])
    def test_text_and_lists_take_their_documented_sizes(self, value, size):
        """Text takes its UTF-8 bytes; a list takes three bytes and one per element."""
        assert len("n") + size == item_bytes(encode_item({"n": value}))

    @pytest.mark.parametrize(("size", "expected"), [(0, 1), (1, 1), (1024, 1), (1025, 2), (2048, 2), (2049, 3)])
    def test_a_write_unit_is_a_started_kilobyte(self, size, expected):
        """Sizes are rounded up."""
        assert expected == write_units(size)


class TestBuckets:
    def test_a_bucket_of_five_limits_with_short_names_takes_one_write_unit(self):
        """Entity and parent are UUIDs, and the bucket is years old."""
        item = worn_bucket("rpm", "tpm", "rpd", "tpd", "imgs")

        assert item_bytes(encode_item(item)) < 1024

    @pytest.mark.parametrize(("count", "expected"), [(6, 1), (7, 2)])
    def test_a_bucket_of_seven_limits_with_short_names_takes_two_write_units(self, count, expected):
        """Six limits take one."""
        assert expected == units(worn_bucket(*SHORT[:count]))

    @pytest.mark.parametrize(("count", "expected"), [(3, 1), (4, 2)])
    def test_a_bucket_of_four_limits_with_long_names_takes_two_write_units(self, count, expected):
        """Each limit has five attributes with its name, here of sixteen letters."""
        assert expected == units(worn_bucket(*LONG[:count]))

    @pytest.mark.parametrize(("length", "expected"), [(102, 1), (103, 2)])
    def test_a_bucket_of_two_limits_and_a_long_entity_id_takes_two_write_units(self, length, expected):
        """The item contains the entity id five times: in its key, in three indexes, and as an attribute."""
        assert expected == units(worn_bucket("rpm", "tpm", entity_id="e" * length))

    @pytest.mark.parametrize(("length", "expected"), [(79, 1), (80, 2), (100, 2), (128, 2)])
    def test_a_bucket_of_two_limits_and_a_resource_of_80_characters_takes_two_write_units(self, length, expected):
        """The item contains the resource five times too."""
        assert expected == units(worn_bucket("rpm", "tpm", resource="r" * length))

    def test_a_bucket_of_the_longest_names_takes_three_write_units(self):
        """An entity id has 256 characters, and a resource 128."""
        assert 3 == units(worn_bucket("rpm", "tpm", entity_id="e" * 256, resource="r" * 128))

    def test_a_bucket_with_a_budget_takes_one_write_unit(self):
        """Its time zone has the longest name of all."""
        sizes = [
            item_bytes(encode_item(worn_budget(**options)))
            for options in ({}, {"unit": "USD", "enforce": False, "warn_at": (0.5, 0.75, 0.9, 1.0)})
        ]

        assert max(map(len, available_timezones())) <= len(LONGEST_ZONE)
        assert [805, 855] == sizes

    def test_one_more_letter_in_a_name_costs_five_bytes(self):
        """This holds for the entity, the resource and a limit."""
        item = item_bytes(encode_item(worn_bucket("rpm")))
        longer = [
            worn_bucket("rpm", entity_id=UUID + "x"),
            worn_bucket("rpm", resource="openai/gpt-4ox"),
            worn_bucket("rpmx"),
        ]

        assert [item + 5] * 3 == [item_bytes(encode_item(one)) for one in longer]

    def test_one_more_limit_costs_sixty_to_seventy_bytes(self):
        """Its name has three letters, and the bucket is years old."""
        one, two = (item_bytes(encode_item(worn_bucket(*SHORT[:count]))) for count in (1, 2))

        assert 60 <= two - one <= 70
