"""Differences between the engines and DynamoDB that the contract suite detects.

Each entry is a test that is expected to fail on one engine only. If the test passes again, the
suite fails, so that the entry is removed once the engine is fixed. Differences that the suite does
not detect are listed in ``tests.dynamodb.engines``.
"""

from collections.abc import Mapping
from typing import NamedTuple


class Deviation(NamedTuple):
    """A test that an engine fails. ``only`` restricts it to these parameter values; if empty, it applies to all."""

    engine: str
    test: str
    why: str
    only: Mapping[str, frozenset[object]] = {}

    def meets(self, test: str, parameters: Mapping[str, object]) -> bool:
        """Return whether the entry applies to this test with these parameters."""
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
        "test_a_query_by_prefix_returns_only_keys_with_the_prefix",
        "dynoxide's begins_with is SQLite's LIKE, to which a and A are the same; DynamoDB compares bytes",
        {"prefix": frozenset(("a", "b", "B"))},
    ),
]
