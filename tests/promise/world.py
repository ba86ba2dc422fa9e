"""A world of one bucket: clients with old views and wrong clocks, late writes and lost answers.

Clients do what the limiter's driver does, one step at a time, so that anything may happen between two of their steps.
Every applied write is recorded in the ledger, which checks the promise.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.promise.ledger import BrokenPromiseError, Ledger, Use, level, require
from zae_limiter.core.acquire import (
    GUESSES,
    Create,
    Look,
    NextStep,
    Progress,
    Rebase,
    Reject,
    Resolve,
    Take,
    amounts_of,
    next_step,
)
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement, Settling, settle
from zae_limiter.core.config import Resolution
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.levels import limit_levels, statuses
from zae_limiter.core.limit import Limit
from zae_limiter.core.view import EffectiveLimits, effective_limits, own_effective_limits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView, view_after_take, view_of
from zae_limiter.schema.bucket_writes import Owner, Signature
from zae_limiter.schema.operations import Put, Update
from zae_limiter.tables import evaluate

OWNER = Owner("ns000000000", "user-1", "gpt-4")
START_MS = 1_700_000_000_123

MOST_STEPS = 64
Item = dict[str, Any]
Operation = Put | Update


@dataclass(frozen=True)
class Scenario:
    """The limits, clocks and delays of a world.

    ``clocks``: each client's earliest and latest reading, relative to the true time; one pair per client.
    """

    limits: tuple[Limit, ...]
    clocks: tuple[TimeBounds, ...] = ((0, 0), (0, 0), (0, 0))
    delay_ms: int = 0
    multipliers: tuple[int, ...] = (2, 7, 0)
    expires: bool = True
    trust_ms: int = 1000

    @property
    def spread_ms(self) -> int:
        """The largest difference between the times of two writes at the same moment, or of one and the true time."""
        return max(0, *(high for _, high in self.clocks)) - min(0, *(low for low, _ in self.clocks)) + self.delay_ms


@dataclass
class Sent:
    """A write in flight."""

    operation: Operation
    decided_ms: int
    moment: TimeBounds
    use: Use
    step: NextStep | None = None
    parts: Settling | None = None
    lost: bool = False


@dataclass
class Job:
    """The current work of a client: a request (``consume``), or the settlement of a lease (``settlement``)."""

    consume: dict[str, int] = field(default_factory=dict)
    own: tuple[Limit, ...] | None = None
    settlement: Settlement | None = None
    terms: EffectiveLimits | None = None
    progress: Progress = field(default_factory=lambda: Progress(trust_ms=1000))
    steps: int = 0
    sent: Sent | None = None


@dataclass
class Client:
    """One client: its clock, its copy of the configuration, and its view of the bucket."""

    clock: TimeBounds
    multiplier: int
    resolution: Resolution
    view: BucketView | None = None
    seen: Item = field(default_factory=dict)
    job: Job | None = None
    terms: dict[object, EffectiveLimits] = field(default_factory=dict)


@dataclass
class Lease:
    """What was taken and not credited, in millitokens, and the limits in force at that time."""

    held: dict[str, int]
    terms: EffectiveLimits


class World:
    """One bucket and all its clients."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.now_ms = START_MS
        self.item: Item = {}
        self.configs = [self._resolution(scenario.limits, 1, scenario.expires)]
        pairs = zip(scenario.clocks, scenario.multipliers, strict=False)
        self.clients = [Client(clock, multiplier, self.configs[-1]) for clock, multiplier in pairs]
        self.ledger = Ledger(scenario.spread_ms, alone=len(self.clients) == 1)
        self.leases: list[Lease] = []
        self.admitted = self.rejected = 0
        self._nonces = count(1)
        self._births = count(1)

    # What may happen.

    def ask(self, who: int, consume: Mapping[str, int], own: tuple[Limit, ...] | None = None) -> None:
        """A client begins a request; amounts above the capacity are reduced to it."""
        client = self.clients[who]
        if client.job is not None:
            return
        terms = self._terms(client, own)
        fitting = {name: min(tokens, terms.limits[terms.positions[name]].capacity)
                   for name, tokens in consume.items() if name in terms.positions}  # fmt: skip
        if fitting:
            progress = Progress(trust_ms=self.scenario.trust_ms)
            client.job = Job(consume=fitting, own=own, terms=terms, progress=progress)

    def settle(self, who: int, lease: Lease, changes: Mapping[str, int]) -> None:
        """A client begins to settle a lease: debits of any size, credits of at most what is held; in millitokens."""
        client = self.clients[who]
        if client.job is not None:
            return
        changes = {name: max(change, -lease.held.get(name, 0)) for name, change in changes.items()}
        debits = tuple((name, change) for name, change in changes.items() if change > 0 and name in lease.held)
        credits = tuple((name, -change) for name, change in changes.items() if change < 0)
        for name, change in credits:
            lease.held[name] -= change
        if debits or credits:
            client.job = Job(settlement=Settlement(debits, credits), terms=lease.terms)

    def decide(self, who: int) -> None:
        """A client takes its next step; a write that it decides on is then in flight."""
        client = self.clients[who]
        job = client.job
        if job is None or job.sent is not None:
            return
        job.steps += 1
        require(job.steps <= MOST_STEPS, "no end of steps:", job, self.item)
        if job.settlement is None:
            self._decide_request(client, job)
        else:
            self._decide_settlement(client, job, job.settlement)

    def deliver(self, who: int, fate: str = "answered") -> None:
        """A client's write arrives. ``lost``: applied if possible, but the client gets no answer."""
        client = self.clients[who]
        if client.job is None or client.job.sent is None:
            return
        sent = client.job.sent
        # A write whose answer was lost looks to its client like another client's write.
        self.ledger.alone = self.ledger.alone and fate == "answered"
        answer = self._write(sent)
        if fate == "crash":
            client.job = None
        elif fate == "answered":
            self._hear(client, client.job, sent, answer)
        elif sent.use.debits or sent.use.takes or sent.use.kind == "rebase":
            self._send_again(client, sent)
        else:
            # The credit may have been applied: it is never sent again.
            client.job = None

    def finish(self, who: int) -> None:
        """A client completes its job while all others pause."""
        while self.clients[who].job is not None:
            self.decide(who)
            self.deliver(who)

    def crash(self, who: int) -> None:
        """A client forgets everything; a write in flight never arrives."""
        client = self.clients[who]
        client.job, client.view, client.seen = None, None, {}

    def tick(self, step_ms: int) -> None:
        """Time passes; writes in flight arrive before their deadline."""
        for who, client in enumerate(self.clients):
            while client.job is not None and client.job.sent is not None:
                if self.now_ms + step_ms - client.job.sent.decided_ms <= self.scenario.delay_ms:
                    break
                self.deliver(who, "crash" if client.job.sent.lost else "answered")
        self.now_ms += step_ms

    def configure(self, limits: tuple[Limit, ...], *, expires: bool) -> None:
        """The stored limits change."""
        self.configs.append(self._resolution(limits, self.configs[-1].stamp + 1, expires))

    def restore(self) -> None:
        """The configuration is restored from a backup."""
        self.configs = self.configs[: max(1, len(self.configs) - 1)]

    def read_config(self, who: int) -> None:
        """A client's cache of the configuration ends, and it reads it again."""
        self.clients[who].resolution = self.configs[-1]

    def expire(self) -> None:
        """The table removes the item if its expiry has passed."""
        if self.item.get("ttl", self.now_ms) < self.now_ms // 1000:
            self.ledger.expire(self.item, self.now_ms)
            self.item = {}

    def idle_to_expiry(self) -> None:
        """Nothing happens until the item expires."""
        if "ttl" in self.item:
            self.tick(max(0, (self.item["ttl"] + 1) * 1000 - self.now_ms))
            self.expire()

    # How a client works.

    def _decide_request(self, client: Client, job: Job) -> None:
        now = self._moment(client)
        terms = self._known(job)
        amounts = amounts_of(job.consume, terms)
        match chosen := next_step(client.view, terms, amounts, now, job.progress):
            case Reject(at=at):
                self._check_rejection(client, job, at)
                self.rejected += 1
                client.job = None
            case Look():
                self._look(client, terms)
                job.progress = job.progress.after_look()
            case Resolve():
                client.resolution = self.configs[-1]
                stamp = None if client.view is None else client.view.layout.stamp
                job.terms, job.progress = self._terms(client, job.own), job.progress.after_resolve(stamp)
                self._drop_if_invalid(client, job)
            case _:
                takes = {} if isinstance(chosen, Rebase) and not chosen.takes else job.consume
                # A limit of which nothing is taken is not written.
                milli = {name: tokens * 1000 for name, tokens in takes.items() if tokens}
                kind = "take" if takes else "rebase"
                use = Use(kind, takes=milli, may_yield=job.progress.refusals >= GUESSES)
                job.sent = Sent(self._request_write(client, terms, (chosen, milli)), self.now_ms, now, use, chosen)

    def _request_write(
        self, client: Client, terms: EffectiveLimits, chosen: tuple[NextStep, dict[str, int]]
    ) -> Operation:
        nonce = next(self._nonces)
        match chosen:
            case Take() as taken, _ if client.view is not None:
                return bucket_writes.take(client.view, taken, nonce)
            case Rebase(rebasing=rebasing), _ if client.view is not None:
                return bucket_writes.rebase(client.view, rebasing, nonce)
            case Create(), milli:
                return bucket_writes.create(
                    OWNER, terms, milli, self._moment(client)[1], Signature(nonce, next(self._births))
                )
        raise BrokenPromiseError(f"no such step: {chosen}")

    def _decide_settlement(self, client: Client, job: Job, settlement: Settlement) -> None:
        now, terms = self._moment(client), self._known(job)
        if client.view is None:
            self._look(client, terms)
        debits, credits = dict(settlement.debits), dict(settlement.credits)
        if client.view is None:
            client.job = None if not debits else job
            use = Use("debit", debits=debits)
            job.sent = Sent(
                bucket_writes.create(OWNER, terms, debits, now[1], Signature(next(self._nonces), next(self._births))),
                self.now_ms,
                now,
                use,
            )
            return
        parts = settle(client.view, settlement, now, job.progress.refusals)
        if not parts.parts:
            client.job = None
            return
        kept = {baseline.name for baseline in client.view.layout.baselines}
        debits = {name: milli for name, milli in debits.items() if name in kept}
        credits = {name: milli for name, milli in credits.items() if name in kept}
        use = Use("debit" if debits else "credit", debits=debits, credits=credits, may_yield=job.progress.refusals > 1)
        job.sent = Sent(
            bucket_writes.settle(client.view, parts, next(self._nonces)), self.now_ms, now, use, parts=parts
        )

    def _write(self, sent: Sent) -> Item | None:
        """Apply a write to the item. Return the item if the client will treat the write as applied."""
        answer = evaluate.apply(sent.operation, self.item)
        if isinstance(answer, dict):
            before, self.item = self.item, answer
            self.ledger.record(before, answer, self.now_ms, sent.use)
            return answer
        nonce = sent.operation.item["op"] if isinstance(sent.operation, Put) else sent.operation.set["op"]
        return self.item if sent.lost and self.item.get("op") == nonce else None

    def _send_again(self, client: Client, sent: Sent) -> None:
        """Prepare to send a write again after its answer was lost, without its credits."""
        if sent.parts is not None and client.view is not None:
            debits = [part for part in sent.parts.parts if part.spent >= 0]
            nonce = sent.operation.set["op"] if isinstance(sent.operation, Update) else 0
            sent.operation = bucket_writes.settle(client.view, Settling(debits, sent.parts.held), nonce)
            sent.use = Use("debit", debits=sent.use.debits, may_yield=sent.use.may_yield)
        sent.operation, sent.lost = bucket_writes.sent_again(sent.operation, next(self._births)), True

    def _hear(self, client: Client, job: Job, sent: Sent, new: Item | None) -> None:
        terms = self._known(job)
        first = job.progress.refusals == 0 and not job.progress.looked
        job.sent = None
        if not self.item:
            client.view, client.seen = None, {}
            job.progress = job.progress.after_vanishing()
            return
        guessed = client.view is not None and client.view.layout.describes(self.item)
        if new is not None and first and isinstance(sent.step, Take) and client.view is not None and not sent.lost:
            amounts = amounts_of(job.consume, terms)
            client.view, client.seen = view_after_take(client.view, new, amounts, sent.moment[1]), new
        else:
            self._look(client, terms, () if new is None else self._own(client, sent))
        if new is None:
            job.progress = job.progress.after_refusal(sent.moment, guessed=guessed)
            return
        job.progress = job.progress.after_look()
        if sent.use.kind == "take":
            self.admitted += 1
            self.leases.append(Lease({**dict.fromkeys(job.consume, 0), **sent.use.takes}, terms))
        if sent.use.kind != "rebase":
            client.job = None

    @staticmethod
    def _own(client: Client, sent: Sent) -> list[tuple[int, int]]:
        """Return what a client's write did to the limits it knew, by position."""
        if client.view is None:
            return []
        used = {**sent.use.takes, **sent.use.debits, **{name: -milli for name, milli in sent.use.credits.items()}}
        places = ((client.view.layout.position(name), milli) for name, milli in used.items())
        return [(position, milli) for position, milli in places if position is not None]

    def _look(self, client: Client, terms: EffectiveLimits, own: Sequence[tuple[int, int]] = ()) -> None:
        client.seen = self.item
        now_ms = self._moment(client)[1]
        client.view = view_of(self.item, now_ms, client.view, terms, own) if self.item else None

    def _check_rejection(self, client: Client, job: Job, at: TimeBounds) -> None:
        """A rejected request did not fit the client's view. It fits at the announced time, and not before."""
        terms, seen = self._known(job), client.seen
        short = {name for name, tokens in job.consume.items() if tokens and level(seen, name, at[0]) < tokens * 1000}
        require(bool(short), "rejected although it fits:", job, seen)
        stands = limit_levels(client.view, terms, at)
        reported = statuses(("user-1", "gpt-4"), stands, amounts_of(job.consume, terms), at, at)
        require(
            short == {one.limit_name for one in reported if one.exceeded},
            "the wrong limits are reported:",
            reported,
            seen,
        )
        for one in reported:
            if one.exceeded:
                ready_ms, milli = at[0] + round(one.retry_after_seconds * 1000), one.requested * 1000
                require(level(seen, one.limit_name, ready_ms) >= milli, "retry too early:", one, at, seen)
                require(level(seen, one.limit_name, ready_ms - 1) < milli, "retry too late:", one, at, seen)

    def _drop_if_invalid(self, client: Client, job: Job) -> None:
        try:
            amounts_of(job.consume, self._known(job))
        except ValidationError:
            client.job = None

    def _moment(self, client: Client) -> TimeBounds:
        return self.now_ms + client.clock[0], self.now_ms + client.clock[1]

    @staticmethod
    def _terms(client: Client, own: tuple[Limit, ...] | None) -> EffectiveLimits:
        """Return a client's limits in force, the same object as long as they are equal."""
        found = (
            effective_limits(client.resolution, client.multiplier)
            if own is None
            else own_effective_limits(client.resolution, own, client.multiplier)
        )
        assert found is not None
        return client.terms.setdefault((found.stamp, found.digest, found.limits), found)

    @staticmethod
    def _known(job: Job) -> EffectiveLimits:
        assert job.terms is not None
        return job.terms

    @staticmethod
    def _resolution(limits: tuple[Limit, ...], stamp: int, expires: bool) -> Resolution:
        return Resolution(limits, stamp, "system" if expires else "entity", None, None)
