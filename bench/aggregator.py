"""Measure the aggregator: planning, CPU per effect, memory, and the imports of a cold start.

    .venv/bin/python bench/aggregator.py

Every figure comes from a new process without the packages that a deployed function lacks (orjson,
httptools). Effects are carried out on a real engine in its own process, so that only the function's
CPU time is measured. Asserts nothing.
"""

import json
import os
import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from report import verdict

ROOT = Path(__file__).resolve().parents[1]
RECORDS = 1_000
NAMESPACE_ID = "ns000000000"
# A recent time, because records that are further behind are counted in another way.
START_S = int(time.time())
MEBIBYTE = 1024 * 1024
ROUNDS = 15

PLANNING_MS, EFFECT_MS, MEMORY_MIB, IMPORT_RATIO = 100.0, 2.0, 128.0, 1.15

ENVIRONMENT = {"AWS_DEFAULT_REGION": "us-east-1", "AWS_ACCESS_KEY_ID": "bench", "AWS_SECRET_ACCESS_KEY": "bench"}
DEPLOYED = """
import sys
for absent in ("orjson", "httptools", "click", "rich"):
    sys.modules[absent] = None
"""
IMPORTS = {
    "bare interpreter": "pass",
    "boto3 + one client": "import boto3\nboto3.client('dynamodb')",
    "the aggregator's handler": f"{DEPLOYED}\nimport zae_limiter_aggregator.handler",
}


def record(number: int, write: int) -> dict[str, Any]:
    """Return the record of one write to a bucket with two limits, as Lambda delivers it."""
    pk = f"{NAMESPACE_ID}/BUCKET#user-{number}#gpt-4#0"

    def image(writes: int) -> dict[str, Any]:
        limits = {
            f"b_{name}_{field}": {"N": str(1_000_000 + writes * 1000)}
            for name in ("rpm", "tpm")
            for field in ("tk", "cp", "ra", "rp", "tc")
        }
        texts = {"PK": pk, "SK": "#STATE", "entity_id": f"user-{number}", "resource": "gpt-4", "ld": ""}
        numbers = {"rf": START_S * 1000, "shard_count": 1, "cv": 1, "gn": 1, "tf": 60_000, "op": 10**18}
        counted = {name: {"N": str(value)} for name, value in {**numbers, "b_wcu_tc": writes}.items()}
        indexes = {f"GSI{index}{part}": {"S": pk} for index in (2, 3, 4) for part in ("PK", "SK")}
        return {name: {"S": text} for name, text in texts.items()} | counted | limits | indexes

    return {
        "eventID": str(write * RECORDS + number),
        "eventName": "MODIFY",
        "eventSource": "aws:dynamodb",
        "dynamodb": {
            "ApproximateCreationDateTime": START_S + write,
            "Keys": {"PK": {"S": pk}, "SK": {"S": "#STATE"}},
            "NewImage": image(write + 1),
            "OldImage": image(write),
            "SequenceNumber": str(10**20 + write * RECORDS + number),
            "StreamViewType": "NEW_AND_OLD_IMAGES",
        },
    }


def batch(write: int) -> list[dict[str, Any]]:
    return [record(number, write) for number in range(RECORDS)]


# --- in a process that has what a deployed function has --------------------------------------------------------------


def plan_in_child() -> dict[str, float]:
    """Return the CPU time of reading and planning a batch, best of some, and the number of effects."""
    from zae_limiter_aggregator.plan import Memories, Rules, plan
    from zae_limiter_aggregator.records import read_all

    memories, rules = Memories(), Rules(window_types=("hourly", "daily", "monthly"))
    spent, effects = [], 0
    for write in range(ROUNDS):
        records = batch(write)
        began = time.process_time()
        planned = plan(read_all(records), memories, rules, (START_S + write) * 1000)
        spent.append((time.process_time() - began) * 1e3)
        effects = sum(len(group) for group in planned.counts)
    return {"smallest_ms": min(spent), "median_ms": statistics.median(spent), "effects": effects}


def carry_out_in_child() -> dict[str, float]:
    """Return the CPU time per effect, for new and existing snapshots, and the peak memory."""
    from zae_limiter_aggregator import handler

    class Context:
        aws_request_id = "bench"

        def get_remaining_time_in_millis(self) -> int:
            return 600_000

    spent = []
    for write in range(3):
        event = {"Records": batch(write)}
        began = time.process_time()
        answer = handler.handler(event, Context())
        spent.append((time.process_time() - began) * 1e3 / answer["snapshots"])
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {"begun_ms": spent[0], "added_ms": min(spent[1:]), "peak_mib": peak_kib * 1024 / MEBIBYTE}


CHILDREN: dict[str, Callable[[], dict[str, float]]] = {"plan": plan_in_child, "carry-out": carry_out_in_child}


def in_child(name: str, **environment: str) -> dict[str, float]:
    """Run one of the functions above in a new process, and return its result."""
    code = f"{DEPLOYED}\nsys.path.insert(0, {str(ROOT / 'bench')!r})\nimport aggregator\naggregator.child({name!r})"
    known = {**os.environ, **ENVIRONMENT, **environment}
    done = subprocess.run([sys.executable, "-c", code], env=known, stdout=subprocess.PIPE, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def child(name: str) -> None:
    print(json.dumps(CHILDREN[name]()))


# --- here ------------------------------------------------------------------------------------------------------------


def on_engine() -> dict[str, float]:
    """Carry out batches on an engine."""
    sys.path.insert(0, str(ROOT))
    import botocore.session

    from tests.dynamodb import engines
    from zae_limiter.core.namespace import Namespace, NamespaceStatus
    from zae_limiter.schema import namespace_item
    from zae_limiter.tables.dynamodb.codec import encode_item
    from zae_limiter.tables.dynamodb.requests import Calls

    engine = engines.start()
    try:
        name = engines.fresh_table_name()
        client = botocore.session.get_session().create_client(
            "dynamodb", "us-east-1", endpoint_url=engine.url, aws_access_key_id="bench", aws_secret_access_key="bench"
        )
        client.create_table(**json.loads(Calls(name).create_table().body))
        namespace = Namespace(NAMESPACE_ID, "default", NamespaceStatus.ACTIVE, "2024-01-01T00:00:00Z")
        client.put_item(TableName=name, Item=encode_item(namespace_item.reverse_item(namespace)))
        return in_child("carry-out", AWS_ENDPOINT_URL=engine.url, TABLE_NAME=name)
    finally:
        engine.stop()


def import_ms() -> dict[str, float]:
    """Return the least user and system CPU time of each import, over alternating new processes."""
    least = dict.fromkeys(IMPORTS, float("inf"))
    environment = {**os.environ, **ENVIRONMENT, "TABLE_NAME": "bench"}
    for _ in range(ROUNDS):
        for name, code in IMPORTS.items():
            process = subprocess.Popen([sys.executable, "-c", code], env=environment)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            assert process.returncode == 0, f"{name} does not import"
            least[name] = min(least[name], (usage.ru_utime + usage.ru_stime) * 1e3)
    return least


def main() -> None:
    planned = in_child("plan")
    figures = f"smallest {planned['smallest_ms']:.1f} ms, median {planned['median_ms']:.1f} ms of CPU"
    print(f"Planning {RECORDS:,} records of {RECORDS:,} buckets, 3 windows: {figures}, {planned['effects']:,} effects")
    print(f"  goal {PLANNING_MS:.0f} ms: {verdict(planned['smallest_ms'], PLANNING_MS)}")
    carried = on_engine()
    begun, added, peak = carried["begun_ms"], carried["added_ms"], carried["peak_mib"]
    print(f"CPU per effect: {begun:.2f} ms to create a snapshot, {added:.2f} ms to add to one")
    print(f"  goal {EFFECT_MS:.1f} ms: {verdict(max(begun, added), EFFECT_MS)}")
    print(f"Peak memory of three such batches: {peak:.0f} MiB")
    print(f"  goal {MEMORY_MIB:.0f} MiB: {verdict(peak, MEMORY_MIB)}")
    imported = import_ms()
    bare, others, ours = imported.values()
    print(f"Cold import, CPU over a bare interpreter: {ours - bare:.0f} ms")
    print(f"  boto3 + one client: {others - bare:.0f} ms")
    ratio = (ours - bare) / (others - bare)
    print(f"  ratio {ratio:.2f}, goal {IMPORT_RATIO}: {verdict(ratio, IMPORT_RATIO)}")


if __name__ == "__main__":
    main()
