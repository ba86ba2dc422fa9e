"""Attributes of one limit are distinguished from those of another and from shared ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.schema import attributes
from zae_limiter.schema.attributes import LimitAttribute, WarnedAttribute


@given(some.limit_names | st.just("wcu"), st.sampled_from(sorted(attributes.BUCKET_FIELDS)))
def test_bucket_attribute_is_parsed_to_limit_and_field(limit_name: str, field: str) -> None:
    """Limit names may contain underscores; the field follows the last one."""
    name = attributes.bucket_attribute(limit_name, field)

    assert LimitAttribute(limit_name, field) == attributes.parse_bucket_attribute(name)


@given(some.limit_names, st.sampled_from(sorted(attributes.CONFIG_FIELDS)))
def test_config_attribute_is_parsed_to_limit_and_field(limit_name: str, field: str) -> None:
    """A config stores the definition of a limit, and no balance."""
    name = attributes.config_attribute(limit_name, field)

    assert LimitAttribute(limit_name, field) == attributes.parse_config_attribute(name)


@given(some.resources | st.just("_default_"))
def test_registry_column_is_parsed_to_its_resource(resource: str) -> None:
    """Slashes and dots are part of the name."""
    assert resource == attributes.parse_registry_column(attributes.registry_column(resource))


@given(some.shard_ids)
def test_sequence_marker_is_parsed_to_its_shard(shard_id: int) -> None:
    """There is one per shard."""
    assert shard_id == attributes.parse_sequence_attribute(attributes.sequence_attribute(shard_id))


@given(some.limit_names)
def test_no_valid_limit_name_is_parsed_as_a_sequence_marker(limit_name: str) -> None:
    """Usage counters and markers are in the same item."""
    assert attributes.parse_sequence_attribute(limit_name) is None


@pytest.mark.parametrize(
    "name", ["", "rf", "b_", "b_tk", "b__tk", "b_rpm_xx", "l_rpm_tk", "l_rp", "cascade", "ttl", "s_", "r_"]
)
def test_other_attributes_are_not_parsed_as_those_of_limits(name: str) -> None:
    """Unknown attributes are ignored, not misread."""
    parsers = (
        attributes.parse_bucket_attribute,
        attributes.parse_config_attribute,
        attributes.parse_registry_column,
        attributes.parse_sequence_attribute,
    )

    assert [None] * 4 == [parse(name) for parse in parsers]


def test_attribute_names_are_those_of_the_specification() -> None:
    """Other tools that read the table depend on them."""
    assert "b_tpm_tk" == attributes.bucket_attribute("tpm", attributes.TOKENS)
    assert "l_tpm_rp" == attributes.config_attribute("tpm", attributes.REFILL_PERIOD)
    assert attributes.WRITE_COUNTER == attributes.bucket_attribute("wcu", attributes.TOTAL_CONSUMED)


@given(some.limit_names, st.sampled_from(sorted(attributes.BUCKET_FIELDS)))
def test_is_total_is_true_only_for_total_fields(limit_name: str, field: str) -> None:
    """The name of the limit makes no difference."""
    expected = field == attributes.TOTAL_CONSUMED

    assert expected == attributes.is_total(attributes.bucket_attribute(limit_name, field))
    assert attributes.is_total(attributes.WRITE_COUNTER)
    assert not attributes.is_total(attributes.config_attribute(limit_name, field))


@pytest.mark.parametrize("name", ["s_", "s_x", "s_\u00b2", f"s_{'1' * 5_000}"])
def test_invalid_shard_number_is_not_parsed_as_a_sequence_marker(name: str) -> None:
    """Attribute names are arbitrary, and may be longer than the longest number that Python parses."""
    assert attributes.parse_sequence_attribute(name) is None


@given(some.limit_names, st.integers(1, 10_000))
def test_warned_attribute_is_parsed_to_limit_and_threshold(limit_name: str, part: int) -> None:
    """Limit names may contain underscores; the threshold follows the last one."""
    name = attributes.warned_attribute(limit_name, part)

    assert WarnedAttribute(limit_name, part) == attributes.parse_warned_attribute(name)


@pytest.mark.parametrize(
    "name", ["", "ttl", "b_rpm_800", "w_", "w_800", "w__800", "w_rpm_", "w_rpm_x", "w_rpm_\u00b2", "w_rpm_100000"]
)
def test_other_attributes_are_not_parsed_as_thresholds(name: str) -> None:
    """Unknown attributes are ignored, and a number has at most five digits."""
    assert attributes.parse_warned_attribute(name) is None
