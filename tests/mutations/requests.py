"""Mutations of the clock and of usage."""

from tests.mutations import functions, writes
from tests.mutations.mutation import OVER, mutation, patch, simulation, soak
from tests.simulation.plan import SKEW, USAGE
from tests.simulation.port import WRONG_DATE, Port
from tests.soak.watching import FAST_CLOCK
from zae_limiter import clock
from zae_limiter.schema import usage_item
from zae_limiter_aggregator import apply

CLOCKS = (
    mutation(
        "single wrong date trusted",
        "a date that contradicts the others needs a second connection",
        patch(clock, "judged", functions.date_trusted),
        simulation(OVER, WRONG_DATE),
    ),
    mutation(
        "local clock trusted",
        "the server's clock",
        patch(Port, "__init__", functions.local_clock),
        simulation(OVER, SKEW),
        soak(FAST_CLOCK, "were admitted beyond what was earned"),
    ),
    mutation(
        "only the early end of the time",
        "the latest time for the ceiling",
        patch(Port, "__init__", functions.one_end(0)),
        simulation(OVER),
    ),
    mutation(
        "only the late end of the time",
        "the earliest time for what is there",
        patch(Port, "__init__", functions.one_end(1)),
        simulation(OVER),
    ),
)

USAGES = (
    mutation(
        "usage added without its marker's condition",
        "a record is added to only if its sequence is the one that was read",
        patch(usage_item, "add", writes.changed(functions.unconditioned)),
        simulation("usage", USAGE),
    ),
    mutation(
        "usage marker not advanced",
        "the sequence advances in the write that adds",
        patch(usage_item, "add", functions.marker_kept),
        simulation("usage", USAGE),
    ),
    mutation(
        "usage counted as often as it is delivered",
        "a change up to the sequence is not counted again",
        patch(apply, "addition", lambda real: lambda account, changes, counted: real(account, changes, None)),
        simulation("usage", USAGE),
    ),
)
