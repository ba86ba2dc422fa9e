"""Measure the cost of every kind of call on DynamoDB: round trips, calls, capacity, and the price of a million.

    .venv/bin/python bench/costs.py [--levels] [--engine ministack] [--json]

Each case runs on its own table on a local engine, with the client's own transport. The engine
reports the capacity. DynamoDB does not report the capacity of a refused write, and some engines
leave out more. Then the capacity is computed from the size of the item by DynamoDB's published
rules.
"""

import argparse
import asyncio
import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.dynamodb.cost_cases import CASES, Case, run_case
from tests.dynamodb.engines import ENGINES, Engine, EngineAbsentError, running
from tests.dynamodb.level_cost_cases import LEVEL_CASES

# On demand, in us-east-1, US dollars. Prices change, and differ by region: https://aws.amazon.com/dynamodb/pricing/on-demand/
PRICES_AS_OF = "2024-11-01"
USD_PER_MILLION_READ_UNITS = 0.125
USD_PER_MILLION_WRITE_UNITS = 0.625

PREFERRED = ("dynoxide", "ministack")


@dataclass(frozen=True, slots=True)
class Line:
    """One case with its figures."""

    case: str
    round_trips: int
    calls: list[str]
    rcu: float
    wcu: float
    index_wcu: float
    usd_per_million: float


def measure(case: Case, engine: Engine) -> Line:
    """Run a case and compute its price."""
    cost = asyncio.run(run_case(case, engine)).cost()
    written = cost.wcu + cost.index_wcu
    price = cost.rcu * USD_PER_MILLION_READ_UNITS + written * USD_PER_MILLION_WRITE_UNITS
    return Line(case.title, cost.trips, list(cost.calls), cost.rcu, cost.wcu, cost.index_wcu, price)


def as_table(lines: list[Line]) -> str:
    """Return the lines as a table that is readable as text and valid Markdown."""
    width = max(len(line.case) for line in lines)
    rows = [
        f"| {'case':{width}} | round trips | calls |  RCU | WCU | index WCU | USD per million |",
        f"| {'-' * width} | ----------: | ----: | ---: | --: | --------: | --------------: |",
    ]
    rows += [
        f"| {line.case:{width}} | {line.round_trips:11} | {len(line.calls):5} | {line.rcu:4g} | {line.wcu:3g} "
        f"| {line.index_wcu:9g} | {line.usd_per_million:15.4f} |"
        for line in lines
    ]
    return "\n".join(rows)


def footnote(engine: Engine) -> str:
    """Return the source of the figures and the prices."""
    return (
        f"Measured on {engine.name}. On-demand prices of us-east-1 since {PRICES_AS_OF}:\n"
        f"USD {USD_PER_MILLION_WRITE_UNITS} per million write units, USD {USD_PER_MILLION_READ_UNITS} per million read "
        "units. Prices change, and differ by region."
    )


def as_json(lines: list[Line], engine: Engine) -> str:
    """Return the lines as JSON."""
    prices = {
        "as_of": PRICES_AS_OF,
        "usd_per_million_read_units": USD_PER_MILLION_READ_UNITS,
        "usd_per_million_write_units": USD_PER_MILLION_WRITE_UNITS,
    }
    return json.dumps({"engine": engine.name, "prices": prices, "cases": [asdict(line) for line in lines]}, indent=2)


def engine_of(name: str | None) -> Engine:
    """Return the engine with this name, or the first that is installed."""
    for chosen in [name] if name else PREFERRED:
        try:
            return running(chosen)
        except EngineAbsentError as absent:
            print(absent, file=sys.stderr)
    raise SystemExit(1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--engine", choices=sorted(ENGINES), help="engine to use (dynoxide, else ministack)")
    parser.add_argument("--levels", action="store_true", help="measure requests of several buckets instead")
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")
    options = parser.parse_args()
    engine = engine_of(options.engine)
    lines = [measure(case, engine) for case in (LEVEL_CASES if options.levels else CASES)]
    print(as_json(lines, engine) if options.json else f"{as_table(lines)}\n\n{footnote(engine)}")


if __name__ == "__main__":
    main()
