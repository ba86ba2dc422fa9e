"""Names are checked before anything is written."""

from collections.abc import Callable

import pytest
from hypothesis import given

from tests import strategies as some
from zae_limiter.core import names
from zae_limiter.core.errors import InvalidIdentifierError, InvalidNameError, ValidationError

NAME_CHECKS = [names.check_resource, names.check_limit_name, names.check_namespace, names.check_stack_name]


@given(some.entity_ids)
def test_entity_ids_that_may_be(value: str) -> None:
    """A letter or digit, then letters, digits and a few signs, up to 256."""
    names.check_entity_id(value)


@given(some.resources)
def test_resources_that_may_be(value: str) -> None:
    """A letter, then letters, digits and _ - . /, up to 64."""
    names.check_resource(value)


@given(some.limit_names)
def test_limit_names_that_may_be(value: str) -> None:
    """A letter, then letters, digits and _ - ., up to 64."""
    names.check_limit_name(value)


@given(some.namespaces)
def test_namespaces_that_may_be(value: str) -> None:
    """A letter or digit, then letters, digits and _ - ., up to 64."""
    names.check_namespace(value)


@given(some.stack_names)
def test_stack_names_that_may_be(value: str) -> None:
    """A letter, then letters, digits and hyphens, up to 55."""
    names.check_stack_name(value)


@given(some.not_text | some.broken_texts)
def test_entity_ids_that_may_not_be(value: object) -> None:
    """The error says field, value and reason."""
    with pytest.raises(InvalidIdentifierError) as caught:
        names.check_entity_id(value, "parent_id")

    assert ("parent_id", value) == (caught.value.field, caught.value.value)
    assert "" != caught.value.reason


@pytest.mark.parametrize("check", NAME_CHECKS)
@given(value=some.not_text | some.broken_texts)
def test_names_that_may_not_be(check: Callable[[object, str], None], value: object) -> None:
    """The error says field, value and reason."""
    with pytest.raises(InvalidNameError) as caught:
        check(value, "the field")

    assert ("the field", value) == (caught.value.field, caught.value.value)


@pytest.mark.parametrize("value", ["-a", ".a", "@a", "_", "a/b", "a" * 257])
def test_entity_ids_have_their_own_rule(value: str) -> None:
    """Neither a sign in front nor a slash anywhere."""
    with pytest.raises(InvalidIdentifierError):
        names.check_entity_id(value)


@pytest.mark.parametrize("value", ["1a", "_a", "/a", "a:b", "a" * 65])
def test_resources_have_their_own_rule(value: str) -> None:
    """A letter in front, and no colon."""
    with pytest.raises(InvalidNameError):
        names.check_resource(value)


@pytest.mark.parametrize("value", ["a/b", "1a", "a" * 65, "wcu", "PK", "GSI2SK", "total_events", "ttl", "s_0", "s_63"])
def test_limit_names_that_would_meet_other_attributes_are_refused(value: str) -> None:
    """A counter of usage stands under the name of its limit, beside the attributes of the record."""
    with pytest.raises(InvalidNameError):
        names.check_limit_name(value)


@pytest.mark.parametrize("value", ["s_", "s_x", "s", "WCU", "wcu2", "tk", "a.b_c-d"])
def test_limit_names_that_only_look_reserved_may_be(value: str) -> None:
    """No more is reserved than must be."""
    names.check_limit_name(value)


@pytest.mark.parametrize("value", ["_", "-a", "a/b", "a" * 65])
def test_namespaces_have_their_own_rule(value: str) -> None:
    """The reserved namespace cannot be registered."""
    with pytest.raises(InvalidNameError):
        names.check_namespace(value)


@pytest.mark.parametrize("value", ["my_app", "1app", "a" * 56])
def test_stack_names_have_their_own_rule(value: str) -> None:
    """Names of tables, functions and roles are derived from it."""
    with pytest.raises(InvalidNameError):
        names.check_stack_name(value)


def test_the_default_resource_is_allowed_only_where_asked_for() -> None:
    """Limits for every resource are a matter of entities alone."""
    names.check_resource("_default_", allow_default=True)

    with pytest.raises(InvalidNameError, match="only allowed for the limits of an entity"):
        names.check_resource("_default_")


@given(some.amounts)
def test_amounts_that_may_be(value: int) -> None:
    """Zero names a limit and takes nothing."""
    names.check_amount("tpm", value)


@given(some.not_whole_numbers)
def test_amounts_that_are_no_integer(value: object) -> None:
    """Neither a float nor a bool is an amount."""
    with pytest.raises(ValidationError, match="must be an int"):
        names.check_amount("tpm", value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [(-1, "at least 0"), (10**18 + 1, "at most"), (10**5000, "at most")],
    ids=["negative", "large", "huge"],
)
def test_amounts_out_of_bounds(value: int, reason: str) -> None:
    """No amount is negative or beyond what a table can count."""
    with pytest.raises(ValidationError, match=reason) as caught:
        names.check_amount("tpm", value)

    assert ("tpm", value) == (caught.value.field, caught.value.value)


@pytest.mark.parametrize("value", [None, b"a", "x" * 11, "a\ud800"])
def test_texts_that_no_table_can_keep(value: object) -> None:
    """Text may be of any script, but it must be text, and short."""
    with pytest.raises(ValidationError):
        names.check_text("principal", value, 10)


@pytest.mark.parametrize("value", ["", "日本", "a b\n"])
def test_texts_that_may_be(value: str) -> None:
    """A name to show may be of any script."""
    names.check_text("name", value, 10)
