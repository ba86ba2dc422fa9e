"""The events that are possible in a state of the model of slots, and the state that each leads to.

Nothing is decided here: decisions come from ``zae_limiter.core``, writes from ``schema``, and their effect from
``tables.evaluate``.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.model import slots_decisions as decisions
from tests.model.slots_configs import EXACT, TICK_MS, SlotConfig
from tests.model.slots_invariants import ALL, check_item, check_kept, check_state, names_of
from tests.model.slots_state import ABSENT, Client, Job, LateWrite, Lease, Move, State
from tests.one_bucket import OWNER
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.schema import attributes, bucket_writes
from zae_limiter.schema.bucket_writes import Signature
from zae_limiter.schema.operations import Operation, Put, Update
from zae_limiter.tables import evaluate

ANSWERED, ANSWER_LOST, REQUEST_LOST, LATE = "answered", "answer lost", "request lost", "late"
_FATES = (ANSWERED, ANSWER_LOST, REQUEST_LOST)
Item = Mapping[str, Any]


class World:
    """One bucket with one configuration."""

    honours_tokens = True

    def __init__(self, config: SlotConfig, checked: frozenset[str] = ALL) -> None:
        self.config = config
        self.checked = checked
        self.items: list[dict[str, Any]] = [{}]
        self._item_numbers: dict[tuple[tuple[str, Any], ...], int] = {(): ABSENT}
        self.operations: list[Operation] = []
        self._operation_numbers: dict[str, int] = {}
        self._decided: dict[Any, Any] = {}
        self._applied: dict[tuple[int, int], int | None] = {}
        self.kinds: set[str] = set()
        self.decisions = decisions.Decisions(config, self.items)

    def start(self) -> State:
        """Return the first state: a full bucket, or none."""
        config, shards = self.config, self.config.shards
        items = [ABSENT] * shards
        if config.created:
            made = bucket_writes.create(OWNER, config.terms[0], {}, config.base_ms, Signature(0, 1)).item
            items[0] = self.stored(dict(made))
        clients = [Client((ABSENT,) * shards) for _ in config.clocks]
        if config.reshards or config.split:
            clients.append(Client((ABSENT,) * shards))
        state = State(0, tuple(items), tuple(clients))
        if config.split:
            who = len(clients) - 1
            for move in (Move("looks", who, 0), Move("splits", who, 0, ANSWERED)):
                found = self.after(state, move)
                assert found is not None, "a full bucket can be split"
                state = found
        return state

    # Interned objects.

    def stored(self, item: dict[str, Any]) -> int:
        """Return the number of an item, without what no decision of this model depends on."""
        if not item:
            return ABSENT
        for name in item:
            if name == attributes.WRITE_COUNTER or name.endswith("_tc"):
                item[name] = 0
        key = tuple(sorted(item.items()))
        number = self._item_numbers.get(key)
        if number is None:
            number = self._item_numbers[key] = len(self.items)
            self.items.append(item)
        return number

    def _number_of(self, operation: Operation) -> int:
        text = repr(operation)
        number = self._operation_numbers.get(text)
        if number is None:
            number = self._operation_numbers[text] = len(self.operations)
            self.operations.append(operation)
        return number

    def now(self, state: State, who: int) -> TimeBounds:
        """Return the time as a client knows it."""
        early, late = self.config.clocks[who] if who < len(self.config.clocks) else EXACT
        return self.config.base_ms + (state.tick + early) * TICK_MS, self.config.base_ms + (state.tick + late) * TICK_MS

    # Moves.

    def moves(self, state: State) -> Iterator[Move]:
        """Yield everything that may happen; some of it changes nothing."""
        config = self.config
        for who, client in enumerate(state.clients):
            yield from self._moves_of(state, who, client)
        if state.tick < config.ticks:
            yield Move("tick")
        if config.ttl:
            yield Move("expires")
        if state.deletes < config.deletes and any(state.items):
            yield Move("deletes")
        if state.version + 1 < len(config.versions):
            yield Move("configures")

    def _moves_of(self, state: State, who: int, client: Client) -> Iterator[Move]:
        """Yield what one client may do, and what may happen to its writes."""
        if client.job is None:
            yield from self._looks(state, who, client)
            if state.sent < self.config.writes:
                yield from self._idle_moves(state, who, client)
        elif client.job.again:
            for fate in self._fates(who, client, again=True):
                yield Move("resends", who, fate=fate)
            yield Move("gives up", who)
        else:
            for fate in self._fates(who, client):
                yield Move("arrives", who, fate=fate)
        if client.late is not None:
            yield Move("comes late", who)

    def _idle_moves(self, state: State, who: int, client: Client) -> Iterator[Move]:
        config = self.config
        if who == len(config.clocks):
            if config.reshards:
                yield Move("splits", who, 0, ANSWERED)
                yield Move("merges", who, 0, ANSWERED)
            return
        if client.terms < state.version:
            yield Move("learns", who)
        for fate in ("",) if config.slow else self._fates(who, client):
            yield from self._takes(who, fate) if client.lease is None else self._ends(who, client.lease, fate)
        if client.lease is not None:
            yield Move("forgets", who)

    def _takes(self, who: int, fate: str) -> Iterator[Move]:
        """Yield the takes of a client without a lease."""
        for order in self.config.orders:
            for shard in range(self.config.shards):
                yield Move("takes", who, (shard, order), fate)
            if self.config.across:
                yield Move("takes across", who, order, fate)

    def _ends(self, who: int, lease: Lease, fate: str) -> Iterator[Move]:
        """Yield the release and the renewal of a lease."""
        if self.config.releases:
            yield Move("releases", who, "", fate)
        if self.config.renews and not lease.final:
            yield Move("renews", who, "", fate)

    def _looks(self, state: State, who: int, client: Client) -> Iterator[Move]:
        """Yield the reads of a client. If it cannot write any more, they change nothing that matters."""
        for shard in range(self.config.shards):
            if client.views[shard] != self._seen(state.items[shard]) and state.sent < self.config.writes:
                yield Move("looks", who, shard)

    def _fates(self, who: int, client: Client, *, again: bool = False) -> tuple[str, ...]:
        if who >= self.config.lossy:
            return (ANSWERED,)
        # Copies of what was sent again are like what was sent first.
        late = who < self.config.late and client.late is None and not again
        fates = (ANSWERED,) if self.config.only_late else _FATES
        return (*fates, LATE) if late else fates

    def after(self, state: State, move: Move) -> State | None:
        """Return the state that a move leads to, None if it is impossible now or changes nothing.

        Raises:
            ViolationError: An invariant does not hold.
        """
        new = self._after(state, move)
        if new is None or new == state:
            return None
        return new

    def check(self, state: State) -> None:
        """Check every invariant of a state.

        Raises:
            ViolationError: An invariant does not hold.
        """
        check_state(self.config, state, [self.items[number] for number in state.items], self.checked)

    def _after(self, state: State, move: Move) -> State | None:
        match move.what:
            case "tick":
                return state._replace(tick=state.tick + 1)
            case "configures":
                return state._replace(version=state.version + 1)
            case "expires":
                return self._expire(state)
            case "deletes":
                return self._delete(state)
        return self._act(state, move)

    def _act(self, state: State, move: Move) -> State | None:
        """Return the state after a client's own move, or after something happened to its write."""
        who = move.who
        match move.what:
            case "looks":
                return self._looked(state, who, [move.detail])
            case "learns":
                return _with(state, who, state.clients[who]._replace(terms=state.version))
            case "forgets":
                # The holder is gone: its cohort returns the slots.
                return _with(state, who, state.clients[who]._replace(lease=None))
            case "arrives" | "resends":
                return self._arrive(state, who, move.fate)
            case "gives up":
                # A renewal is tried again as another job.
                return self._ended(state, who)
            case "comes late":
                return self._come_late(state, who)
        return self._send(state, move)

    def _expire(self, state: State) -> State | None:
        item = self.items[state.items[0]]
        ttl = item.get(attributes.TTL)
        if ttl is None or ttl * 1000 > self.config.base_ms + state.tick * TICK_MS:
            return None
        return state._replace(items=(ABSENT, *state.items[1:]))

    def _delete(self, state: State) -> State:
        clients = [
            one if one.lease is None else one._replace(lease=one.lease._replace(counted=False)) for one in state.clients
        ]
        items = (ABSENT,) * len(state.items)
        return state._replace(items=items, clients=tuple(clients), deletes=state.deletes + 1)

    def _looked(self, state: State, who: int, shards: list[int]) -> State:
        client = state.clients[who]
        views = list(client.views)
        for shard in shards:
            views[shard] = self._seen(state.items[shard])
        return _with(state, who, client._replace(views=tuple(views)))

    def _seen(self, number: int) -> int:
        """Return the number of an item as a view: no decision depends on the nonce."""
        item = self.items[number]
        if item.get(attributes.NONCE, 0) == 0:
            return number
        return self.stored({**item, attributes.NONCE: 0})

    # Sending, arrival and answers.

    def _send(self, state: State, move: Move) -> State | None:
        who, client = move.who, state.clients[move.who]
        key = (move.what, move.detail, who, client, state.tick, self._fresh(state))
        if key not in self._decided:
            self._decided[key] = self.decisions.decide(move, client, self.now(state, who), self._fresh(state))
        decided = self._decided[key]
        if decided is None:
            return None
        if decided is decisions.LEARN:
            return _with(state, who, client._replace(terms=state.version))
        writes = tuple([(shard, self._number_of(write)) for shard, write in decided.writes])
        birth = (
            client.lease.birth
            if client.lease is not None
            else max([self.items[number].get(attributes.BIRTH, 0) for number in client.views])
        )
        job = Job(decided.kind, writes, decided.moved, birth)
        state = state._replace(sent=state.sent + 1)
        client = client._replace(job=job)
        if decided.kind.startswith("release"):
            client = client._replace(lease=None)
        sent = _with(state, who, client)
        return self._arrive(sent, who, move.fate) if move.fate else sent

    def _fresh(self, state: State) -> int:
        """Return a birth number that nothing has."""
        found = [1]
        numbers = {*state.items}
        for client in state.clients:
            numbers.update(client.views)
            if client.lease is not None:
                found.append(client.lease.birth)
            for job in (client.job, client.late.job if client.late else None):
                writes = [self.operations[number] for _, number in job.writes] if job else []
                found.append(job.birth if job else 0)
                found += [one.item[attributes.BIRTH] for one in writes if isinstance(one, Put)]
        found += [self.items[number].get(attributes.BIRTH, 0) for number in numbers]
        return max(found) + 1

    def _arrive(self, state: State, who: int, fate: str) -> State | None:
        client = state.clients[who]
        job = client.job
        assert job is not None, "it was sent"
        if job.again:
            job = self._sent_again(state, job)
            state = _with(state, who, client._replace(job=job))
        if fate == LATE:
            client = state.clients[who]._replace(late=LateWrite(job))
            return self._in_doubt(_with(state, who, client), who)
        if fate == REQUEST_LOST:
            return self._in_doubt(state, who)
        committed = job.applied and self._has_token(job) and self.honours_tokens
        done = committed
        if not committed:
            items = self._write(state, job)
            done = items is not None
            if items is not None:
                state = state._replace(items=items)
                state = _with(state, who, state.clients[who]._replace(job=job._replace(applied=True)))
        if fate == ANSWER_LOST:
            return self._in_doubt(state, who)
        return self._hear(state, who, done=done)

    def _has_token(self, job: Job) -> bool:
        return len(job.writes) > 1 or job.kind.startswith("renew")

    def _sent_again(self, state: State, job: Job) -> Job:
        """Return a job as it is sent again: a take requires that its nonce is not there, a create has a new birth."""
        if self._has_token(job):
            return job
        again = [
            (shard, self._number_of(bucket_writes.sent_again(self.operations[number], self._fresh(state))))
            for shard, number in job.writes
        ]
        return job._replace(writes=tuple(again))

    def _in_doubt(self, state: State, who: int) -> State:
        """Return the state after a lost answer. A release is never sent again."""
        client = state.clients[who]
        assert client.job is not None, "it was sent"
        if client.job.kind.startswith("release") and not self.decisions.resends_releases:
            return self._ended(state, who)
        return _with(state, who, client._replace(job=client.job._replace(again=True)))

    def _write(self, state: State, job: Job) -> tuple[int, ...] | None:
        """Return the items after a job, None if it is refused. All of its operations are applied, or none."""
        items = list(state.items)
        for shard, number in job.writes:
            after = self._item_after(number, state.items[shard])
            if after is None:
                return None
            check_item(self.config, self.items[after], shard, self.checked)
            if self._is_of_first(job):
                now_ms = self.config.base_ms + state.tick * TICK_MS
                check_kept(self.config, self.items[after], shard, now_ms, self.checked)
            items[shard] = after
        self.kinds.add(job.kind)
        return tuple(items)

    def _is_of_first(self, job: Job) -> bool:
        """Return whether a job is a take of the first client, which has the first nonce."""
        first = self.operations[job.writes[0][1]]
        written = first.item if isinstance(first, Put) else first.set if isinstance(first, Update) else {}
        return bool(job.kind.startswith("take") and written.get(attributes.NONCE) == 1)

    def _item_after(self, operation: int, item: int) -> int | None:
        key = operation, item
        if key not in self._applied:
            result = evaluate.apply(self.operations[operation], self.items[item])
            self._applied[key] = self.stored(dict(result)) if isinstance(result, dict) else None
        return self._applied[key]

    def _hear(self, state: State, who: int, *, done: bool) -> State:
        """Return the state after an answer: a new view, and a lease if the take was applied."""
        client = state.clients[who]
        job = client.job
        assert job is not None, "it was sent"
        first = self.items[state.items[job.writes[0][0]]]
        if not done and job.again and not self._has_token(job) and job.kind in ("take", "create", "rebase"):
            done = self._is_mine(job, first)
        if done and job.kind in ("take", "create", "rebase", "take across") and job.moved:
            most = self._capacities(state)
            version = client.terms
            lease = Lease(job.moved, first[attributes.BIRTH], version, most)
            client = client._replace(lease=lease)
        elif client.lease is not None and job.kind.startswith("renew"):
            if done:
                final = sum(one.milli for one in job.moved) < sum(one.milli for one in client.lease.claims)
                client = client._replace(lease=client.lease._replace(claims=job.moved, final=final))
            elif job.again:
                # It may have been applied, or may still be.
                client = client._replace(lease=client.lease._replace(final=True))
        state = self._looked(_with(state, who, client), who, [shard for shard, _ in job.writes])
        return self._ended(state, who)

    def _is_mine(self, job: Job, item: Item) -> bool:
        write = self.operations[job.writes[0][1]]
        written = write.item if isinstance(write, Put) else write.set if isinstance(write, Update) else {}
        return bool(item) and written[attributes.NONCE] == item[attributes.NONCE]

    def _ended(self, state: State, who: int) -> State:
        """Return the state after a job ended: its nonce will not be compared any more."""
        client = state.clients[who]
        late = client.late
        if late is not None and not late.orphan:
            applied = late.job.applied or (client.job is not None and client.job.applied)
            late = LateWrite(late.job._replace(applied=applied), orphan=True)
        items = tuple([self._unsigned(number, who + 1) for number in state.items])
        return _with(state._replace(items=items), who, client._replace(job=None, late=late))

    def _unsigned(self, number: int, nonce: int) -> int:
        item = self.items[number]
        return self.stored({**item, attributes.NONCE: 0}) if item.get(attributes.NONCE) == nonce else number

    def _come_late(self, state: State, who: int) -> State:
        """Return the state after a write that was given up for lost arrives."""
        client = state.clients[who]
        late, job = client.late, client.job
        assert late is not None, "the move requires it"
        applied = late.job.applied if late.orphan or job is None else job.applied
        client = client._replace(late=None)
        state = _with(state, who, client)
        if applied and self._has_token(late.job):
            return state
        items = self._write(state, late.job)
        if items is None:
            return state
        if late.orphan:
            # Its nonce is of an earlier job, so it is never compared.
            items = tuple([self._unsigned(number, who + 1) for number in items])
        elif job is not None:
            state = _with(state, who, client._replace(job=job._replace(applied=True)))
        return state._replace(items=items)

    def _capacities(self, state: State) -> tuple[tuple[str, int], ...]:
        """Return the largest capacity in force of each limit, over all shards."""
        items = [self.items[number] for number in state.items]
        return tuple([(name, max(one.get(f"b_{name}_cp", 0) for one in items)) for name in names_of(self.config)])

    def noted(self, state: State) -> State:
        """Return the state in which leases have noted the capacities in force, and forgotten what ended for all."""
        clients, now = list(state.clients), dict(self._capacities(state))
        for who, client in enumerate(clients):
            lease = client.lease
            if lease is not None:
                most = tuple([(name, max(milli, now[name])) for name, milli in lease.most])
                clients[who] = client._replace(lease=lease._replace(most=most))
        return state._replace(clients=tuple(clients))


def _with(state: State, who: int, client: Client) -> State:
    clients = list(state.clients)
    clients[who] = client
    return state._replace(clients=tuple(clients))
