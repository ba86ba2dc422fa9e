"""Hypothesis strategies for measurements."""

from collections import Counter

from hypothesis import strategies as st

from zae_limiter.core.limit import Limit
from zae_limiter.loadtest.measurements import Bin, Latencies, LimitKey, LimitTally, Measurements, Second

counts = st.integers(0, 1_000)
sums = st.integers(0, 4_000).map(lambda quarters: quarters / 4)
"""Multiples of a quarter, whose sums do not depend on the order."""
times_s = st.integers(0, 100_000).map(lambda tenths: 1_700_000_000 + tenths / 8)
names = st.sampled_from(["ACQUIRE", "RATE_LIMITED", "COMMIT"])
limits = st.builds(Limit, st.just("rpm"), st.integers(1, 9), st.integers(1, 9), st.integers(1, 9))


def latencies() -> st.SearchStrategy[Latencies]:
    return st.lists(st.floats(0, 1e6), max_size=5).map(latencies_of)


def latencies_of(durations_ms: list[float]) -> Latencies:
    found = Latencies()
    for duration_ms in durations_ms:
        found.add(duration_ms)
    return found


def counters(keys: st.SearchStrategy[str]) -> st.SearchStrategy[Counter[str]]:
    return st.dictionaries(keys, st.integers(1, 9), max_size=3).map(Counter)


least = st.none() | st.integers(-9, 9)
bins = st.builds(Bin, counts, counts, counts, counts, counts, counts, least, least, least)
# Whether a bucket is a parent depends on its name, as in a real test, where all processes agree.
keys = st.builds(LimitKey, st.sampled_from([f"user-{number}" for number in range(30)]), st.just("api"), st.just("rpm"))


@st.composite
def tallies(draw: st.DrawFn, key: LimitKey) -> LimitTally:
    return LimitTally(
        key,
        is_ancestor=key.entity_id == "user-7",
        limits=draw(st.sets(limits, max_size=2)),
        requested=draw(counts),
        taken=draw(counts),
        failures=draw(counts),
        largest_request=draw(counts),
        longest_s=draw(sums),
        bins=draw(st.dictionaries(st.integers(0, 9), bins, max_size=3)),
    )


@st.composite
def measurements(draw: st.DrawFn) -> Measurements:
    found = Measurements(
        latencies=draw(st.dictionaries(names, latencies(), max_size=2)),
        scheduled=draw(counts),
        admitted=draw(counts),
        errors=draw(counters(names)),
        seconds=draw(st.dictionaries(counts, st.builds(Second, counts, counts, counts, latencies()), max_size=3)),
        read_units=draw(sums),
        refused_write_units=draw(counts),
        throttles=draw(counters(names)),
        shards=draw(st.dictionaries(names, st.dictionaries(counts, st.integers(1, 64), max_size=3), max_size=2)),
    )
    found.error_examples = {kind: kind.lower() for kind in found.errors}
    for began_s in draw(st.lists(times_s, max_size=1)):
        found.include(began_s, began_s + draw(sums))
    for key in draw(st.sets(keys, max_size=4)):
        other = Measurements(limits={key: draw(tallies(key))})
        found.merge(other)
    return found
