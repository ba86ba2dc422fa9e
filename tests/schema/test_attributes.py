"""Attributes of one limit are told from those of another and from shared ones."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests import strategies as some
from zae_limiter.schema import attributes
from zae_limiter.schema.attributes import LimitAttribute


@given(some.limit_names | st.just("wcu"), st.sampled_from(sorted(attributes.BUCKET_FIELDS)))
def test_a_bucket_attribute_leads_back_to_limit_and_field(limit_name: str, field: str) -> None:
    """Names of limits may hold underscores; the field is what follows the last one."""
    name = attributes.bucket_attribute(limit_name, field)

    assert LimitAttribute(limit_name, field) == attributes.parse_bucket_attribute(name)


@given(some.limit_names, st.sampled_from(sorted(attributes.CONFIG_FIELDS)))
def test_a_config_attribute_leads_back_to_limit_and_field(limit_name: str, field: str) -> None:
    """A config keeps what makes a limit, and no balance."""
    name = attributes.config_attribute(limit_name, field)

    assert LimitAttribute(limit_name, field) == attributes.parse_config_attribute(name)


@given(some.resources | st.just("_default_"))
def test_a_registry_column_leads_back_to_its_resource(resource: str) -> None:
    """Slashes and dots are part of the name."""
    assert resource == attributes.parse_registry_column(attributes.registry_column(resource))


@given(some.shard_ids)
def test_a_sequence_marker_leads_back_to_its_shard(shard_id: int) -> None:
    """There is one per shard."""
    assert shard_id == attributes.parse_sequence_attribute(attributes.sequence_attribute(shard_id))


@given(some.limit_names)
def test_no_limit_name_is_a_sequence_marker(limit_name: str) -> None:
    """Counters of usage and markers stand side by side."""
    assert attributes.parse_sequence_attribute(limit_name) is None


@pytest.mark.parametrize(
    "name", ["", "rf", "b_", "b_tk", "b__tk", "b_rpm_xx", "l_rpm_tk", "l_rp", "cascade", "ttl", "s_", "r_"]
)
def test_other_attributes_are_told_from_those_of_limits(name: str) -> None:
    """Unknown attributes are ignored, not misread."""
    parsers = (
        attributes.parse_bucket_attribute,
        attributes.parse_config_attribute,
        attributes.parse_registry_column,
        attributes.parse_sequence_attribute,
    )

    assert [None] * 4 == [parse(name) for parse in parsers]


def test_names_are_those_of_the_specification() -> None:
    """Other tools that read the table know these."""
    assert "b_tpm_tk" == attributes.bucket_attribute("tpm", attributes.TOKENS)
    assert "l_tpm_rp" == attributes.config_attribute("tpm", attributes.REFILL_PERIOD)
    assert attributes.WRITE_COUNTER == attributes.bucket_attribute("wcu", attributes.TOTAL_CONSUMED)


@given(some.limit_names, st.sampled_from(sorted(attributes.BUCKET_FIELDS)))
def test_totals_are_told_from_other_fields(limit_name: str, field: str) -> None:
    """Whatever the limit is called."""
    expected = field == attributes.TOTAL_CONSUMED

    assert expected == attributes.is_total(attributes.bucket_attribute(limit_name, field))
    assert attributes.is_total(attributes.WRITE_COUNTER)
    assert not attributes.is_total(attributes.config_attribute(limit_name, field))


@pytest.mark.parametrize("name", ["s_", "s_x", "s_\u00b2", f"s_{'1' * 5_000}"])
def test_a_name_that_numbers_no_shard_is_no_sequence_marker(name: str) -> None:
    """Attribute names of an item are arbitrary, and longer than the longest number that is read from text."""
    assert attributes.parse_sequence_attribute(name) is None
