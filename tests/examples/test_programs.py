"""Every example runs as it is from a clone, prints what its page promises, and leaves nothing behind."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"

# The required output of each, in this order. Balances and counts may be a little higher on a slow machine.
SAID = {
    "basic": [
        r"taken, both limits in one write: {'rps': 1, 'tpm': 730}",
        r"refused: .*limit 'rps': 0 available, 1 requested",
        r"admitted after the wait",
        r"same bucket: about (9\d|10)00?0 tokens left",
        r"everything was given back: about (9\d|10)00?0 tokens left",
    ],
    "hierarchical": [
        r"one call takes from key-1 {'rpm': 1, 'tpm': 100}",
        r"one call takes from search-team {'tpm': 100}",
        r"key-1: (\d+) calls, then refused: (key-1|search-team) has \d\d? tpm, 100 requested",
        r"key-2: (\d+) calls, then refused: (key-2|search-team) has \d\d? tpm, 100 requested",
        r"search-team has left {'tpm': \d+}",
    ],
    "llm_budget": [
        r"acme asked large: 96,000 tokens, 0\.48 USD; 1\.02 USD left",
        r"acme asked large: 96,000 tokens, 0\.48 USD; 0\.54 USD left",
        r"acme asked large: 96,000 tokens, 0\.48 USD; 0\.06 USD left",
        r"acme is rejected: 0\.06 USD left, 0\.26 USD needed\. The budget resets at \d\d \w{3} 2[23]:00 UTC",
        r"acme asked small: 96,000 tokens, 0\.02 USD; 0\.04 USD left",
        r"globex asked large: 96,000 tokens, 0\.48 USD; -0\.44 USD left",
        r"globex has a soft limit",
        r"acme asked large: 96,000 tokens, 0\.48 USD; 1\.06 USD left",
        r"a larger budget applies immediately",
    ],
    "llm_hierarchy": [
        r"one call takes from: key-1 \(large-model\), user-1 .*, search .*, acme \(large-model\), acme \(_all_\)",
        r"user-1 is moved to the team chat",
        r"one call takes from: key-1 .*, chat \(large-model\), acme \(large-model\), acme \(_all_\)",
        r"key-1, large-model: 2 calls, then refused by key-1 \(large-model\)",
        r"key-2, large-model: 2 calls, then refused by user-1 \(large-model\)",
        r"key-1, small-model: 4 calls, then refused by key-1 \(small-model\)",
        r"key-2, small-model: 2 calls, then refused by acme \(_all_\)",
        r"blocked: chat - the contract has ended",
        r"left for search, which is below acme too: {'tokens': \d}",
        r"audit: entity_unblocked alice",
    ],
    "llm_reconciliation": [
        r"'What is the time\?': estimated 254, used 120",
        r"a stream: estimated 100, used 200",
        r"given back",
        r"'Write a poem\.': estimated 253, used 5000",
        r"has about -\d+ tokens",
        r"in debt: 429, Retry-After: \d+",
    ],
    "multi_tenant": [
        r"user-1 of acme: 100 of 100 calls admitted",
        r"user-1 of globex: [6-9]\d of 100 calls admitted",
        r"acme used 100 requests",
        r"globex used [6-9]\d requests",
        r"globex is deleted",
        r"tenants now: acme default",
    ],
}


def run(name: str, where: Path) -> subprocess.CompletedProcess[str]:
    temporary = where / "temporary"
    temporary.mkdir()
    environment = {**os.environ, "TMPDIR": str(temporary), "ZAE_LIMITER_URL": "sqlite:////nowhere/limits.db"}
    command = [sys.executable, "-W", "error", str(EXAMPLES / f"{name}.py")]
    return subprocess.run(command, cwd=where, env=environment, capture_output=True, text=True, timeout=600, check=False)


def test_every_example_has_its_expected_output_here():
    """A new example needs an entry."""
    assert {path.stem for path in EXAMPLES.glob("*.py")} == SAID.keys()


@pytest.mark.parametrize("name", SAID)
def test_example_runs_as_it_is_and_leaves_no_file(name, tmp_path):
    """It prints its steps in order, and ends by itself."""
    done = run(name, tmp_path)

    assert (0, "") == (done.returncode, done.stderr)
    assert re.search(".*".join(SAID[name]), done.stdout, re.DOTALL), done.stdout
    assert ["temporary"] == [path.name for path in tmp_path.rglob("*")]


def test_both_keys_together_stay_within_the_project(tmp_path):
    """Each alone could call ten times, both together fifteen; a slow machine earns some."""
    calls = [int(count) for count in re.findall(r"key-\d: (\d+) calls", run("hierarchical", tmp_path).stdout)]

    assert 14 <= sum(calls) < 20


@pytest.mark.parametrize("page", sorted(EXAMPLES.rglob("*.md")), ids=lambda page: str(page.relative_to(EXAMPLES)))
def test_link_of_the_examples_page_is_a_file(page):
    """Links within the repository are files."""
    links = re.findall(r"\]\((?!https?:)([^)#]+)\)", page.read_text())

    assert [] == [link for link in links if not (page.parent / link).exists()]
