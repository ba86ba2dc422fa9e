"""A table that records what its callers cannot know, and that can break a rule of the protocol.

Callers cannot know of a write whose answer was lost, or of a transaction that is sent again. Nor do they know the
totals that are deleted with a merged shard. A broken rule shows that a soak notices it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from random import Random
from typing import Any

from tests.soak.journal import Amounts, Journal
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.outcome import Applied, Committed, Unavailable
from zae_limiter.schema import attributes
from zae_limiter.schema.keys import parse_bucket_pk
from zae_limiter.schema.operations import Operation, Put, Update, Write

TIMES_AS_FAST = 50
HOUR_MS = 3_600_000
ONE_UNWRITTEN_IN = 10

CREDIT_TWICE = "credit-twice"
FAST_CLOCK = "fast-clock"
SPLIT_WHOLE = "split-whole"
UNWRITTEN = "unwritten"
MUTATIONS = (CREDIT_TWICE, FAST_CLOCK, SPLIT_WHOLE, UNWRITTEN)
"""The ways in which a table breaks a rule; the catalogue in ``tests/mutations`` names their mutations."""

Views = Callable[[str], Any]
"""What a client knows of the shards of an entity's bucket."""


def totals_of(operation: Operation) -> tuple[str, Amounts] | None:
    """Return the entity whose totals an operation changes, and by how much; None if it changes none."""
    bucket = parse_bucket_pk(operation.key.pk)
    changed = operation.add if isinstance(operation, Update) else operation.item if isinstance(operation, Put) else {}
    if bucket is None:
        return None
    totals = {}
    for name, amount in changed.items():
        parsed = attributes.parse_bucket_attribute(name)
        if parsed is not None and parsed.field == attributes.TOTAL_CONSUMED and name != attributes.WRITE_COUNTER:
            totals[parsed.limit_name] = amount
    return (bucket.entity_id, totals) if any(totals.values()) else None


class Watch:
    """Records the calls of one client."""

    def __init__(self, journal: Journal) -> None:
        self._journal = journal
        self.views: Views | None = None

    def wrote(self, operation: Write, outcome: object) -> None:
        """Record the outcome of a write."""
        changed = totals_of(operation)
        if changed is not None and isinstance(outcome, Unavailable) and outcome.ambiguous:
            self._journal.doubt(*changed)

    def begin(self, operations: Sequence[Operation], token: str) -> Callable[[object], None]:
        """Record a transaction before it is sent; the returned function receives its outcome."""
        if token.startswith("merge-"):
            return self._begin_merge(operations[1])
        parts = [changed for one in operations if (changed := totals_of(one)) is not None]
        if not parts:
            return lambda outcome: None
        number = self._journal.begin_transaction(parts)
        return lambda outcome: self._journal.end_transaction(number)

    def _begin_merge(self, gone: Operation) -> Callable[[object], None]:
        bucket = parse_bucket_pk(gone.key.pk)
        assert bucket is not None
        assert self.views is not None
        view = self.views(bucket.entity_id)[bucket.shard_id]
        totals, overflows = {}, {}
        for position, baseline in enumerate(view.layout.baselines):
            totals[baseline.name] = view.total(position)
            # A full shard may be written to until it is deleted; another is deleted only as it was read.
            held = view.numbers[position] + baseline.earned(view.seen_ms)
            overflows[baseline.name] = max(0, held - baseline.capacity_milli)
        number = self._journal.begin_merge(bucket.entity_id, totals, overflows, view.seen_ms * 1_000_000)
        return lambda outcome: self._journal.end_merge(number, _merged(outcome))


def _merged(outcome: object) -> bool | None:
    """Return whether a merge was applied, None if that is unknown."""
    return None if isinstance(outcome, Unavailable) else isinstance(outcome, Committed)


class TableMutation:
    """The way in which a table breaks a rule; None as its name breaks none."""

    def __init__(self, name: str | None, seed: str) -> None:
        self.name = name
        self._random = Random(seed)

    def repeats(self, operation: Write) -> bool:
        """Return whether a write is applied twice."""
        changed = totals_of(operation) if self.name == CREDIT_TWICE else None
        return changed is not None and all(milli <= 0 for milli in changed[1].values())

    def omits(self, operation: Write) -> bool:
        """Return whether a write is only reported as applied."""
        changed = totals_of(operation) if self.name == UNWRITTEN and isinstance(operation, Update) else None
        taken = changed is not None and all(milli >= 0 for milli in changed[1].values())
        return taken and self._random.randrange(ONE_UNWRITTEN_IN) == 0

    def shifted(self, now: TimeBounds) -> TimeBounds:
        """Return the client's time."""
        ahead_ms = now[0] % HOUR_MS * (TIMES_AS_FAST - 1) if self.name == FAST_CLOCK else 0
        return now[0] + ahead_ms, now[1] + ahead_ms

    def split(self, operations: Sequence[Operation], token: str) -> list[Operation]:
        """Return a transaction; a split gives the new shard the whole capacity."""
        if self.name != SPLIT_WHOLE or not token.startswith("split-"):
            return list(operations)
        return [replace(one, item=_filled(one.item)) if isinstance(one, Put) else one for one in operations]


def _filled(item: dict[str, Any]) -> dict[str, Any]:
    names = [name[:-3] for name in item if name.startswith("b_") and name.endswith("_tk")]
    return {**item, **{f"{name}_tk": item[f"{name}_tk"] + item[f"{name}_cp"] for name in names}}


class AsyncWatched:
    """A watched table of the async tree."""

    def __init__(self, table: Any, watch: Watch, mutation: TableMutation) -> None:
        self._table = table
        self._watch = watch
        self._mutation = mutation

    def __getattr__(self, name: str) -> Any:
        return getattr(self._table, name)

    def now(self) -> TimeBounds:
        """Return the time."""
        return self._mutation.shifted(self._table.now())

    async def write(self, operation: Write, until_s: float | None = None) -> Any:
        """Carry out one operation."""
        if self._mutation.omits(operation) and (item := await self._table.get(operation.key)) is not None:
            return Applied(item)
        if self._mutation.repeats(operation):
            await self._table.write(operation, until_s)
        outcome = await self._table.write(operation, until_s)
        self._watch.wrote(operation, outcome)
        return outcome

    async def transact(self, operations: Sequence[Operation], token: str, *, until_s: float | None = None) -> Any:
        """Carry out all operations, or none."""
        ended = self._watch.begin(operations, token)
        outcome = await self._table.transact(self._mutation.split(operations, token), token, until_s=until_s)
        ended(outcome)
        return outcome


class SyncWatched(AsyncWatched):
    """A watched table of the sync tree."""

    def write(self, operation: Write, until_s: float | None = None) -> Any:
        """Carry out one operation."""
        if self._mutation.omits(operation) and (item := self._table.get(operation.key)) is not None:
            return Applied(item)
        if self._mutation.repeats(operation):
            self._table.write(operation, until_s)
        outcome = self._table.write(operation, until_s)
        self._watch.wrote(operation, outcome)
        return outcome

    def transact(self, operations: Sequence[Operation], token: str, *, until_s: float | None = None) -> Any:
        """Carry out all operations, or none."""
        ended = self._watch.begin(operations, token)
        outcome = self._table.transact(self._mutation.split(operations, token), token, until_s=until_s)
        ended(outcome)
        return outcome
