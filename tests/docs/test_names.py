"""The names section of the guide states the rules that are checked."""

import re
from collections.abc import Callable

import pytest

from tests.docs.pages import ROOT
from zae_limiter import ValidationError
from zae_limiter.core.names import check_entity_id, check_limit_name, check_resource

PAGE = (ROOT / "docs" / "guide" / "basic-usage.md").read_text(encoding="utf-8")
RULES = " ".join(PAGE.partition("\n## Names\n")[2].partition("\n## ")[0].split())
ENTITY, RESOURCE, LIMIT = (
    RULES.partition(f"**{name}**")[2].partition(" - **")[0] for name in ("An entity id", "A resource", "A limit")
)


def is_valid(check: Callable[[object], None], name: str) -> bool:
    """Return whether a name passes a check."""
    try:
        check(name)
    except ValidationError:
        return False
    return True


@pytest.mark.parametrize(("check", "rule"), [(check_entity_id, ENTITY), (check_limit_name, LIMIT)])
def test_documented_signs_and_lengths_are_those_that_are_accepted(check, rule):
    """Every printable character that is not documented is rejected."""
    ((signs, longest),) = re.findall(r"letters, digits and `([^`]+)`, up to (\d+) characters", rule)
    accepted = {sign for sign in map(chr, range(32, 127)) if not sign.isalnum() and is_valid(check, f"a{sign}a")}

    assert set(signs.split()) == accepted
    assert (True, False) == (is_valid(check, "a" * int(longest)), is_valid(check, "a" * (int(longest) + 1)))


def test_documented_length_of_a_resource_is_that_which_is_accepted():
    """It has the characters of an entity id."""
    ((longest,),) = [re.findall(r"the same characters, up to (\d+)\.", RESOURCE)]
    signs = re.findall(r"digits and `([^`]+)`", ENTITY)[0].split()

    assert is_valid(check_resource, "a" + "".join(signs))
    assert (True, False) == (
        is_valid(check_resource, "a" * int(longest)),
        is_valid(check_resource, "a" * (int(longest) + 1)),
    )


def test_documented_examples_are_valid_names():
    """The section begins with them."""
    examples = re.findall(r"`([^`]+)`", RULES.partition(" - **")[0])

    assert 4 == len(examples)
    assert all(is_valid(check_resource, name) or is_valid(check_entity_id, name) for name in examples)
