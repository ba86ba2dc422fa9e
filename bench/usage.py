"""Measure what counting usage costs for the gateway of the costs page, and how often a bucket is counted.

    .venv/bin/python bench/usage.py [--json] [--intervals 60] [--stream-shards 1 4]

The calls of the gateway arrive at random times. Their stream records form batches as in Lambda, with the settings of
the template. The aggregator counts them on a local engine, which reports the capacity. A month is extrapolated from
these batches, and from the snapshots that begin in it. The interval 0 is the control: it counts every 2 seconds, as
all stacks did before.
"""

import argparse
import json
import os
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from heapq import heappop, heappush
from itertools import count, islice
from pathlib import Path
from random import Random
from typing import Any, NamedTuple
from uuid import UUID
from zlib import crc32

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from costs import PRICES_AS_OF, USD_PER_MILLION_READ_UNITS, USD_PER_MILLION_WRITE_UNITS

from tests.aggregator.stream_batches import Batching, batches, deployed
from tests.dynamodb.engines import EngineAbsentError, fresh_table_name, running
from tests.dynamodb.metered_usage import KEYS, MeteredWorker, create_table
from zae_limiter_aggregator.plan import Rules

MONTH_S = 30 * 24 * 3600
CALLS = 10_000_000
API_KEYS, PROJECTS = 50, 5
WINDOWS = {"hourly": 30 * 24, "daily": 30}
LONGEST_CALL_S = 20.0
INTERVALS_S = (0, 10, 60, 300)
STREAM_SHARDS = (1, 4)
BATCHES = 40

USD_PER_MILLION_RUNS = 0.20
USD_PER_GB_SECOND = 0.0000166667
FUNCTION_GB = 0.25
CALL_S = 0.010
"""The assumed time of one call to DynamoDB: 5 ms for the answer, and 0.75 ms of CPU on a seventh of a processor."""

# No record of a slow machine counts as behind.
RULES = Rules(window_types=tuple(WINDOWS), interval_s=3600)
NAMESPACE_ID = "ns000000000"
MILLION = 1_000_000

HEADS = ("interval", "stream shards", "counted every", "runs", "written", "read")
HEADS += ("writes USD", "reads USD", "both USD", "Lambda USD")

Spent = Counter[str]
"""Runs, calls, snapshots, and the units that were written, written to indexes, and read."""


class Write(NamedTuple):
    """One write to a bucket, as the stream has it."""

    entity_id: str
    number: int
    sequence: int


@dataclass(frozen=True, slots=True)
class Month:
    """What counting costs in a month, and how many seconds are between two counts of a bucket."""

    interval_s: float
    stream_shards: int
    counted_every_s: float
    runs: float
    snapshots: float
    write_units: float
    read_units: float
    usd_writes: float
    usd_reads: float
    usd_lambda: float


def owners() -> list[str]:
    """Return the entities of the gateway: first the keys, then the projects."""
    random = Random(20)
    return [str(UUID(int=random.getrandbits(128))) for _ in range(API_KEYS + PROJECTS)]


def writes() -> Iterator[tuple[float, Write]]:
    """Yield the writes of the gateway with their times: each call takes from key and project, and adjusts both."""
    random, names = Random(19), owners()
    numbers: Counter[str] = Counter()
    later: list[tuple[float, str]] = []
    next_call_s = 0.0
    for sequence in count(10**20):
        while not later or next_call_s <= later[0][0]:
            key = random.randrange(API_KEYS)
            for owner in (names[key], names[API_KEYS + key % PROJECTS]):
                heappush(later, (next_call_s, owner))
                heappush(later, (next_call_s + random.random() * LONGEST_CALL_S, owner))
            next_call_s += random.expovariate(CALLS / MONTH_S)
        at_s, owner = heappop(later)
        numbers[owner] += 1
        yield at_s, Write(owner, numbers[owner], sequence)


def record(write: Write, at_s: float) -> dict[str, Any]:
    """Return the stream record of a write, with the attributes that the aggregator reads."""

    def image(number: int) -> dict[str, Any]:
        totals = {"b_rpm_tc": number * 1000, "b_tpm_tc": number * 500_000, "b_wcu_tc": number, "shard_count": 1}
        return {name: {"N": str(value)} for name, value in totals.items()}

    pk = f"{NAMESPACE_ID}/BUCKET#{write.entity_id}#gpt-4o#0"
    change = {
        "Keys": {"PK": {"S": pk}, "SK": {"S": "#STATE"}},
        "SequenceNumber": str(write.sequence),
        "ApproximateCreationDateTime": at_s,
        "NewImage": image(write.number),
        "OldImage": image(write.number - 1),
    }
    return {"eventName": "MODIFY", "dynamodb": change}


class Meter:
    """Counts batches on an engine, and measures what they cost."""

    def __init__(self, url: str) -> None:
        name = fresh_table_name()
        create_table(url, name, NAMESPACE_ID)
        self._worker = MeteredWorker(url, name, RULES)
        # One time for all records, so that none begins a new window.
        self._at_s = self._worker.table.now()[0] / 1000

    def count(self, batch: Sequence[Write]) -> Spent:
        """Count a batch, and return its calls, snapshots and units."""
        counted = self._worker.count([record(write, self._at_s) for write in batch])
        return Counter(counted.units) + Counter(calls=counted.calls, snapshots=counted.report.snapshots, runs=1)

    def close(self) -> None:
        """Close the connection."""
        self._worker.close()


def month(url: str, batching: Batching, stream_shards: int) -> Month:
    """Measure some batches of every shard of the stream, and return what a month of them costs."""
    meter = Meter(url)
    began = meter.count([Write(owner, 0, number) for number, owner in enumerate(owners())])
    total: Spent = Counter()
    for shard in range(stream_shards):
        total.update(_of_shard(meter, batching, (shard, stream_shards)))
    meter.close()
    # One count in each window creates the snapshot. It costs more than another.
    created = len(owners()) * sum(WINDOWS.values())
    for units in ("written", "indexes", "read"):
        total[units] += created * (began[units] / began["snapshots"] - total[units] / total["snapshots"])
    return _as_month(batching, stream_shards, total)


def _of_shard(meter: Meter, batching: Batching, part: tuple[int, int]) -> Spent:
    """Return what a month of one shard of the stream costs."""
    shard, stream_shards = part
    records = ((at_s, one) for at_s, one in writes() if crc32(one.entity_id.encode()) % stream_shards == shard)
    *some, after = islice(batches(records, batching), BATCHES + 1)
    spent: Spent = Counter()
    for batch in some:
        spent.update(meter.count(batch.records))
    span_s = after.opened_s - some[0].opened_s
    return Counter({name: value * MONTH_S / span_s for name, value in spent.items()})


def _as_month(batching: Batching, stream_shards: int, total: Spent) -> Month:
    written = total["written"] + total["indexes"]
    seconds = total["calls"] * CALL_S
    return Month(
        interval_s=batching.window_s,
        stream_shards=stream_shards,
        counted_every_s=MONTH_S * len(owners()) * len(WINDOWS) / total["snapshots"],
        runs=total["runs"],
        snapshots=total["snapshots"],
        write_units=written,
        read_units=total["read"],
        usd_writes=written / MILLION * USD_PER_MILLION_WRITE_UNITS,
        usd_reads=total["read"] / MILLION * USD_PER_MILLION_READ_UNITS,
        usd_lambda=total["runs"] / MILLION * USD_PER_MILLION_RUNS + seconds * FUNCTION_GB * USD_PER_GB_SECOND,
    )


def as_table(months: Sequence[Month]) -> str:
    """Return the months as a table that is readable as text and valid Markdown."""
    rows = [HEADS, ("---:",) * len(HEADS), *(cells(one) for one in months)]
    return "\n".join(f"| {' | '.join(row)} |" for row in rows)


def cells(month: Month) -> tuple[str, ...]:
    """Return the cells of a month in the table."""
    return (
        f"{month.interval_s:g} s",
        f"{month.stream_shards}",
        f"{month.counted_every_s:.0f} s",
        f"{month.runs / MILLION:.2f} M",
        f"{month.write_units / MILLION:.1f} M",
        f"{month.read_units / MILLION:.1f} M",
        f"{month.usd_writes:.2f}",
        f"{month.usd_reads:.2f}",
        f"**{month.usd_writes + month.usd_reads:.2f}**",
        f"{month.usd_lambda:.2f}",
    )


def footnote() -> str:
    """Return the load and the source of the prices."""
    return (
        f"{CALLS // MILLION} million calls a month from {API_KEYS} keys in {PROJECTS} projects, spread evenly, "
        f"{len(WINDOWS)} windows.\nMeasured on dynoxide. On-demand prices of us-east-1 since {PRICES_AS_OF}. "
        f"Lambda without its free tier,\n{FUNCTION_GB * 1024:.0f} MB, if a call to DynamoDB takes "
        f"{CALL_S * 1000:.0f} ms."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    parser.add_argument("--intervals", type=int, nargs="+", default=INTERVALS_S, help="seconds; 0 is as before")
    parser.add_argument("--stream-shards", type=int, nargs="+", default=STREAM_SHARDS)
    options = parser.parse_args()
    os.environ.update(KEYS)
    try:
        # The only engine that reports what a batch of reads consumes.
        url = running("dynoxide").url
    except EngineAbsentError as absent:
        raise SystemExit(str(absent)) from absent
    settings = [deployed(seconds) for seconds in options.intervals]
    months = [month(url, batching, shards) for batching in settings for shards in options.stream_shards]
    shown = json.dumps([asdict(one) for one in months], indent=2)
    print(shown if options.json else f"{as_table(months)}\n\n{footnote()}")


if __name__ == "__main__":
    main()
