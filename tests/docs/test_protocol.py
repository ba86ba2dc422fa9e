"""The protocol page speaks of the writers, attributes and broken rules that there are, and of all of them."""

import re
from inspect import isfunction
from pathlib import Path

import pytest

from tests.simulation.mutants import MUTANTS
from zae_limiter.schema import attributes, bucket_writes

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "protocol.md").read_text()
BROKEN = "broken on purpose as"


def tables(heading: str) -> list[list[str]]:
    """The rows of all tables that have a column of this name."""
    blocks = [block.splitlines() for block in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)]
    return [
        [cell.strip() for cell in row.split("|")[1:-1]] for block in blocks if heading in block[0] for row in block[2:]
    ]


def names_of(cell: str) -> list[str]:
    """What stands in code in a cell."""
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("name", [one.name for one in MUTANTS])
def test_a_rule_that_is_broken_on_purpose_is_explained(name):
    """Whoever adds a mutation says on the page what its rule is for."""
    assert f"`{name}`" in PAGE


def test_every_broken_rule_the_page_names_is_one():
    """A name that is looked for is found."""
    named = {name for row in tables(BROKEN) for name in names_of(row[-1])}

    assert named
    assert named <= {one.name for one in MUTANTS}


def test_the_writers_are_those_of_the_code():
    """A new writer starts as a row; one write settles debits and credits, and one is sent again as it was."""
    rows = {re.sub(r"\W.*", "", row[0].strip("*")) for row in tables("writer")}
    here = bucket_writes.__name__
    made = {name for name, one in vars(bucket_writes).items() if isfunction(one) and one.__module__ == here}
    public = {name for name in made if not name.startswith("_")}

    assert public - {"settle", "sent_again"} | {"debit", "credit"} == rows


def test_every_attribute_of_a_bucket_is_told():
    """Whoever looks into the table understands what is there."""
    told = {name for row in tables("attribute") for name in names_of(row[0])}
    fields = {name.rpartition("_")[2] for name in told if name.startswith(("b_{limit}", "_"))}
    shared = {
        attributes.BASELINE,
        attributes.SHARD_COUNT,
        attributes.STAMP,
        attributes.GENERATION,
        attributes.BIRTH,
        attributes.OWN_LIMITS_DIGEST,
        attributes.FILL_TIME,
        attributes.NONCE,
        attributes.CASCADE,
        attributes.PARENT_ID,
        attributes.WRITE_COUNTER,
        attributes.TTL,
    }

    assert attributes.BUCKET_FIELDS == fields
    assert shared <= told
