"""A world of one bucket with several shards: any client splits, merges, takes and settles, from views of any age.

Every write is decided on a client's views. It may arrive late, its answer may be lost, and it is applied as a whole or
not at all, as by a table. The ledger checks the result.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import Any

from tests.many_shards import Item
from tests.one_bucket import OWNER
from tests.promise.ledger import Use
from tests.promise.shard_ledger import ShardLedger
from tests.promise.world import START_MS, Scenario
from zae_limiter.core.acquire import Progress, Rebase, Take, next_step
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.bucket_changes import Settlement, settle
from zae_limiter.core.config import Resolution
from zae_limiter.core.limit import Limit
from zae_limiter.core.multi_shard import debit_across, take_across
from zae_limiter.core.sharding import is_complete
from zae_limiter.core.splitting import merge, split
from zae_limiter.core.view import EffectiveLimits, effective_limits
from zae_limiter.schema import bucket_writes
from zae_limiter.schema.bucket_item import BucketView, view_of
from zae_limiter.schema.bucket_writes import Signature
from zae_limiter.schema.keys import parse_bucket_pk
from zae_limiter.tables import evaluate

Operations = Sequence[tuple[int, Any]]
"""Operations of one transaction, by shard."""


@dataclass
class Sent:
    """A write in flight, to one shard or several."""

    operations: Operations
    use: Use
    decided_ms: int
    moment: TimeBounds


@dataclass
class Client:
    """One client: its clock, its limits, its view of each shard, and a write in flight."""

    clock: TimeBounds
    terms: EffectiveLimits
    views: dict[int, BucketView] = field(default_factory=dict)
    sent: Sent | None = None


class ShardWorld:
    """One bucket and all its clients."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.now_ms = START_MS
        self.stamp = 1
        self.terms = self._terms(scenario.limits)
        self.clients = [Client(clock, self.terms) for clock in scenario.clocks]
        self.items: dict[int, Item] = {}
        self.ledger = ShardLedger(scenario.spread_ms)
        self.held: list[dict[str, int]] = []
        self.applied: dict[str, int] = {}
        self.most_shards = 0
        self._nonces = count(1)
        self._create()

    # What clients decide.

    def take(self, who: int, shard: int, consume: Mapping[str, int]) -> None:
        """A client takes from one shard, or rebases it to its limits, based on its view."""
        client = self.clients[who]
        view = client.views.get(shard)
        amounts = self._amounts(client, consume)
        if view is None or not amounts or client.sent is not None:
            return
        now = self._moment(client)
        step = next_step(view, client.terms, amounts, now, Progress(trust_ms=0).after_look())
        takes = {client.terms.limits[position].name: milli for position, milli in amounts}
        if isinstance(step, Take):
            self._send(client, [(shard, bucket_writes.take(view, step, next(self._nonces)))], Use("take", takes=takes))
        elif isinstance(step, Rebase):
            use = Use("rebase", takes=takes if step.takes else {})
            self._send(client, [(shard, bucket_writes.rebase(view, step.rebasing, next(self._nonces)))], use)

    def take_across(self, who: int, consume: Mapping[str, int]) -> None:
        """A client takes from several shards in one transaction, if its views of all have its limits."""
        client = self.clients[who]
        amounts = self._amounts(client, consume)
        views = client.views
        whole = is_complete({shard: view.layout.shard_count for shard, view in views.items()})
        if not whole or not amounts or not all(view.layout.follows(client.terms) for view in views.values()):
            return
        written = take_across(views, amounts, self._moment(client), next(self._nonces) % 2)
        if written is not None:
            writes = [
                (shard, bucket_writes.take(views[shard], taking, next(self._nonces)))
                for shard, taking in written.items()
            ]
            takes = {client.terms.limits[position].name: milli for position, milli in amounts}
            self._send(client, writes, Use("take", takes=takes))

    def debit(self, who: int, name: str, milli: int) -> None:
        """A client charges a debt to all shards that it knows."""
        client = self.clients[who]
        if is_complete({shard: view.layout.shard_count for shard, view in client.views.items()}):
            charges = debit_across(client.views, [(name, milli)], self._moment(client))
            writes = [
                (shard, bucket_writes.settle(client.views[shard], charge, next(self._nonces)))
                for shard, charge in charges.items()
            ]
            self._send(client, writes, Use("debit", debits={name: milli}))

    def debit_one(self, who: int, shard: int, debt: tuple[str, int]) -> None:
        """A client charges a debt to one shard."""
        client = self.clients[who]
        view = client.views.get(shard)
        if view is not None and view.layout.position(debt[0]) is not None:
            parts = settle(view, Settlement((debt,)), self._moment(client), 0)
            write = bucket_writes.settle(view, parts, next(self._nonces))
            self._send(client, [(shard, write)], Use("debit", debits=dict([debt])))

    def credit(self, who: int, shard: int, name: str) -> None:
        """A client credits what it holds of a limit to some shard."""
        client = self.clients[who]
        view = client.views.get(shard)
        lease = next((one for one in self.held if one.get(name)), None)
        if view is not None and lease is not None and view.layout.position(name) is not None and client.sent is None:
            milli = lease.pop(name)
            parts = settle(view, Settlement((), ((name, milli),)), self._moment(client), 0)
            write = bucket_writes.settle(view, parts, next(self._nonces))
            self._send(client, [(shard, write)], Use("credit", credits={name: milli}))

    def split(self, who: int, shard: int) -> None:
        """A client splits a shard, based on its view."""
        client = self.clients[who]
        view = client.views.get(shard)
        decided = None if view is None or view.layout.shard_count >= 8 else split(view, self._moment(client))
        if view is not None and decided is not None:
            old, new = bucket_writes.split(view, decided, next(self._nonces))
            self._send(client, [(shard, old), (decided.new_shard, new)], Use("split"))

    def merge(self, who: int, shard: int) -> None:
        """A client merges a shard with its other half, based on its views."""
        client = self.clients[who]
        leaving = client.views.get(shard)
        staying = None if leaving is None else client.views.get(shard - leaving.layout.shard_count // 2)
        if leaving is not None and staying is not None:
            decided = merge(staying, leaving, self._moment(client))
            if decided is not None:
                stays, goes = bucket_writes.merge(staying, leaving, decided, next(self._nonces))
                self._send(client, [(staying.layout.shard, stays), (shard, goes)], Use("merge"))

    # What happens.

    def deliver(self, who: int, fate: str = "answered") -> None:
        """A client's write arrives. ``lost``: the client gets no answer, and keeps its old views."""
        client = self.clients[who]
        sent, client.sent = client.sent, None
        if sent is None:
            return
        results = [
            (shard, evaluate.apply(operation, self.items.get(shard, {}))) for shard, operation in sent.operations
        ]
        if all(isinstance(result, dict) for _, result in results):
            before, self.items = self.items, dict(self.items)
            for shard, result in results:
                assert isinstance(result, dict)
                self.items.pop(shard, None)
                if result:
                    self.items[shard] = result
            self.ledger.record(before, self.items, self.now_ms, sent.use)
            self.applied[sent.use.kind] = self.applied.get(sent.use.kind, 0) + 1
            self.applied["across"] = self.applied.get("across", 0) + (sent.use.kind == "take" and len(results) > 1)
            self.most_shards = max(self.most_shards, len(self.items))
            if fate == "answered" and sent.use.takes:
                self.held.append(dict(sent.use.takes))
        if fate == "answered":
            for shard, _ in sent.operations:
                self.look(who, [shard])

    def look(self, who: int, shards: Sequence[int]) -> None:
        """A client reads some shards."""
        client = self.clients[who]
        for shard in shards:
            item = self.items.get(shard)
            before = client.views.pop(shard, None)
            if item is not None:
                client.views[shard] = view_of(item, self._moment(client)[1], before, client.terms)

    def crash(self, who: int) -> None:
        """A client forgets everything; a write in flight never arrives."""
        self.clients[who].views, self.clients[who].sent = {}, None

    def tick(self, step_ms: int) -> None:
        """Time passes; writes in flight arrive before their deadline."""
        for who, client in enumerate(self.clients):
            if client.sent and self.now_ms + step_ms - client.sent.decided_ms > self.scenario.delay_ms:
                self.deliver(who)
        self.now_ms += step_ms

    def configure(self, limits: tuple[Limit, ...]) -> None:
        """The stored limits change."""
        self.stamp += 1
        self.terms = self._terms(limits)

    def read_config(self, who: int) -> None:
        """A client reads the configuration again."""
        self.clients[who].terms = self.terms

    def idle_to_expiry(self) -> None:
        """Nothing happens until the only shard expires; the next write creates it again."""
        if "ttl" in self.items.get(0, {}):
            self.tick(max(0, (self.items[0]["ttl"] + 1) * 1000 - self.now_ms))
        if self.items[0].get("ttl", self.now_ms) < self.now_ms // 1000:
            self.ledger.expire(self.items[0], self.now_ms)
            self._create()

    def _create(self) -> None:
        now_ms = self.now_ms + max(high for _, high in self.scenario.clocks)
        put = bucket_writes.create(OWNER, self.terms, {}, now_ms, Signature(next(self._nonces), next(self._nonces)))
        new = evaluate.apply(put, {})
        assert isinstance(new, dict)
        assert parse_bucket_pk(new["PK"]) is not None
        self.items = {0: new}

    def _send(self, client: Client, operations: Operations, use: Use) -> None:
        if client.sent is None and operations:
            client.sent = Sent(operations, use, self.now_ms, self._moment(client))

    def _amounts(self, client: Client, consume: Mapping[str, int]) -> list[tuple[int, int]]:
        terms = client.terms
        fitting = {name: tokens for name, tokens in consume.items() if name in terms.positions}
        return [
            (terms.positions[name], min(tokens * 1000, terms.limits[terms.positions[name]].capacity_milli))
            for name, tokens in fitting.items()
        ]

    def _moment(self, client: Client) -> TimeBounds:
        return self.now_ms + client.clock[0], self.now_ms + client.clock[1]

    def _terms(self, limits: tuple[Limit, ...]) -> EffectiveLimits:
        expires = self.scenario.expires
        terms = effective_limits(Resolution(limits, self.stamp, "system" if expires else "entity", None, None), 2)
        assert terms is not None
        return terms
