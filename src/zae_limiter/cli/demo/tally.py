"""Count what each project and key does in the demo. Pure."""

from collections.abc import Mapping

from zae_limiter.cli.demo.ledger import Ledger
from zae_limiter.cli.demo.progress import Counts, Line
from zae_limiter.cli.demo.scenario import DemoCall, Member
from zae_limiter.core.limit import Limit


class DemoTally:
    """The counts of one project or key so far."""

    def __init__(self, member: Member, limits: Mapping[str, Limit], start_ms: int) -> None:
        self.member = member
        self.limits = limits
        self.ledger = Ledger(limits.values(), start_ms)
        self.counts = Counts()
        self.retry_at_s = 0.0
        self.taken_tokens = 0


class Book:
    """The tallies of all projects and keys; a call of a key also counts for its project."""

    def __init__(self, tallies: list[DemoTally]) -> None:
        self._tallies = {tally.member.entity_id: tally for tally in tallies}

    @property
    def tallies(self) -> list[DemoTally]:
        """All tallies, each project before its keys."""
        return list(self._tallies.values())

    def __getitem__(self, entity_id: str) -> DemoTally:
        """Return the tally of a project or key."""
        return self._tallies[entity_id]

    def take(self, entity_id: str, taking: Mapping[str, int], now_ms: int) -> None:
        """Count an admitted call, for the key and for its project."""
        self._count(entity_id, Counts(admitted=1))
        for tally in self._both(entity_id):
            tally.taken_tokens += taking["tpm"]
            tally.ledger.take(_limited(taking, tally), now_ms)

    def settle(self, entity_id: str, changes: Mapping[str, int]) -> None:
        """Count an adjustment, for both."""
        for tally in self._both(entity_id):
            tally.taken_tokens += changes.get("tpm", 0)
            tally.ledger.settle(_limited(changes, tally))

    def finish(self, entity_id: str, call: DemoCall) -> None:
        """Count the estimate and the usage of a call."""
        self._count(entity_id, Counts(estimated=call.estimated, used=call.used))

    def fail(self, entity_id: str) -> None:
        """Count a failed call."""
        self._count(entity_id, Counts(failed=1))

    def reject(self, entity_id: str, refused_by: str, retry_at_s: float) -> None:
        """Count a call that the key or its project rejected."""
        self._count(entity_id, Counts(rejected=1, rejected_above=int(refused_by != entity_id)))
        self[entity_id].retry_at_s = retry_at_s

    def raise_limit(self, entity_id: str, limit: Limit, from_ms: int) -> None:
        """Use a higher limit from then on."""
        self[entity_id].ledger.raise_to(limit, from_ms)

    def lines(self) -> list[Line]:
        """Return the results of all projects and keys."""
        return [Line(tally.member, tally.counts, tally.ledger.highest_share) for tally in self.tallies]

    def _count(self, entity_id: str, counts: Counts) -> None:
        for tally in self._both(entity_id):
            tally.counts += counts

    def _both(self, entity_id: str) -> list[DemoTally]:
        tally = self[entity_id]
        parent_id = tally.member.parent_id
        return [tally] if parent_id is None else [tally, self[parent_id]]


def _limited(amounts: Mapping[str, int], tally: DemoTally) -> dict[str, int]:
    return {name: amount for name, amount in amounts.items() if name in tally.limits}
