"""What the journals say of each limit of each entity: the bounds that the table's count must be in, and the times."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from tests.soak.journal import Amounts, Merge, Record, Step
from tests.soak.promise import Entry
from tests.soak.scenario import DEADLINE_S, MEMBERS, NAMES
from tests.soak.stores import Outage

DEADLINE_NS = int(DEADLINE_S * 1e9)
CLOCK_NS = 100_000_000
"""The largest error of a table's clock that is read to the second."""

Owner = tuple[str, str]
"""An entity, and one of its limits."""


@dataclass(slots=True)
class Account:
    """One limit of one entity: the least and the most that was used of it, in millitokens, and all its changes."""

    least: int = 0
    most: int = 0
    # Totals that were deleted with merged shards, at least and at most.
    gone_least: int = 0
    gone_most: int = 0
    entries: list[Entry] = field(default_factory=list)

    @property
    def doubt(self) -> int:
        """The difference between the bounds."""
        return self.most - self.least


Accounts = dict[Owner, Account]


def accounts_of(record: Record, outages: Sequence[Outage]) -> Accounts:
    """Return the accounts of all journals, by entity and limit; a parent has the charges of its children."""
    accounts = {(entity_id, name): Account() for entity_id in MEMBERS for name in NAMES}
    for step in record.steps:
        if step.outcome not in ("ok", "rejected"):
            step = replace(step, after_ns=_acted_by(step.before_ns, step.after_ns, outages))
        for owner, milli in _charged(step.entity_id, step.amounts):
            (_enter_take if step.kind == "take" else _enter_settlement)(accounts[owner], step, milli)
    for doubt in record.doubts:
        for name, milli in doubt.totals.items():
            # A resent write may have counted twice; a credit in it may be lost, because its caller gets no error.
            accounts[doubt.entity_id, name].most += abs(milli)
            sent_ns = doubt.at_ns - DEADLINE_NS
            late = Entry("passing", 0.0, sent_ns, _acted_by(sent_ns, doubt.at_ns, outages))
            accounts[doubt.entity_id, name].entries.append(late)
    forgotten = [outage for outage in outages if outage.forgets]
    for transaction in record.transactions:
        if any(_meet(transaction.before_ns, transaction.after_ns, outage) for outage in forgotten):
            for entity_id, totals in transaction.parts:
                _repeat(accounts, entity_id, totals, (transaction.before_ns, transaction.after_ns))
    for merge in record.merges:
        # If a merge is retried, a store that has forgotten its token refuses what it has done.
        known = merge.merged or not any(_meet(merge.seen_ns, merge.after_ns, outage) for outage in forgotten)
        _enter_merge(accounts, merge if known else replace(merge, merged=None))
    return accounts


def _acted_by(before_ns: int, after_ns: int, outages: Sequence[Outage]) -> int:
    """Return the latest time of an unanswered write, None if it may never act: it may wait for the store."""
    met = [one.ended_ns for one in outages if before_ns < one.ended_ns and one.began_ns < after_ns]
    return max([after_ns, *met]) + DEADLINE_NS


def _charged(entity_id: str, amounts: Amounts) -> Iterator[tuple[Owner, int]]:
    """Return the entities that amounts are charged to, in millitokens."""
    for owner in (entity_id, MEMBERS[entity_id].parent_id):
        if owner is not None:
            yield from (((owner, name), amount * 1000) for name, amount in amounts.items() if amount)


def _enter_take(account: Account, step: Step, milli: int) -> None:
    tokens, times = milli / 1000, (step.before_ns, step.after_ns)
    if step.outcome == "ok":
        account.least += milli
        account.most += milli
        account.entries.append(Entry("take", tokens, *times))
        return
    # A rejected acquire was rejected by child or parent, and may have taken from the other meanwhile.
    if step.outcome != "rejected":
        account.most += milli
    if step.outcome != "rejected" or MEMBERS[step.entity_id].parent_id is not None:
        account.entries.append(Entry("passing", tokens, *times))


def _enter_settlement(account: Account, step: Step, milli: int) -> None:
    tokens, times = abs(milli) / 1000, (step.before_ns, step.after_ns)
    done = step.outcome == "ok"
    if milli < 0:
        account.least += milli
        account.most += milli if done else 0
        account.entries.append(Entry("credit", tokens, *times))
        return
    account.most += milli
    if done:
        account.least += milli
        account.entries.append(Entry("debit", tokens, *times))


def _meet(before_ns: int, after_ns: int, outage: Outage) -> bool:
    """Return whether a transaction may have been sent both before and after a store forgot its token."""
    return before_ns < outage.ended_ns and after_ns > outage.began_ns


def _repeat(accounts: Accounts, entity_id: str, totals: Amounts, times: tuple[int, int]) -> None:
    """Record that a change may have been applied once more."""
    for name, milli in totals.items():
        account = accounts[entity_id, name]
        if milli > 0:
            account.most += milli
        elif milli < 0:
            account.least += milli
            account.entries.append(Entry("credit", -milli / 1000, *times))


def _enter_merge(accounts: Accounts, merge: Merge) -> None:
    """Record the totals of a deleted shard; a full one may have been written to until its deletion."""
    if merge.merged is False:
        return
    for name, total in merge.totals.items():
        account = accounts[merge.entity_id, name]
        over = merge.overflows[name]
        account.gone_most += total + over
        if merge.merged:
            credited = _credited(account, merge) if over else 0
            account.gone_least += total - credited


def _credited(account: Account, merge: Merge) -> int:
    """Return what may have been credited while two shards were merged, in millitokens."""
    seen_ns = merge.seen_ns - CLOCK_NS
    met = [one for one in account.entries if one.before_ns < merge.after_ns and one.after_ns > seen_ns]
    return round(sum(one.tokens for one in met if one.kind in ("credit", "passing")) * 1000)
