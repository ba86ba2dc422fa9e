"""What users hold, by their own account: the least and the most that the table can have counted of every limit.

A grant that is not in the table, a charge that nobody asked for, a credit that is given twice: each leaves the table's
total outside of these two. Without faults the two meet as soon as nothing is under way, and the total is what they say.
"""

from collections.abc import Iterable

from tests.simulation.invariants import BucketId, Violation

Amounts = dict[str, int]
"""Tokens, by limit."""

_UNBOUNDED = 10**30


class Account:
    """One limit of one bucket, in millitokens: what the table has counted, and can have at least and at most."""

    __slots__ = ("least", "most", "total")

    def __init__(self) -> None:
        self.least = self.most = self.total = 0


class Holdings:
    """The accounts of all limits of all buckets."""

    def __init__(self) -> None:
        self.accounts: dict[tuple[BucketId, str], Account] = {}

    def acted(self, bucket: BucketId, name: str, spent: int, unheard: bool) -> None:
        """Book what the table has counted; a write whose sender never hears of it may be made once more."""
        account = self._account(bucket, name)
        account.total += spent
        if unheard and spent > 0:
            account.most += spent
        self._check(bucket, name, account)

    def forgot(self, bucket: BucketId, name: str, gone: bool = False) -> None:
        """Book that the table has forgotten a limit of a bucket: what is given back to it then is given to nobody.

        ``gone``: the limit was taken out, and what is charged to it afterwards is charged to nobody either.
        """
        account = self._account(bucket, name)
        account.most += _UNBOUNDED
        if gone:
            account.least -= _UNBOUNDED

    def may_take(self, bucket: BucketId, amounts: Amounts) -> None:
        """Book that somebody asks for so much, or settles it: it may be counted from now on."""
        for name, amount in amounts.items():
            self._account(bucket, name).most += amount * 1000

    def did_take(self, bucket: BucketId, amounts: Amounts) -> None:
        """Book that somebody was told that so much is theirs: it must have been counted."""
        for name, amount in amounts.items():
            account = self._account(bucket, name)
            account.least += amount * 1000
            self._check(bucket, name, account)

    def did_not_take(self, bucket: BucketId, amounts: Amounts) -> None:
        """Book that somebody was told that so much is not theirs, or that it was given back."""
        for name, amount in amounts.items():
            account = self._account(bucket, name)
            account.most -= amount * 1000
            self._check(bucket, name, account)

    def may_give_back(self, bucket: BucketId, amounts: Amounts) -> None:
        """Book that somebody begins to give so much back."""
        for name, amount in amounts.items():
            self._account(bucket, name).least -= amount * 1000

    def unsettled(self) -> Iterable[tuple[BucketId, str, Account]]:
        """Return the accounts of which it is not known exactly what the table must have counted."""
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
