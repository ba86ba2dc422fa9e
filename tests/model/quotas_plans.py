"""What a client writes, decided from its views and its time bounds by the rows of ``core.quota``."""

from typing import Any

from tests.model.quotas_rules import Rules
from tests.model.quotas_state import Client, Config, Held, Order, Part, Plan, Version, View
from zae_limiter.core.quota import QuotaSet, QuotaView
from zae_limiter.core.sharding import share


class Planner:
    """Plans the writes of one configuration."""

    def __init__(self, config: Config, rules: Rules) -> None:
        self._config = config
        self._rules = rules

    def plan(self, client: Client, who: int, order: Order, now_s: int, fresh: int) -> Plan | None:
        """Return the write of an order, None if it is impossible or surely refused. ``fresh`` is a new birth number."""
        decided = _Decision(self._config, self._rules, client, who, now_s)
        if order.kind == "take":
            return decided.take(order, fresh)
        return getattr(decided, order.kind)(order)  # type: ignore[no-any-return] # all of them return a plan


class _Decision:
    """One decision of one client at one time."""

    def __init__(self, config: Config, rules: Rules, client: Client, who: int, now_s: int) -> None:
        self._config, self._rules, self._client, self._who = config, rules, client, who
        early, late = config.clocks[who]
        self._low_s, self._high_s = now_s - early, now_s + late
        self._terms = config.versions[client.version]

    def take(self, order: Order, fresh: int) -> Plan | None:
        seen = self._client.views[order.place]
        if seen is None:
            return self._create(order, fresh)
        if seen.version > self._client.version or (self._held_at(order.place) and not self._config.several):
            return None
        if seen.version < self._client.version:
            return self._rebase(order, seen)
        view = self._view(seen, order.place)
        if self._terms.soft:
            write = self._rules.debit(view, order.take)
            return self._one("take", order.place, seen, write, view, take=order.take)
        reserve = self._reserve(order.place, seen.count)
        write = self._rules.settle_and_take(view, order.take, 0, 0, reserve)
        return self._one("take", order.place, seen, write, view, take=order.take, reserve=reserve)

    def group(self, order: Order) -> Plan | None:
        """Return a take with the settlement of what the client holds: a group commit."""
        seen = self._client.views[order.place]
        if seen is None or seen.version != self._client.version or not self._client.held:
            return None
        view = self._view(seen, order.place)
        mine = [one for one in self._client.held if one.place == order.place and one.birth == seen.birth]
        credit = 0 if order.debit else sum(one.amount for one in mine if one.epoch == view.epoch)
        if not self._rules.whole_group:
            credit = sum(one.amount for one in mine)
        if self._terms.soft:
            write = self._rules.debit_and_credit(view, order.take + order.debit, credit)
        else:
            write = self._rules.settle_and_take(view, order.take, order.debit, credit)
        return self._one("group", order.place, seen, write, view, take=order.take, debit=order.debit, credit=credit)

    def debit(self, order: Order) -> Plan | None:
        seen = self._client.views[order.place]
        if seen is None or not self._client.held:
            return None
        view = self._view(seen, order.place)
        return self._one("debit", order.place, seen, self._rules.debit(view, order.debit), view, debit=order.debit)

    def spread(self, order: Order) -> Plan | None:
        """Return a debit that is charged to all shards in one transaction."""
        if not self._client.held or self._any_absent():
            return None
        parts: list[Part] = []
        for place, seen in enumerate(self._seen()):
            view = self._view(seen, place, all_views=True)
            debit = order.debit // len(self._client.views)
            plan = self._one("spread", place, seen, self._rules.debit(view, debit), view, debit=debit)
            assert plan is not None
            parts += plan.parts
        return Plan("spread", tuple(parts), token=True)

    def credit(self, order: Order) -> Plan | None:
        """Return what gives back the lease, to the shards that were charged, or wherever there is room."""
        held = self._client.held
        if not held:
            return None
        if not self._config.room:
            one = held[order.place % len(held)]
            write = self._rules.credit(one.epoch, one.amount)
            birth = None if self._rules.credits_any else one.birth
            part = Part(one.place, write.change, None, write.low, write.high, birth, credit=one.amount, epoch=one.epoch)
            return Plan("credit", (part,))
        charged = {(one.place, one.epoch): one.amount for one in held}
        numbers = {place: seen.qk for place, seen in enumerate(self._client.views) if seen is not None}
        shared = self._rules.share_credit(charged, sum(charged.values()), numbers)
        parts = []
        for place, (epoch, amount) in sorted(shared.items()):
            write = self._rules.credit(epoch, amount)
            parts.append(
                Part(place, write.change, None, write.low, write.high, held[0].birth, credit=amount, epoch=epoch)
            )
        return Plan("credit", tuple(parts), token=len(parts) > 1) if parts else None

    def split(self, order: Order) -> Plan | None:
        seen = self._client.views[0]
        if seen is None or seen.count != 1 or self._config.places != 2:
            return None
        view = self._view(seen, 0)
        found = self._rules.split(view, share(self._stored(seen).amount, 1, 2))
        if found is None:
            return None
        plan = self._one("split", 0, seen, found.old_write, view)
        assert plan is not None
        old = plan.parts[0]._replace(count=2)
        new = Part(1, new=found.new_qk, put=True, version=seen.version, birth=seen.birth, count=2, epoch=view.epoch)
        return Plan("split", (old, new), token=True)

    def merge(self, order: Order) -> Plan | None:
        if self._any_absent():
            return None
        one, other = self._seen()
        if one.count != 2 or other.count != 2 or one.version != other.version:
            return None
        views = [self._view(seen, place, all_views=True) for place, seen in enumerate((one, other))]
        found = self._rules.merge(*views)
        if found is None:
            return None
        plan = self._one("merge", 0, one, found.staying_write, views[0])
        assert plan is not None
        stays = plan.parts[0]._replace(count=1, epoch=max(view.epoch for view in views))
        goes = self._guarded(Part(1, low=found.low, high=found.high, delete=True, epoch=views[1].epoch), other)
        return Plan("merge", (stays, goes), token=True)

    def reset(self, order: Order) -> Plan | None:
        present = [(place, seen) for place, seen in enumerate(self._client.views) if seen is not None]
        if not present or any(seen.version > self._client.version for _, seen in present):
            return None
        if sum(64 // seen.count for _, seen in present) != 64:
            return None
        views = [self._view(seen, place, all_views=True) for place, seen in present]
        parts: list[Part] = []
        for (place, seen), view, write in zip(present, views, self._reset(views, present), strict=True):
            plan = self._one("reset", place, seen, write, view)
            assert plan is not None
            parts += plan.parts
        return Plan("reset", tuple(parts), token=True)

    def _reset(self, views: list[QuotaView], present: list[tuple[int, View]]) -> list[QuotaSet]:
        calendar = self._stored(present[0][1]).calendar
        known_s = self._rules.known_s(self._low_s, [seen.qk for _, seen in present])
        return list(self._rules.reset(views, self._low_s, calendar.period(self._who, known_s)))

    def _create(self, order: Order, fresh: int) -> Plan | None:
        if order.place and not self._config.several:
            return None
        if order.take > self._terms.amount and not self._terms.soft:
            return None
        qk = self._rules.created(self._terms.calendar.begin_s(self._who, self._high_s), order.take)
        part = Part(order.place, new=qk, put=True, birth=fresh, version=self._client.version, count=1, take=order.take)
        return Plan("create", (part._replace(epoch=self._rules.epoch_of(qk), low_s=self._low_s),))

    def _rebase(self, order: Order, seen: View) -> Plan | None:
        view = self._view(seen, order.place)
        old, new = self._stored(seen), self._terms
        capacity = self._share(new.amount, order.place, seen.count)
        if old.calendar == new.calendar:
            view = self._rules.view(view.qk, view.epoch, capacity, view.tolerance)
            write = self._rules.debit(view, order.take) if new.soft else self._taken(view, order.take)
        elif new.soft:
            write = self._rules.rebase_soft(view, order.take, self._high_s)
        else:
            write = self._rules.rebase_schedule(view, order.take, capacity, self._high_s)
        plan = self._one("rebase", order.place, seen, write, view, take=order.take)
        return plan and Plan("rebase", (plan.parts[0]._replace(version=self._client.version),))

    def _taken(self, view: QuotaView, take: int) -> Any:
        return self._rules.settle_and_take(view, take, 0, 0)

    def _one(
        self,
        kind: str,
        place: int,
        seen: View,
        write: Any,
        view: QuotaView,
        **amounts: int,
    ) -> Plan | None:
        """Return a plan with one write, which requires the bucket as it was seen."""
        if write is None:
            return None
        setting = isinstance(write, QuotaSet)
        part = Part(
            place,
            change=0 if setting else write.change,
            new=write.qk if setting else None,
            low=write.low,
            high=write.high,
            epoch=view.epoch,
            low_s=self._low_s,
            **amounts,
        )
        return Plan(kind, (self._guarded(part, seen),))

    def _guarded(self, part: Part, seen: View) -> Part:
        if not self._rules.guards:
            return part
        return part._replace(birth=seen.birth, generation=seen.generation)

    def _view(self, seen: View, place: int, *, all_views: bool = False) -> QuotaView:
        stored = self._stored(seen)
        used = self._seen() if all_views else [seen]
        known_s = self._rules.known_s(self._low_s, [one.qk for one in used])
        tolerance = stored.calendar.tolerance
        begin_s = stored.calendar.begin_s(self._who, known_s)
        epoch = self._rules.current_epoch(seen.qk, begin_s, tolerance)
        return self._rules.view(seen.qk, epoch, self._share(stored.amount, place, seen.count), tolerance)

    def _share(self, amount: int, place: int, count: int) -> int:
        return amount if self._config.several else share(amount, place, count)

    def _reserve(self, place: int, count: int) -> int:
        return self._share(self._config.reserve[self._who], place, count)

    def _stored(self, seen: View) -> Version:
        return self._config.versions[seen.version]

    def _seen(self) -> list[View]:
        return [seen for seen in self._client.views if seen is not None]

    def _any_absent(self) -> bool:
        return len(self._seen()) != self._config.places

    def _held_at(self, place: int) -> tuple[Held, ...]:
        return tuple(one for one in self._client.held if one.place == place)
