"""A view of a bucket of several kinds that keeps the item, and reads its numbers when they are asked for."""

from typing import TYPE_CHECKING, Any

from zae_limiter.core.outcome import Item
from zae_limiter.core.slots import Cohorts, MixedView
from zae_limiter.core.view import Amounts, Pace, pace_after
from zae_limiter.schema import attributes, fields
from zae_limiter.schema.bucket_layout import ItemLayout, cohort_names

if TYPE_CHECKING:
    from zae_limiter.schema.bucket_item import StoredLayout
    from zae_limiter.schema.prepared_takes import PreparedTakes


class ItemView(MixedView["StoredLayout"]):
    """A view of a bucket in an embedded table, where the item is in memory anyway.

    ``prepared`` is how its next takes are made; None if that is not known.
    """

    __slots__ = ("item", "prepared")

    def __init__(
        self,
        layout: "StoredLayout",
        item: Item,
        seen_ms: int,
        pace: Pace | None,
        prepared: "PreparedTakes | None",
    ) -> None:
        self.layout = layout
        self.item = item
        self.seen_ms = seen_ms
        self.pace = pace
        self.prepared = prepared

    def after_write(self, item: Item, own: Amounts, now_ms: int) -> "ItemView":
        """Return the view after this client's own write, which has kept the layout."""
        pace, prepared = self.pace, self.prepared
        if pace is not None or item[attributes.WRITE_COUNTER] != self.item[attributes.WRITE_COUNTER] + 1:
            pace = pace_after(self, self.layout.shared.read_numbers(item), own, now_ms)
        # Another client may have added or removed a cohort.
        return ItemView(self.layout, item, now_ms, pace, prepared if len(item) == len(self.item) else None)

    # Properties in place of fields: most takes need none of these numbers, and reading them costs more than the view.
    if not TYPE_CHECKING:

        @property
        def numbers(self) -> tuple[int, ...]:
            """The balances, then the totals, then the write counter."""
            return self.layout.shared.read_numbers(self.item)

        @property
        def cohorts(self) -> dict[int, Cohorts]:
            """The slots in use, by position of the limit."""
            return cohorts_of(self.item, self.layout.shared)

        @property
        def expires_s(self) -> int | None:
            """When the item may expire, None if it never does."""
            return fields.optional_number(self.item, attributes.TTL)

        @property
        def writes(self) -> int:
            """The write counter."""
            return self.item[attributes.WRITE_COUNTER]


def cohorts_of(item: Item, shared: ItemLayout) -> dict[int, Cohorts]:
    """Return the slots in use of each limit of concurrent use, by position.

    Raises:
        CorruptItemError: A number of slots is no integer.
    """
    found: dict[int, Cohorts] = dict.fromkeys(shared.slots, ())
    for position, end_s, name in cohort_names(shared.slot_names, tuple(item)):
        milli: Any = item[name]
        if type(milli) is not int:
            fields.damaged(item, name, "an integer")
        found[position] += ((end_s, milli),)
    return found
