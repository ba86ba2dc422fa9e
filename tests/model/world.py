"""The events that are possible in a state, and the state that each leads to.

Nothing is decided here: writes come from the planner, and their effect from ``tables.evaluate``.
"""

from collections.abc import Iterator
from typing import Any

from tests.model.config import BASE_MS, Config, Milli, Order
from tests.model.creators import Creators
from tests.model.invariants import ALL, Invariants
from tests.model.plans import Learn, Marks, Plan, Planner
from tests.model.pool import Pool
from tests.model.rules import REAL, Rules
from tests.model.state import ABSENT, Actor, Creator, Job, LateWrite, Move, State
from tests.one_bucket import OWNER
from zae_limiter.schema.bucket_writes import Signature
from zae_limiter.tables import evaluate

ANSWERED, ANSWER_LOST, REQUEST_LOST, LATE = "answered", "answer lost", "request lost", "late"
_FATES = (ANSWERED, ANSWER_LOST, REQUEST_LOST)
OPERATOR = ("reset", "grant")

Applied = dict[int, int]
"""The items after a write, by shard."""


class World:
    """One bucket with one configuration and one set of rules."""

    def __init__(self, config: Config, rules: Rules = REAL, checked: frozenset[str] = ALL) -> None:
        self.config = config
        self.pool = Pool(config)
        self._rules = rules
        self._creators = Creators(config, self.pool)
        self._planner = Planner(config, self.pool, rules)
        self.invariants = Invariants(config, self.pool, checked, rules.take_across)
        self._none = config.milli({})
        self._applied: dict[object, Applied | None] = {}
        self.writes: set[str] = set()

    def start(self) -> State:
        """Return the first state: no views, and a bucket that does not exist or is full."""
        config = self.config
        shards = config.most_shards
        items = [ABSENT] * shards
        if config.created:
            item = self._rules.create(OWNER, config.terms[0], {}, BASE_MS, Signature(0, 1)).item
            items[0] = self.pool.stored(dict(item), 0)
        actors = [
            Actor(
                (ABSENT,) * shards,
                who % len(config.versions) if config.own else 0,
                self._none,
                unsure=0 if who else config.unsure,
            )
            for who in range(config.clients)
        ]
        if config.aggregator:
            actors.append(Actor((ABSENT,) * shards, 0, self._none))
        ledger = tuple(tuple(0 for _ in capacities) for capacities in config.capacities)
        return State(tuple(items), tuple(actors), ledger, 0, 0)

    def is_final(self, state: State) -> bool:
        """Return whether nothing is explored beyond a state."""
        return self.config.unsure > 0 and self._creators.are_done(state)

    def moves(self, state: State) -> Iterator[Move]:
        """Yield everything that may happen; some of it changes nothing."""
        for who, actor in enumerate(state.actors):
            if actor.job is None:
                yield from self._idle_moves(who, actor)
                if not self.config.own and actor.terms < state.version:
                    yield Move("learns", who)
            else:
                for fate in self._fates(who, actor):
                    yield Move("arrives", who, detail=fate)
                if actor.job.again:
                    yield Move("gives up", who)
            if actor.late_write is not None:
                yield Move("comes late", who)
                yield Move("never comes", who)
        yield Move("tick")
        if self.config.ttl:
            yield Move("expires")
        if self.config.deletes:
            yield Move("deletes")
        if not self.config.own and state.version + 1 < len(self.config.versions):
            yield Move("configures")

    def _idle_moves(self, who: int, actor: Actor) -> Iterator[Move]:
        for shard in range(self.config.most_shards):
            yield Move("looks", who, detail=str(shard))
        clients = self.config.clients
        # If no time can pass meanwhile, a write arrives when it is sent: its view may be old, so others came before it.
        fates = ("",) if self.config.deadline_ticks else self._fates(who, actor)
        for order in self.config.client_orders if who < clients else self.config.aggregator_orders:
            for fate in fates:
                yield Move("sends", who, order, fate)
        if any(actor.held):
            yield Move("ends", who)
        if actor.unsure:
            yield Move("narrows", who)

    def _fates(self, who: int, actor: Actor) -> tuple[str, ...]:
        """Return what may happen to a write."""
        if who not in self.config.lossy:
            return (ANSWERED,)
        return (*_FATES, LATE) if who < self.config.late and actor.late_write is None else _FATES

    def after(self, state: State, move: Move) -> State | None:
        """Return the state that a move leads to, None if it is impossible now.

        Raises:
            ViolationError: An invariant does not hold.
        """
        new: State | None
        match move.what:
            case "tick":
                new = self._tick(state)
            case "expires":
                new = self._expire(state)
            case "deletes":
                new = self._delete(state)
            case "configures":
                new = state._replace(version=state.version + 1)
            case _:
                new = self._act(state, move)
        return None if new is None or new == state else self._folded(new)

    def _act(self, state: State, move: Move) -> State | None:
        """Return the state after an actor's own move, or after something happened to its write."""
        who, actor = move.who, state.actors[move.who]
        match move.what:
            case "looks":
                shard = int(move.detail)
                return _with(state, who, _seeing(actor, {shard: self.pool.seen(state.items[shard])}))
            case "learns":
                return _with(state, who, actor._replace(terms=state.version))
            case "ends":
                return _with(state, who, actor._replace(held=self._none))
            case "narrows":
                return _with(state, who, actor._replace(unsure=actor.unsure - 1))
            case "sends":
                assert move.order is not None
                return self._send(state, who, move.order, move.detail)
            case "arrives":
                return self._arrive(state, who, move.detail)
            case "gives up":
                return self._ended(state, who, self._none)
            case "comes late":
                return self._come_late(state, who)
            case _:
                return _with(state, who, actor._replace(late_write=None))

    # Sending, arrival and answers.

    def _send(self, state: State, who: int, order: Order, fate: str) -> State | None:
        actor = state.actors[who]
        if not self._may_send(state, actor, order):
            return None
        plan = self._plan(state, actor, Job(order), who + 1)
        if isinstance(plan, Learn):
            return _with(state, who, actor._replace(terms=state.version))
        if plan is None:
            return None
        sent = _with(state, who, actor._replace(job=Job(order)))
        return self._arrive(sent, who, fate) if fate else sent

    def _may_send(self, state: State, actor: Actor, order: Order) -> bool:
        """Return whether an order is allowed: a client takes only if it holds nothing, and debts are bounded.

        It settles only with what it holds, also if the settlement was put off.
        """
        if order.kind in OPERATOR:
            return True
        if any(order.takes) and order.kind != "combine":
            return not any(actor.held)
        for held, debit, credit in zip(actor.held, order.debits, order.credits, strict=True):
            if credit > held or (debit and not held):
                return False
        return not self._owes_too_much(state, order)

    def _owes_too_much(self, state: State, order: Order) -> bool:
        """Return whether a debit would exceed the debts that are modelled. Such a debit never arrives."""
        for capacities, used, debit in zip(self.config.capacities, state.ledger, order.debits, strict=True):
            if debit and used[-1] + debit > capacities[-1] + self.config.most_debt * 1000:
                return True
        return False

    def _plan(self, state: State, by: Actor | LateWrite, job: Job, nonce: int) -> Any:
        decided_ms = self.config.now_ms(state.phase) - job.age * self.config.tick_ms
        # Its knowledge at the time of the decision.
        creator = by.creator and by.creator._replace(age=by.creator.age - job.age)
        marks = Marks(nonce, self._fresh(state), by.birth, by.unsure, creator)
        return self._planner.plan(job.order, (by.views, by.terms), decided_ms, marks, again=job.again)

    def _fresh(self, state: State) -> int:
        """Return a birth number that no bucket, view or lease has."""
        places = self.pool.places
        return 1 + max(max(places[one][2] for one in _numbers(state)), *_held_births(state))

    def _arrive(self, state: State, who: int, fate: str) -> State | None:
        actor = state.actors[who]
        job = actor.job
        assert job is not None
        if fate == REQUEST_LOST:
            return self._in_doubt(state, who)
        if fate == LATE:
            late_write = LateWrite(job, actor.views, actor.terms, False, actor.birth, actor.unsure, actor.creator)
            return self._in_doubt(_with(state, who, actor._replace(late_write=late_write)), who)
        plan: Plan = self._plan(state, actor, job, who + 1)
        if self._owes_too_much(state, job.order):
            return None
        committed = plan.token and job.acted > 0 and self._rules.honours_tokens
        done = None if committed else self._write(state, plan, job)
        if done is not None:
            given = plan.kind == "grant" or (not job.credited and self._is_its_own(state, plan, actor))
            state = self._recorded(state, done, (plan, who), given=given)
            job = job._replace(acted=min(2, job.acted + 1), credited=job.credited or any(plan.credits))
            state = _with(state, who, state.actors[who]._replace(job=job))
        if fate == ANSWER_LOST:
            return self._in_doubt(state, who)
        return self._hear(state, who, plan, done is not None or committed)

    def _write(self, state: State, plan: Plan, job: Job) -> Applied | None:
        """Return the items after a write, None if it is refused. All of its operations are applied, or none."""
        if plan.kind == "grant" and state.recorded and self._rules.keeps_records:
            return None
        before = tuple([state.items[shard] for shard, _ in plan.writes])
        key = id(plan), before, state.phase
        if key not in self._applied:
            results = {}
            for shard, write in plan.writes:
                result = evaluate.apply(write, self.pool.items[state.items[shard]])
                results[shard] = result if isinstance(result, dict) else None
            self._applied[key] = None
            after = {shard: item for shard, item in results.items() if item is not None}
            if len(after) == len(results):
                self.invariants.check_write(state.items, after, (plan, job.order), state.phase)
                stored = {k: self.pool.stored(item, state.phase) if item else ABSENT for k, item in after.items()}
                self._applied[key] = stored
                self.writes.add(plan.kind)
        return self._applied[key]

    def _recorded(self, state: State, done: Applied, by: tuple[Plan, int], *, given: bool) -> State:
        """Return the state after a write was applied: items, ledger, and the jobs whose nonces it replaced."""
        plan, who = by
        items = list(state.items)
        for shard, number in done.items():
            items[shard] = number
        ledger = self.invariants.after_write(state, tuple(items), plan, given)
        state = state._replace(recorded=state.recorded or plan.kind == "grant")
        overwritten = {self.pool.items[state.items[shard]].get("op", 0) - 1 for shard in done} - {-1, who}
        return _disturbed(state._replace(items=tuple(items), ledger=ledger), overwritten)

    def _in_doubt(self, state: State, who: int) -> State:
        """Return the state after a lost answer: the write is sent again, unless it may have credited something."""
        actor = state.actors[who]
        assert actor.job is not None
        order = actor.job.order
        if order.kind in OPERATOR:
            return _with(state, who, actor._replace(job=actor.job._replace(again=True)))
        only_credits = any(order.credits) and not any(order.debits) and not any(order.takes)
        if only_credits and not self._rules.resends_credits:
            return self._ended(state, who, _less(actor.held, order.credits))
        held = actor.held if self._rules.resends_credits else _less(actor.held, order.credits)
        return _with(state, who, actor._replace(job=actor.job._replace(again=True), held=held))

    def _hear(self, state: State, who: int, plan: Plan, applied: bool) -> State:
        """Return the state after an answer: the client has a new view, and knows whether its write was applied."""
        actor = state.actors[who]
        job = actor.job
        assert job is not None
        shards = [shard for shard, _ in plan.writes]
        if not applied and job.again and not plan.token:
            applied = self._rules.is_mine(plan.writes[0][1], self.pool.items[state.items[shards[0]]])
        self.invariants.check_belief(job, granted=applied)
        seen = _seeing(actor, {shard: self.pool.seen(state.items[shard]) for shard in shards})
        if applied and plan.kind == "create":
            seen = self._creators.after_create(seen)
        elif applied and plan.kind in ("take", "top-up"):
            seen = self._creators.after_take(seen, plan.takes, self.config.now_ms(state.phase))
        held = actor.held
        if plan.kind in ("debit", "credit"):
            # A refused debit is decided again; a credit is refused only if the bucket no longer exists.
            done = applied or plan.kind == "credit"
            held = _less(held, plan.credits) if done and not any(plan.debits) else self._none if done else held
        elif applied and plan.kind not in OPERATOR and (self.config.debts or self.config.refunds):
            held = plan.takes
            seen = seen._replace(birth=self.pool.places[seen.views[shards[0]]][2])
        return self._ended(_with(state, who, seen), who, held)

    def _ended(self, state: State, who: int, held: Milli) -> State:
        """Return the state after a job ended: its nonce will not be compared any more."""
        actor = state.actors[who]
        late_write = actor.late_write
        if late_write is not None and actor.job is not None and not late_write.orphan:
            late_write = late_write._replace(orphan=True, job=_as_often(late_write.job, actor.job))
        items = tuple([self.pool.unsigned(one, who + 1) for one in state.items])
        return _with(state._replace(items=items), who, actor._replace(job=None, held=held, late_write=late_write))

    def _come_late(self, state: State, who: int) -> State:
        """Return the state after a write that was given up for lost arrives."""
        actor = state.actors[who]
        late_write, job = actor.late_write, actor.job
        assert late_write is not None
        actor = actor._replace(late_write=None)
        alive = None if late_write.orphan else job
        known = late_write.job if alive is None else alive
        acted, credited = known.acted, known.credited
        plan: Plan = self._plan(state, late_write, late_write.job, 0 if alive is None else who + 1)
        committed = plan.token and acted > 0 and self._rules.honours_tokens
        done = None
        if not committed and not self._owes_too_much(state, late_write.job.order):
            done = self._write(state, plan, late_write.job)
        if alive is not None:
            applied = min(2, acted + (done is not None))
            credited_now = credited or (done is not None and any(plan.credits))
            actor = actor._replace(job=alive._replace(acted=applied, disturbed=True, credited=credited_now))
        state = _with(state, who, actor)
        if done is None:
            return state
        # Its actor may have another job by now, whose nonce it overwrites.
        given = not credited and self._is_its_own(state, plan, late_write)
        return self._recorded(state, done, (plan, -1 if alive is None else who), given=given)

    def _is_its_own(self, state: State, plan: Plan, by: Actor | LateWrite) -> bool:
        """Return whether a write goes to the bucket that its sender has charged."""
        return self.pool.places[state.items[plan.writes[0][0]]][2] == by.birth

    # Time, expiry, deletion, and the merging of states.

    def _tick(self, state: State) -> State:
        """Return the state one tick later: all limits earn, and writes in flight for too long are lost."""
        ledger = self.invariants.after_tick(state)
        for who, actor in enumerate(state.actors):
            if actor.job is not None and actor.job.age == self.config.deadline_ticks:
                state = self._ended(state, who, self._none)
        phase = (state.phase + 1) % self.config.phases
        turned = phase == 0

        def later(numbers: tuple[int, ...]) -> tuple[int, ...]:
            return tuple([self.pool.trimmed(number, phase, turned=turned) for number in numbers])

        actors = tuple([self._older(actor)._replace(views=later(actor.views)) for actor in state.actors])
        actors = tuple(
            [
                one
                if one.late_write is None
                else one._replace(late_write=one.late_write._replace(views=later(one.late_write.views)))
                for one in actors
            ]
        )
        return State(later(state.items), actors, ledger, phase, state.version, state.recorded)

    def _older(self, actor: Actor) -> Actor:
        job, late_write = actor.job, actor.late_write
        if late_write is not None:
            aged = late_write.job._replace(age=late_write.job.age + 1)
            late_write = late_write._replace(job=aged, creator=_aged(late_write.creator))
            late_write = None if aged.age > self.config.deadline_ticks else late_write
        job = None if job is None else job._replace(age=job.age + 1)
        return actor._replace(job=job, late_write=late_write, creator=_aged(actor.creator))

    def _expire(self, state: State) -> State | None:
        """Return the state after the table removed an item whose expiry has passed."""
        item = self.pool.items[state.items[0]]
        if "ttl" not in item or item["ttl"] >= self.config.now_ms(state.phase) // 1000:
            return None
        gone = state._replace(items=(ABSENT, *state.items[1:]))
        return _disturbed(gone, {item["op"] - 1})

    def _delete(self, state: State) -> State:
        """Return the state after the bucket was deleted with all its shards: a new bucket starts from zero."""
        signed = {self.pool.items[one].get("op", 0) - 1 for one in state.items}
        ledger = tuple(tuple(0 for _ in used) for used in state.ledger)
        gone = state._replace(items=(ABSENT,) * len(state.items), ledger=ledger)
        return _disturbed(gone, signed)

    def _folded(self, state: State) -> State:
        """Return the same state in the form in which equal states compare equal."""
        if self.config.forgets:
            state = state._replace(actors=tuple([self._forgetting(actor, state.items) for actor in state.actors]))
        if self.config.unsure:
            state = self._creators.folded(state)
        actors = [one if any(one.held) or _settles(one.job) else one._replace(birth=0) for one in state.actors]
        state = state._replace(actors=tuple(actors))
        renumbering = self.pool.fold(state.phase, _numbers(state), _held_births(state))
        if renumbering is None:
            return state
        moved, births = self.pool.moved, renumbering.births

        def renumbered(ones: tuple[int, ...]) -> tuple[int, ...]:
            return tuple([moved(one, renumbering.places) for one in ones])

        actors = []
        for actor in state.actors:
            late_write = actor.late_write
            if late_write is not None:
                late_write = late_write._replace(views=renumbered(late_write.views), birth=births[late_write.birth])
                late_write = late_write._replace(creator=_reborn(late_write.creator, births))
            actor = actor._replace(creator=_reborn(actor.creator, births))
            actors.append(
                actor._replace(views=renumbered(actor.views), late_write=late_write, birth=births[actor.birth])
            )
        return state._replace(items=renumbered(state.items), actors=tuple(actors))

    def _forgetting(self, actor: Actor, items: tuple[int, ...]) -> Actor:
        """Return an actor that, if idle, keeps only views of existing items on the same baseline."""
        if actor.job is not None:
            return actor
        layouts = self.pool.layouts
        pairs = zip(actor.views, items, strict=True)
        return actor._replace(views=tuple([view if layouts[view] == layouts[item] else ABSENT for view, item in pairs]))


def _numbers(state: State) -> list[int]:
    """Yield all items and views of a state."""
    numbers = list(state.items)
    for actor in state.actors:
        numbers += actor.views
        if actor.late_write is not None:
            numbers += actor.late_write.views
    return numbers


def _held_births(state: State) -> tuple[int, ...]:
    """Return the birth numbers of leases, late writes and creators."""
    known = [*state.actors, *(actor.late_write for actor in state.actors if actor.late_write is not None)]
    return (*(one.birth for one in known), *(one.creator.birth for one in known if one.creator is not None))


def _aged(creator: Creator | None) -> Creator | None:
    return creator and creator._replace(age=creator.age + 1)


def _reborn(creator: Creator | None, births: dict[int, int]) -> Creator | None:
    return creator and creator._replace(birth=births[creator.birth])


def _with(state: State, who: int, actor: Actor) -> State:
    actors = state.actors
    return state._replace(actors=(*actors[:who], actor, *actors[who + 1 :]))


def _seeing(actor: Actor, seen: dict[int, int]) -> Actor:
    return actor._replace(views=tuple([seen.get(shard, number) for shard, number in enumerate(actor.views)]))


def _disturbed(state: State, overwritten: set[int]) -> State:
    for who in overwritten:
        if who >= 0 and (job := state.actors[who].job) is not None:
            state = _with(state, who, state.actors[who]._replace(job=job._replace(disturbed=True)))
    return state


def _settles(job: Job | None) -> bool:
    """Return whether a job settles with the bucket that its client has charged, and takes."""
    return job is not None and job.order.kind == "combine"


def _as_often(late: Job, job: Job) -> Job:
    """Return a late write of a job with what is known of it at its end."""
    return late._replace(acted=job.acted, credited=job.credited)


def _less(held: Milli, credits: Milli) -> Milli:
    return tuple([max(0, one - credit) for one, credit in zip(held, credits, strict=True)])
