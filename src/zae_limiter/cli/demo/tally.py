"""Count what each project and key does in the demo, from the reports of the processes. Pure."""

from collections.abc import Iterable, Mapping

from zae_limiter.cli.demo.ledger import Ledger
from zae_limiter.cli.demo.progress import Counts, Line
from zae_limiter.cli.demo.reports import Adjusted, CallRejected, GaveBack, InForce, Report, Took
from zae_limiter.cli.demo.scenario import Member
from zae_limiter.core.limit import Limit


class DemoTally:
    """The counts of one project or key so far."""

    def __init__(self, member: Member, limits: Iterable[Limit], start_ms: int) -> None:
        self.member = member
        self.ledger = Ledger(limits, start_ms)
        self.counts = Counts()
        self.retry_at_ms = 0
        self.taken_tokens = 0
        self.refill_in_force = 0


class Book:
    """The tallies of all projects and keys; a call of a key also counts for its project."""

    def __init__(self, tallies: list[DemoTally], start_ms: int) -> None:
        self.start_ms = start_ms
        self._tallies = {tally.member.entity_id: tally for tally in tallies}

    @property
    def tallies(self) -> list[DemoTally]:
        """All tallies, each project before its keys."""
        return list(self._tallies.values())

    def __getitem__(self, entity_id: str) -> DemoTally:
        """Return the tally of a project or key."""
        return self._tallies[entity_id]

    def keys_of(self, project_id: str) -> list[DemoTally]:
        """Return the tallies of the keys of a project."""
        return [tally for tally in self.tallies if tally.member.parent_id == project_id]

    def record(self, key_id: str, report: Report) -> None:
        """Count a report of the process of a key."""
        match report:
            case Took(at_ms, tokens):
                self._count(key_id, Counts(admitted=1))
                self._enter(key_id, {"rpm": 1, "tpm": tokens}, at_ms, is_take=True)
            case Adjusted(at_ms, estimated, used):
                self._count(key_id, Counts(estimated=estimated, used=used))
                self._enter(key_id, {"tpm": used - estimated}, at_ms, is_take=False)
            case GaveBack(at_ms, tokens):
                self._count(key_id, Counts(failed=1))
                self._enter(key_id, {"rpm": -1, "tpm": -tokens}, at_ms, is_take=False)
            case CallRejected(at_ms, refused_by):
                self._count(key_id, Counts(rejected=1, rejected_above=int(refused_by != key_id)))
                self[key_id].retry_at_ms = at_ms + round(report.retry_after_s * 1000)
            case InForce(refill_amount):
                self[key_id].refill_in_force = refill_amount

    def raise_limit(self, entity_id: str, limit: Limit, from_ms: int) -> None:
        """Use a higher limit from then on."""
        self[entity_id].ledger.raise_to(limit, from_ms)

    def lines(self, left: Mapping[str, Mapping[str, int]], at_ms: int) -> list[Line]:
        """Return the results of all projects and keys, given the balances of each."""
        return [
            Line(tally.member, tally.counts, tally.ledger.highest_share(left[tally.member.entity_id], at_ms))
            for tally in self.tallies
        ]

    def _enter(self, key_id: str, amounts: Mapping[str, int], at_ms: int, *, is_take: bool) -> None:
        for tally in self._both(key_id):
            tally.taken_tokens += amounts["tpm"]
            tally.ledger.enter(amounts, at_ms, is_take=is_take)

    def _count(self, key_id: str, counts: Counts) -> None:
        for tally in self._both(key_id):
            tally.counts += counts

    def _both(self, entity_id: str) -> list[DemoTally]:
        tally = self[entity_id]
        parent_id = tally.member.parent_id
        return [tally] if parent_id is None else [tally, self[parent_id]]
