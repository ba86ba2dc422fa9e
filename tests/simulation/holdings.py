"""What users hold, by their own account: the least and the most that the table may have counted of each limit.

A grant that is missing in the table moves the table's total out of these bounds. So does a charge that was not
requested, and a credit that is applied twice. Without faults the two bounds meet as soon as no request is in flight,
and the total equals them.
"""

from collections.abc import Iterable

from tests.simulation.invariants import BucketId, Violation

Amounts = dict[str, int]
"""Tokens, by limit."""

_UNBOUNDED = 10**30

SLOT_LIMIT = "slots"
"""The limit of concurrent use is not counted here: ``slot_holders`` does that."""


class Account:
    """One limit of one bucket, in millitokens: the table's total, and the bounds that it must stay in."""

    __slots__ = ("least", "most", "total")

    def __init__(self) -> None:
        self.least = self.most = self.total = 0


class Holdings:
    """The accounts of all limits of all buckets."""

    def __init__(self) -> None:
        self.accounts: dict[tuple[BucketId, str], Account] = {}

    def acted(self, bucket: BucketId, name: str, spent: int, unanswered: bool) -> None:
        """Record what the table counted. A write whose sender gets no answer may be applied once more."""
        account = self._account(bucket, name)
        account.total += spent
        if unanswered and spent > 0:
            account.most += spent
        self._check(bucket, name, account)

    def forgot(self, bucket: BucketId, name: str, gone: bool = False) -> None:
        """Record that the table has dropped a limit of a bucket: later credits to it are lost.

        ``gone``: the limit was removed, so later charges to it are lost too.
        """
        account = self._account(bucket, name)
        account.most += _UNBOUNDED
        if gone:
            account.least -= _UNBOUNDED

    def may_take(self, bucket: BucketId, amounts: Amounts) -> None:
        """Record that a user requests or settles these tokens: from now on they may be counted."""
        for name, amount in _counted(amounts):
            self._account(bucket, name).most += amount * 1000

    def did_take(self, bucket: BucketId, amounts: Amounts) -> None:
        """Record that a user was granted these tokens: they must have been counted."""
        for name, amount in _counted(amounts):
            account = self._account(bucket, name)
            account.least += amount * 1000
            self._check(bucket, name, account)

    def did_not_take(self, bucket: BucketId, amounts: Amounts) -> None:
        """Record that a user was refused these tokens, or that they were credited."""
        for name, amount in _counted(amounts):
            account = self._account(bucket, name)
            account.most -= amount * 1000
            self._check(bucket, name, account)

    def may_give_back(self, bucket: BucketId, amounts: Amounts) -> None:
        """Record that a user begins to return these tokens."""
        for name, amount in _counted(amounts):
            self._account(bucket, name).least -= amount * 1000

    def unsettled(self) -> Iterable[tuple[BucketId, str, Account]]:
        """Yield the accounts whose bounds differ."""
        for (bucket, name), account in self.accounts.items():
            if account.least != account.most:
                yield bucket, name, account

    def _account(self, bucket: BucketId, name: str) -> Account:
        found = self.accounts.get((bucket, name))
        if found is None:
            found = self.accounts[bucket, name] = Account()
        return found

    @staticmethod
    def _check(bucket: BucketId, name: str, account: Account) -> None:
        if account.total < account.least:
            raise Violation("uncounted", bucket, name, account.total, "counted, held at least", account.least)
        if account.total > account.most:
            raise Violation("overcounted", bucket, name, account.total, "counted, held at most", account.most)


def _counted(amounts: Amounts) -> list[tuple[str, int]]:
    return [(name, amount) for name, amount in amounts.items() if name != SLOT_LIMIT]
