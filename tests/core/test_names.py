"""Names are checked before anything is written."""

import contextlib
import string
from collections.abc import Callable

import pytest
from hypothesis import given

from tests import strategies as some
from tests.real_names import ENTITY, PARENT, RESOURCES
from zae_limiter.core import names
from zae_limiter.core.errors import InvalidIdentifierError, InvalidNameError, ValidationError

NAME_CHECKS = [names.check_resource, names.check_limit_name, names.check_namespace, names.check_stack_name]


@given(some.entity_ids)
def test_valid_entity_ids_pass_the_check(value: str) -> None:
    """A letter or digit, then letters, digits and a few signs, up to 256."""
    names.check_entity_id(value)


@given(some.resources)
def test_valid_resources_pass_the_check(value: str) -> None:
    """A letter or @, then letters, digits and a few signs, up to 128."""
    names.check_resource(value)


@pytest.mark.parametrize("value", [*RESOURCES, "a" * 128])
def test_model_ids_of_providers_are_valid_resources(value: str) -> None:
    """Bedrock, OpenRouter, OpenAI and Cloudflare; a caller need not translate them."""
    names.check_resource(value)


@pytest.mark.parametrize("value", [ENTITY, PARENT, "1/2", "a" * 256])
def test_ids_of_identity_providers_and_paths_are_valid_entity_ids(value: str) -> None:
    """A caller need not translate them."""
    names.check_entity_id(value)


@given(some.limit_names)
def test_valid_limit_names_pass_the_check(value: str) -> None:
    """A letter, then letters, digits and _ - ., up to 64."""
    names.check_limit_name(value)


@given(some.namespaces)
def test_valid_namespaces_pass_the_check(value: str) -> None:
    """A letter or digit, then letters, digits and _ - ., up to 64."""
    names.check_namespace(value)


@given(some.stack_names)
def test_valid_stack_names_pass_the_check(value: str) -> None:
    """A letter, then letters, digits and hyphens, from 3 to 55."""
    names.check_stack_name(value)


@given(some.not_text | some.broken_texts)
def test_invalid_entity_ids_raise_with_field_value_and_reason(value: object) -> None:
    """Values that are no valid string are refused."""
    with pytest.raises(InvalidIdentifierError) as caught:
        names.check_entity_id(value, "parent_id")

    assert ("parent_id", value) == (caught.value.field, caught.value.value)
    assert "" != caught.value.reason


@pytest.mark.parametrize("check", NAME_CHECKS)
@given(value=some.not_text | some.broken_texts)
def test_invalid_names_raise_with_field_and_value(check: Callable[[object, str], None], value: object) -> None:
    """Every kind of name has the same checks of type and encoding."""
    with pytest.raises(InvalidNameError) as caught:
        check(value, "the field")

    assert ("the field", value) == (caught.value.field, caught.value.value)


@pytest.mark.parametrize("value", ["-a", ".a", "@a", "/a", "|a", "=a", "_", "$SYSTEM", "a" * 257])
def test_entity_id_with_a_leading_sign_or_257_characters_raises(value: str) -> None:
    """These are the rules of entity ids. Audit ids of other things start with a dollar sign."""
    with pytest.raises(InvalidIdentifierError, match=r"starts with a letter or digit|at most 256"):
        names.check_entity_id(value)


@pytest.mark.parametrize("value", ["1a", "_a", "/a", ":a", "=a", "|a", "+a", "-a", "__all__", "$SYSTEM", "a" * 129])
def test_resource_without_a_leading_letter_or_at_sign_or_with_129_characters_raises(value: str) -> None:
    """These are the rules of resources. Reserved resources start with an underscore."""
    with pytest.raises(InvalidNameError, match=r"starts with a letter or @|at most 128"):
        names.check_resource(value)


PRINTABLE = [chr(code) for code in range(32, 127)]
ALNUM = set(string.ascii_letters + string.digits)


def accepted(check: Callable[[object], None], text: str) -> set[str]:
    """Return the printable ASCII characters that a name may have at the place of ``*``."""
    found = set()
    for sign in PRINTABLE:
        with contextlib.suppress(ValidationError):
            check(text.replace("*", sign))
            found.add(sign)
    return found


def test_a_name_has_only_the_documented_signs() -> None:
    """No name has # or white space, which separate names, nor * or ?, which a policy would interpret."""
    assert ALNUM | set("_-./:@+|=") == accepted(names.check_entity_id, "a*") == accepted(names.check_resource, "a*")
    assert ALNUM == accepted(names.check_entity_id, "*a")
    assert {*string.ascii_letters, "@"} == accepted(names.check_resource, "*a")
    assert ALNUM | set("_-.") == accepted(names.check_limit_name, "a*") == accepted(names.check_namespace, "a*")


@pytest.mark.parametrize("value", ["a/b", "1a", "a" * 65, "wcu", "PK", "GSI2SK", "total_events", "ttl", "s_0", "s_63"])
def test_limit_names_that_collide_with_item_attributes_raise(value: str) -> None:
    """A usage counter has the name of its limit, next to the attributes of the record."""
    with pytest.raises(InvalidNameError):
        names.check_limit_name(value)


@pytest.mark.parametrize("value", ["s_", "s_x", "s", "WCU", "wcu2", "tk", "a.b_c-d"])
def test_limit_names_that_only_resemble_reserved_ones_pass_the_check(value: str) -> None:
    """No more is reserved than necessary."""
    names.check_limit_name(value)


@pytest.mark.parametrize("value", ["_", "-a", "a/b", "a" * 65])
def test_reserved_or_invalid_namespaces_raise(value: str) -> None:
    """The reserved namespace cannot be registered."""
    with pytest.raises(InvalidNameError):
        names.check_namespace(value)


@pytest.mark.parametrize("value", ["my_app", "1app", "a", "a1", "a" * 56])
def test_stack_names_that_aws_would_refuse_raise(value: str) -> None:
    """Names of tables, functions and roles are derived from it; a table's name has at least 3 characters."""
    with pytest.raises(InvalidNameError):
        names.check_stack_name(value)


def test_default_resource_raises_unless_it_is_allowed() -> None:
    """Only entities may have limits for all resources."""
    names.check_resource("_default_", allow_default=True)

    with pytest.raises(InvalidNameError, match="only allowed for the limits of an entity"):
        names.check_resource("_default_")


@given(some.amounts)
def test_valid_amounts_pass_the_check(value: int) -> None:
    """Zero names a limit and takes nothing."""
    names.check_amount("tpm", value)


@given(some.not_whole_numbers)
def test_amounts_that_are_no_integer_raise(value: object) -> None:
    """Neither a float nor a bool is an amount."""
    with pytest.raises(ValidationError, match="must be an int"):
        names.check_amount("tpm", value)


@pytest.mark.parametrize(
    ("value", "reason"),
    [(-1, "at least 0"), (10**18 + 1, "at most"), (10**5000, "at most")],
    ids=["negative", "large", "huge"],
)
def test_amounts_out_of_bounds_raise(value: int, reason: str) -> None:
    """An amount is not negative, and not beyond what a table can count."""
    with pytest.raises(ValidationError, match=reason) as caught:
        names.check_amount("tpm", value)

    assert ("tpm", value) == (caught.value.field, caught.value.value)


@pytest.mark.parametrize("value", [None, b"a", "x" * 11, "a\ud800"])
def test_texts_that_cannot_be_stored_raise(value: object) -> None:
    """A text may be in any script, but it must be a short valid string."""
    with pytest.raises(ValidationError):
        names.check_text("principal", value, 10)


@pytest.mark.parametrize("value", ["", "日本", "a b\n"])
def test_valid_texts_pass_the_check(value: str) -> None:
    """A display name may be in any script."""
    names.check_text("name", value, 10)
