"""What an engine does other than DynamoDB, as far as the contract suite meets it.

Every line is a test that is expected to fail on that engine, and only there; one that passes again is a failure too,
so that the line goes when the engine is mended. More of their differences, not met here, are in
``tests.dynamodb.engines``.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Deviation(NamedTuple):
    """A test that an engine fails; ``only``: with these values of these parameters, else with all."""

    engine: str
    test: str
    why: str
    only: Mapping[str, frozenset[object]] = {}

    def meets(self, test: str, parameters: Mapping[str, object]) -> bool:
        """Whether this is that test, on that engine, with those values."""
        if (test, parameters.get("table")) != (self.test, self.engine):
            return False
        return all(parameters[name] in values for name, values in self.only.items())


DEVIATIONS = [
    Deviation(
        "ministack",
        "test_sums_are_exact_to_38_digits",
        "ministack adds in Python's decimals of 28 digits; 10^18 tokens are 10^21 millitokens, and so are exact",
    ),
    Deviation(
        "dynoxide",
        "test_a_prefix_selects_what_begins_with_it",
        "dynoxide's begins_with is SQLite's LIKE, to which a and A are the same; DynamoDB compares bytes",
        {"prefix": frozenset(("a", "b", "B"))},
    ),
]
