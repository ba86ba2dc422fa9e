"""From changes to what is to be done about them: so much to be added to the usage of so many windows. Pure.

Changes may come more than once and in any order within a batch. A snapshot's marker says up to which change of a
shard it has counted, so a batch that comes again adds nothing; only a batch must not come before an earlier one of the
same shard, which neither a log nor a stream ever lets happen.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from zae_limiter.core.usage import WINDOW_TYPES, Window, window_at
from zae_limiter.schema.keys import BucketKey
from zae_limiter.schema.usage_item import AddUsage
from zae_limiter_aggregator.records import BucketChange


class Account(NamedTuple):
    """What one snapshot counts of one shard."""

    bucket: BucketKey
    window: Window


Accounts = Mapping[Account, Mapping[str, BucketChange]]
"""The changes that belong to each account, by sequence."""


def accounts_of(changes: Iterable[BucketChange], window_types: Iterable[str] = WINDOW_TYPES) -> Accounts:
    """Sort changes into the windows they belong to, each once."""
    types = tuple(window_types)
    accounts: dict[Account, dict[str, BucketChange]] = {}
    for change in changes:
        for window_type in types:
            account = Account(change.bucket, window_at(window_type, change.at_ms))
            accounts.setdefault(account, {})[change.sequence] = change
    return accounts


def addition(account: Account, changes: Mapping[str, BucketChange], counted: str | None) -> AddUsage | None:
    """What is to be added to a snapshot that has ``counted`` up to a change, None if it has counted them all."""
    fresh = [change for sequence, change in changes.items() if counted is None or sequence > counted]
    if not fresh:
        return None
    spent_milli: Counter[str] = Counter()
    for change in fresh:
        for name, amount in change.spent_milli.items():
            spent_milli[name] += amount
    last = max(change.sequence for change in fresh)
    return AddUsage(account.bucket, account.window, spent_milli, sum(change.writes for change in fresh), last)
