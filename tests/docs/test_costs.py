"""The figures of the costs page are those that the command prints, and those of the items."""

import json
import re
import subprocess
import sys
from decimal import ROUND_HALF_UP, Decimal
from pathlib import Path

from tests.dynamodb.billing import item_bytes, write_units
from tests.dynamodb.cost_cases import LONG_RESOURCE
from tests.dynamodb.test_bucket_size import SHORT, UUID, worn_bucket
from zae_limiter.tables.dynamodb.codec import encode_item

ROOT = Path(__file__).resolve().parents[2]
CENT = Decimal("0.01")
PAGE = (ROOT / "docs" / "operations" / "costs.md").read_text()


def command(*options: str) -> str:
    """Run the command that the page names, and return its output."""
    (line,) = set(re.findall(r"^\.venv/bin/python (bench/costs\S+)", PAGE, re.MULTILINE))
    done = subprocess.run(
        [sys.executable, "-W", "error", line, *options],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return done.stdout


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def test_cost_table_is_what_the_command_prints():
    """No figure is typed by hand."""
    printed = rows(command())

    assert printed == rows(PAGE)[: len(printed)]


def test_table_of_levels_is_what_the_command_prints():
    """It has the same columns, and a section of its own."""
    printed = rows(command("--levels"))
    section = PAGE.partition("## Cost per level")[2].partition("\n## ")[0]

    assert ".venv/bin/python bench/costs.py --levels" in section
    assert printed == rows(section)


def test_cost_json_has_the_same_cases():
    """Programs can read it."""
    titles = [row.split("|")[1].strip() for row in rows(command())[2:]]

    assert titles == [case["case"] for case in json.loads(command("--json"))["cases"]]


def size_of(limits: int, resource: int, entity: int = len(UUID)) -> int:
    """Return the size of a bucket with names of these lengths."""
    return item_bytes(encode_item(worn_bucket(*SHORT[:limits], entity_id="e" * entity, resource="r" * resource)))


def test_sizes_of_long_resources_are_those_of_the_items():
    """Each row of the page names the lengths of its names."""
    row = re.compile(r"\| \**2 limits, a resource of (\d+) characters(?:, an entity of (\d+))?\** \| (\S+) \| \**(\d)")
    found = row.findall(PAGE)
    sizes = [size_of(2, int(resource), int(entity or len(UUID))) for resource, entity, _, _ in found]

    assert 5 == len(found)
    assert [(f"{size:,}", f"{write_units(size):g}") for size in sizes] == [
        (shown, units) for _, _, shown, units in found
    ]


def test_lengths_at_which_a_resource_passes_one_kilobyte_are_those_of_the_items():
    """One character less is one write unit."""
    text = " ".join(PAGE.split())
    (two,) = re.findall(r"With two limits, an item passes 1 KB at a resource of (\d+) characters", text)
    ((three, five),) = re.findall(r"With three limits it does so at (\d+), and with five at (\d+)\.", text)
    passed = [(2, int(two)), (3, int(three)), (5, int(five))]

    assert [2, 2, 2] == [write_units(size_of(limits, length)) for limits, length in passed]
    assert [1, 1, 1] == [write_units(size_of(limits, length - 1)) for limits, length in passed]


def test_price_of_a_resource_of_100_characters_is_that_of_the_table():
    """The paragraph and the measured rows name the same figures."""
    cases = {case["case"]: case for case in json.loads(command("--json"))["cases"]}
    taken, made = cases["admitted, a resource of 100 characters"], cases["bucket created, a resource of 100 characters"]

    assert 100 == len(LONG_RESOURCE)
    assert f"or USD {taken['usd_per_million']:.2f} per million" in " ".join(PAGE.split())
    assert (2, 5) == (taken["wcu"], made["wcu"] + made["index_wcu"])
    assert 44 == len("us.anthropic.claude-3-5-sonnet-20241022-v2:0")


def test_prices_on_the_readme_and_the_page_of_comparisons_are_those_of_the_table():
    """An admitted call, and a gateway call, which takes from key and parent and adjusts both."""
    usd = {case["case"]: Decimal(str(case["usd_per_million"])) for case in json.loads(command("--json"))["cases"]}
    admitted = usd["admitted"].quantize(CENT, ROUND_HALF_UP)
    gateway = (usd["cascade, both admitted"] + usd["cascade, adjust"]).quantize(CENT, ROUND_HALF_UP)
    readme, why = ((ROOT / name).read_text() for name in ("README.md", "docs/why.md"))

    assert f"| an admitted call: one write unit | {admitted} |" in readme
    assert f"| a gateway call with cascade and adjust: four write units | {gateway} |" in readme
    assert f"[USD {admitted} per million]" in why
    assert f"four writes, USD {gateway} per million" in why
