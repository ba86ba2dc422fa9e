"""The protocol page names exactly the writers, attributes and mutations that exist."""

import re
from inspect import isfunction
from pathlib import Path

import pytest

from tests.model.quotas_mutations import HARMLESS
from tests.model.quotas_mutations import MUTATIONS as OF_QUOTAS
from tests.mutations.catalogue import MUTATIONS
from tests.mutations.mutation import Mutation
from zae_limiter.schema import attributes, bucket_writes

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "protocol.md").read_text()
BROKEN = "broken on purpose as"
BROKEN_IN_MODEL = "broken in the model as"


def tables(heading: str) -> list[list[str]]:
    """Return the rows of all tables that have a column of this name."""
    blocks = [block.splitlines() for block in re.findall(r"(?:^\|.*\n)+", PAGE, re.MULTILINE)]
    return [
        [cell.strip() for cell in row.split("|")[1:-1]] for block in blocks if heading in block[0] for row in block[2:]
    ]


def names_of(cell: str) -> list[str]:
    """Return the code in a cell."""
    return re.findall(r"`([^`]+)`", cell)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda one: one.name)
def test_mutation_of_the_catalogue_is_named_beside_its_rule(mutation: Mutation):
    """The page has each rule in the words of the catalogue."""
    rules = [row[0] for row in tables(BROKEN) if mutation.name in names_of(row[-1])]

    assert [mutation.rule] == rules


def test_mutation_that_the_page_names_exists():
    """The catalogue has every mutation of the page."""
    named = [name for row in tables(BROKEN) for name in names_of(row[-1])]

    assert {mutation.name for mutation in MUTATIONS} == set(named)


def test_mutation_of_a_quota_is_named_beside_its_rule():
    """Those that no check notices may be named too: their rules are a second defence."""
    named = {name for row in tables(BROKEN_IN_MODEL) for name in names_of(row[-1])}

    assert set() == {mutation.name for mutation in OF_QUOTAS} - named
    assert set() == named - {mutation.name for mutation in (*OF_QUOTAS, *HARMLESS)}


def test_writers_on_the_page_are_those_of_the_code():
    """One function settles debits and credits, also with a take, and one makes resends."""
    rows = {re.sub(r"\*\*.*", "", row[0].strip("*")).strip() for row in tables("writer")}
    here = bucket_writes.__name__
    made = {name for name, one in vars(bucket_writes).items() if isfunction(one) and one.__module__ == here}
    public = {name for name in made if not name.startswith("_")}

    combined = {"take + debit", "take + credit"}
    assert public - {"settle", "sent_again", "take_and_settle"} | {"debit", "credit"} | combined == rows


def test_every_attribute_of_a_bucket_is_on_the_page():
    """A reader who looks into the table understands every attribute."""
    documented = {name for row in tables("attribute") for name in names_of(row[0])}
    fields = {name.rpartition("_")[2] for name in documented if name.startswith(("b_{limit}", "_"))}
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

    assert attributes.BUCKET_FIELDS | {"h{end}"} == fields
    assert shared <= documented
