"""Top-ups: what a client knows of a bucket that it created while its time bounds were wide.

The decisions are those of ``core.top_up``. A state keeps only the numbers that they depend on.
"""

from dataclasses import replace

from tests.model.config import Config, Milli
from tests.model.pool import Pool
from tests.model.state import Actor, Creator, State
from zae_limiter.core.bucket import TimeBounds
from zae_limiter.core.top_up import Creation, Known, created
from zae_limiter.core.view import Amounts
from zae_limiter.schema.bucket_item import BucketView


class Creators:
    """The creations of one exploration. Local clocks show the true time; only the server's time is uncertain."""

    def __init__(self, config: Config, pool: Pool) -> None:
        self._config = config
        self._pool = pool

    def moment(self, now_ms: int, unsure: int) -> TimeBounds:
        """Return the time bounds of a client that is ``unsure`` by this many ticks; the early one is a tick early."""
        tick_ms = self._config.tick_ms
        return now_ms - min(unsure, 1) * tick_ms, now_ms + unsure * tick_ms

    def creation(self, known: Creator, view: BucketView, now_ms: int) -> Creation:
        """Return the creator's knowledge as a value of ``core.top_up``."""
        created_ms = now_ms - known.age * self._config.tick_ms
        found = created(view, self.moment(created_ms, self._config.unsure), created_ms)
        assert found is not None
        return replace(found, room=known.room, writes=known.writes)

    def known(self, known: Creator, now_ms: int, unsure: int) -> Known:
        """Return the creator's knowledge of the time: it created the bucket at most ``unsure`` ticks later."""
        tick_ms = self._config.tick_ms
        return Known(self.moment(now_ms, unsure), now_ms + (unsure - known.age) * tick_ms, now_ms)

    def after_create(self, actor: Actor) -> Actor:
        """Return a client that has just created the bucket in its view; only its first time bounds are kept."""
        if actor.unsure < self._config.unsure or not actor.unsure:
            return actor._replace(creator=None)
        birth = self._pool.places[actor.views[0]][2]
        return actor._replace(creator=Creator(birth, 0, self._config.milli({}), 1))

    def after_take(self, actor: Actor, takes: Milli, now_ms: int) -> Actor:
        """Return a client that has just taken from the bucket in its view."""
        known, view = actor.creator, self._pool.view(actor.views[0], actor.terms)
        if known is None or view is None or not self._is_of(known, actor):
            return actor._replace(creator=None)
        positions = self._config.terms[actor.terms].positions
        amounts: Amounts = [
            (positions[name], milli) for name, milli in zip(self._config.names, takes, strict=True) if milli
        ]
        after = self.creation(known, view, now_ms).after(view, amounts, now_ms)
        return actor._replace(creator=known._replace(room=tuple(after.room), writes=after.writes))

    def folded(self, state: State) -> State:
        """Return the state without creations that are out of bounds, and without counts that no longer matter."""
        pool, most = self._pool, self._config.most_writes
        written = pool.items[state.items[0]].get("b_wcu_tc", 0)
        actors = [self._forgetting(actor, written) for actor in state.actors]
        if any(one.creator or (one.late_write is not None and one.late_write.creator) for one in actors):
            items = tuple([pool.counted(one, most) for one in state.items])
        else:
            items = tuple([pool.counted(one, 0) for one in state.items])
        return state._replace(items=items, actors=tuple([self._uncounted(actor) for actor in actors]))

    def are_done(self, state: State) -> bool:
        """Return whether no top-up can follow. Other configurations explore such a bucket."""
        known = [*state.actors, *(one.late_write for one in state.actors if one.late_write is not None)]
        in_flight = any(one.job is not None for one in state.actors)
        return any(state.items) and not in_flight and not any(one.creator for one in known)

    def _forgetting(self, actor: Actor, written: int) -> Actor:
        known = actor.creator
        if known is None or actor.job is not None:
            return actor
        kept = self._is_of(known, actor) and known.age <= self._config.kept and written < self._config.most_writes
        return actor if kept else actor._replace(creator=None)

    def _uncounted(self, actor: Actor) -> Actor:
        late_write = actor.late_write
        if late_write is not None and late_write.creator is None:
            late_write = late_write._replace(views=self._without(late_write.views))
        return actor._replace(views=actor.views if actor.creator else self._without(actor.views), late_write=late_write)

    def _without(self, numbers: tuple[int, ...]) -> tuple[int, ...]:
        return tuple([self._pool.counted(one, 0) for one in numbers])

    def _is_of(self, known: Creator, actor: Actor) -> bool:
        return self._pool.places[actor.views[0]][2] == known.birth
