"""The events of the model of quotas, the state that each leads to, and what must hold."""

from collections.abc import Iterator

from tests.model.invariants import ViolationError
from tests.model.quotas_ledger import Ledger, spent_of
from tests.model.quotas_plans import Planner
from tests.model.quotas_rules import REAL, Rules
from tests.model.quotas_state import Client, Config, Held, Item, Job, Move, Order, Part, Plan, State, View
from zae_limiter.core.quota import BAND, HALF_BAND

ANSWERED, LOST, LATE = "answered", "answer lost", "late"
_RAISING = ("rebase", "split", "merge", "reset")
_ORPHAN, _ASKED_ALONE = 9, 8
"""The nonces of a write that comes late, and of one that is decided only to see whether it would be applied."""


class QuotaWorld:
    """One configuration and one set of rules."""

    def __init__(self, config: Config, rules: Rules = REAL) -> None:
        self.config = config
        self._rules = rules
        self._planner = Planner(config, rules)
        self._ledger = Ledger(config)
        self._live: set[object] = set()
        self.kinds: set[str] = set()

    def start(self) -> State:
        """Return the first state: no views, and a bucket that does not exist or has spent something."""
        config = self.config
        items: list[Item | None] = [None] * config.places
        ledger: tuple[object, ...] = ()
        if config.start_spent is not None:
            for place in range(config.places if config.several else 1):
                key = (place if config.several else 0, 0, 0)
                items[place] = Item(-config.start_spent, 0, 1, 0, 1, 0, key)
                ledger = (*ledger, self._ledger.entry(key, config.start_spent, config.versions[0].amount))
        held = [(Held(0, 0, 1, amount),) if amount else () for amount in config.start_held]
        clients = tuple(Client((None,) * config.places, held=held[who]) for who in range(len(config.orders)))
        return State(0, tuple(items), clients, 0, ledger)  # type: ignore[arg-type] # the values have the types of their fields

    # What may happen.

    def moves(self, state: State) -> Iterator[Move]:
        """Yield everything that may happen; some of it is impossible, or changes nothing."""
        config = self.config
        if state.tick + 1 < len(config.times):
            yield Move("tick")
        if state.version + 1 < len(config.versions):
            yield Move("configure")
        if state.deleted < config.deletes:
            yield Move("delete")
        for who, client in enumerate(state.clients):
            if client.late is not None:
                yield Move("comes late", who)
            if client.job is not None:
                yield Move("resend", who, detail=ANSWERED)
                yield Move("resend", who, detail=LOST)
                yield Move("give up", who)
            else:
                yield from self._idle_moves(state, who, client)

    def _idle_moves(self, state: State, who: int, client: Client) -> Iterator[Move]:
        for place in range(self.config.places):
            yield Move("look", who, detail=str(place))
        if client.version < state.version:
            yield Move("learn", who)
        if client.held:
            yield Move("end", who)
        for order in self.config.orders[who]:
            for fate in self._fates(who, client):
                yield Move("send", who, order, fate)

    def _fates(self, who: int, client: Client) -> tuple[str, ...]:
        lost = (LOST,) if who in self.config.lossy else ()
        late = (LATE,) if who in self.config.late and client.late is None else ()
        return (ANSWERED, *lost, *late)

    def after(self, state: State, move: Move) -> State | None:
        """Return the state that a move leads to, None if it is impossible or changes nothing.

        Raises:
            ViolationError: An invariant does not hold.
        """
        new = self._after(state, move)
        return None if new is None or new == state else new

    def _after(self, state: State, move: Move) -> State | None:
        who = move.client
        if move.what == "tick":
            return state._replace(tick=state.tick + 1)
        if move.what == "configure":
            return state._replace(version=state.version + 1)
        if move.what == "delete":
            items = (None,) * len(state.items)
            return state._replace(items=items, ledger=(), deleted=state.deleted + 1)
        client = state.clients[who]
        if move.what == "look":
            place = int(move.detail)
            views = _put(client.views, place, _seen(state.items[place]))
            return _with(state, who, client._replace(views=views))
        if move.what == "learn":
            return _with(state, who, client._replace(version=state.version))
        if move.what == "end":
            return _with(state, who, client._replace(held=()))
        return self._write_move(state, move, client)

    def _write_move(self, state: State, move: Move, client: Client) -> State | None:
        who = move.client
        if move.what == "give up":
            return self._ended(state, who)
        if move.what == "comes late":
            assert client.late is not None
            state = _with(state, who, client._replace(late=None))
            done = self._applied(state, client.late, _ORPHAN, again=False)
            return state if done is None else self._counted(done, client.late, state)
        if move.what == "resend":
            return self._resend(state, who, move.detail)
        assert move.order is not None
        return self._send(state, who, move.order, move.detail)

    # Sending and answers.

    def _send(self, state: State, who: int, order: Order, fate: str) -> State | None:
        client = state.clients[who]
        plan = self._planner.plan(client, who, order, self.config.times[state.tick], _fresh(state))
        if plan is None or not self._may_change(state, plan):
            return None
        if sum(part.credit for part in plan.parts) > sum(one.amount for one in client.held):
            raise ViolationError("twice", "a credit exceeds what the lease holds")
        if plan.kind == "credit":
            held = client.held if self._rules.resends_credits else self._left(client.held, plan)
            client = client._replace(held=held)
        elif plan.kind in ("debit", "spread"):
            client = client._replace(held=() if fate != ANSWERED else client.held)
        state = _with(state, who, client._replace(job=Job(plan)))
        if fate == LATE:
            return self._in_doubt(_with(state, who, state.clients[who]._replace(late=plan)), who)
        return self._arrive(state, who, fate, again=False)

    def _left(self, held: tuple[Held, ...], plan: Plan) -> tuple[Held, ...]:
        if self.config.room:
            return ()
        part = plan.parts[0]
        return tuple(one for one in held if (one.place, one.epoch) != (part.place, part.epoch))

    def _may_change(self, state: State, plan: Plan) -> bool:
        if plan.kind not in ("split", "merge", "reset"):
            return True
        return max((item.generation for item in state.items if item), default=0) < self.config.most_changes

    def _arrive(self, state: State, who: int, fate: str, *, again: bool) -> State:
        client = state.clients[who]
        job = client.job
        assert job is not None
        committed = job.plan.token and job.acted > 0 and self._rules.honours_tokens
        done = None if committed else self._applied(state, job.plan, who + 1, again=again)
        if done is not None:
            if job.acted and any(part.credit for part in job.plan.parts):
                raise ViolationError("twice", "a credit was given twice")
            state = self._counted(done, job.plan, state)
            job = job._replace(acted=min(2, job.acted + 1))
            state = _with(state, who, state.clients[who]._replace(job=job))
        if fate == LOST:
            return self._in_doubt(state, who)
        return self._heard(state, who, done is not None or committed)

    def _resend(self, state: State, who: int, fate: str) -> State:
        client = state.clients[who]
        job = client.job
        assert job is not None
        if job.plan.kind == "create":
            # Every attempt draws a new birth number: an older one may still arrive.
            others = _with(state, who, client._replace(job=None))
            part = job.plan.parts[0]._replace(birth=_fresh(others))
            state = _with(state, who, client._replace(job=job._replace(plan=Plan("create", (part,)))))
        return self._arrive(state, who, fate, again=True)

    def _in_doubt(self, state: State, who: int) -> State:
        """Return the state after a lost answer. A credit is never sent again, and a take without its credits."""
        client = state.clients[who]
        assert client.job is not None
        plan = client.job.plan
        if plan.kind == "credit" and not plan.token and not self._rules.resends_credits:
            return self._ended(state, who)
        if plan.kind == "group" and any(part.credit for part in plan.parts) and not self._rules.resends_credits:
            # It could be sent again without its credits. That is a take, which is modelled.
            return self._ended(_with(state, who, client._replace(held=())), who)
        return state

    def _heard(self, state: State, who: int, applied: bool) -> State:
        client = state.clients[who]
        job = client.job
        assert job is not None
        plan = job.plan
        item = state.items[plan.parts[0].place]
        if not applied and job.acted and not plan.token and item is not None:
            applied = item.op == who + 1
        if applied and not job.acted:
            raise ViolationError("belief", "a client treats a write as applied that was not")
        views = client.views
        for part in plan.parts:
            views = _put(views, part.place, _seen(state.items[part.place]))
        client = client._replace(views=views)
        if plan.kind in ("take", "create", "rebase", "group") and applied:
            part = plan.parts[0]
            assert item is not None
            mine = Held(part.place, part.epoch, item.birth, part.take)
            kept = tuple(one for one in client.held if one.place != part.place)
            client = client._replace(held=tuple(sorted((*kept, mine))))
        elif plan.kind in ("debit", "spread") and applied:
            client = client._replace(held=())
        return self._ended(_with(state, who, client), who)

    def _ended(self, state: State, who: int) -> State:
        items = tuple(item._replace(op=0) if item is not None and item.op == who + 1 else item for item in state.items)
        return _with(state._replace(items=items), who, state.clients[who]._replace(job=None))

    # Writes.

    def _applied(self, state: State, plan: Plan, nonce: int, *, again: bool) -> tuple[Item | None, ...] | None:
        """Return the items after a write, None if a condition does not hold."""
        items = list(state.items)
        for part in plan.parts:
            item = items[part.place]
            if nonce != _ASKED_ALONE and self._spends_too_much(part, item):
                return None
            if not _admits(part, item) or (again and not plan.token and item is not None and item.op == nonce):
                return None
        raising = plan.kind in _RAISING
        for part in plan.parts:
            items[part.place] = self._ledger.item_after(items, part, plan.kind, nonce, raising=raising)
        return tuple(items)

    def _spends_too_much(self, part: Part, item: Item | None) -> bool:
        """Return whether a write would spend more than is modelled. Such a write never arrives."""
        most = self.config.most_spent
        return most is not None and item is not None and _spent_after(part, item) > most

    def _counted(self, items: tuple[Item | None, ...], plan: Plan, before: State) -> State:
        self.kinds.add(plan.kind)
        state = before._replace(items=items)
        ledger = self._ledger.after(before, items, plan)
        return state._replace(ledger=ledger)

    # What must hold in every state.

    def check(self, state: State) -> None:
        """Check what must hold in a state, whatever led to it.

        Raises:
            ViolationError: An invariant does not hold.
        """
        self._ledger.check(state)
        now_s = self.config.times[state.tick]
        for who, client in enumerate(state.clients):
            key = state.items, state.tick, client.version, who
            if key in self._live:
                continue
            self._live.add(key)
            for place, item in enumerate(state.items):
                if item is not None:
                    self._check_refilled(item, who, now_s)
                    if item.version == client.version:
                        self._check_live(state, who, place)

    def _check_refilled(self, item: Item, who: int, now_s: int) -> None:
        """By a view that is true, the epoch is the client's period or a later one: an edge refills at once."""
        calendar = self.config.versions[item.version].calendar
        low_s = now_s - self.config.clocks[who][0]
        known_s = self._rules.known_s(low_s, [item.qk])
        epoch = self._rules.current_epoch(item.qk, calendar.begin_s(who, known_s), calendar.tolerance)
        index = calendar.index_of(epoch)
        due = calendar.index(who, low_s)
        # A reset just after an edge belongs to that edge, which this client may compute a little later.
        least = 2 * calendar.begin_s(who, low_s) - (0 if epoch % 2 else calendar.tolerance - 1)
        holds = epoch >= least if index is None else index >= due
        if not holds:
            raise ViolationError("refilled", f"client {who} is in period {due}, but writes to epoch {epoch}")

    def _check_live(self, state: State, who: int, place: int) -> None:
        """A take or debit that is decided on a true view is not refused, and a take is possible if it fits."""
        client = state.clients[who]
        item = state.items[place]
        assert item is not None
        fresh = client._replace(views=tuple(map(_seen, state.items)), held=(Held(place, 0, item.birth, 1),))
        alone = client._replace(views=fresh.views, held=())
        now_s = self.config.times[state.tick]
        for asking, order in ((alone, Order("take", 1, place=place)), (fresh, Order("debit", debit=1, place=place))):
            plan = self._planner.plan(asking, who, order, now_s, 99)
            if plan is None:
                self._check_short(item, who, now_s, place)
            elif self._applied(state, plan, _ASKED_ALONE, again=False) is None:
                raise ViolationError("live", f"a {order.kind} that is decided on a true view is refused")

    def _check_short(self, item: Item, who: int, now_s: int, place: int) -> None:
        version = self.config.versions[item.version]
        reserve = self.config.reserve[who]
        low_s = now_s - self.config.clocks[who][0]
        band = (HALF_BAND - item.qk) // BAND
        in_period = band >= 2 * version.calendar.begin_s(who, low_s) - version.calendar.tolerance
        share = self._ledger.share(version.amount, place, item.count)
        if (
            version.soft
            or not in_period
            or spent_of(item) + 1 + self._ledger.share(reserve, place, item.count) <= share
        ):
            raise ViolationError("live", "a take that fits is rejected")


def _admits(part: Part, item: Item | None) -> bool:
    if part.put or item is None:
        return part.put and item is None
    if part.birth is not None and part.birth != item.birth:
        return False
    if part.generation is not None and part.generation != item.generation:
        return False
    return (part.low is None or part.low <= item.qk) and (part.high is None or item.qk <= part.high)


def _spent_after(part: Part, item: Item) -> int:
    return (spent_of(item) if part.new is None else 0) + part.take + part.debit


def _seen(item: Item | None) -> View | None:
    return None if item is None else View(*item[:5])


def _put(values: tuple[View | None, ...], place: int, value: View | None) -> tuple[View | None, ...]:
    return (*values[:place], value, *values[place + 1 :])


def _with(state: State, who: int, client: Client) -> State:
    return state._replace(clients=(*state.clients[:who], client, *state.clients[who + 1 :]))


def _fresh(state: State) -> int:
    """Return a birth number that no bucket, view, lease or write in flight has."""
    found = [item.birth for item in state.items if item]
    for client in state.clients:
        found += [seen.birth for seen in client.views if seen] + [one.birth for one in client.held]
        plans = [client.job.plan if client.job else None, client.late]
        found += [part.birth or 0 for plan in plans if plan for part in plan.parts]
    return 1 + max(found, default=0)
