"""Runbooks quote the code correctly: states, health, errors, variables."""

import re
import sqlite3

import pytest

from tests.docs.operator_pages import DOCS, rows, text
from tests.infra.resolved import Resolved
from zae_limiter.cli._status import DeployedStatus, health_of
from zae_limiter.cli.stack import status_rows
from zae_limiter.core.sharding import MOST_SHARDS
from zae_limiter.core.status import Status
from zae_limiter.infra.options import StackOptions, template_parameters
from zae_limiter.infra.progress import StackStep, next_step, why_refused

RUNBOOKS = DOCS / "operations" / "runbooks"
SRC = DOCS.parent / "src" / "zae_limiter"
FILES = ("tables/sqlite/file.py", "tables/sqlite/backup.py", "_async/embedded_table.py", "_async/open.py")
STATES = rows("operations/runbooks/stuck-stack.md", "## What to look at")
DOES = {StackStep.REPLACE: "it is replaced", StackStep.UPDATE: "it tries again", StackStep.REFUSE: "refuses"}
# Messages of SQLite itself.
OF_SQLITE = {
    "database disk image is malformed": sqlite3.SQLITE_CORRUPT,
    "database or disk is full": sqlite3.SQLITE_FULL,
}


def test_every_runbook_is_in_the_list() -> None:
    """An operator finds it from the symptom."""
    listed = set(re.findall(r"\(runbooks/([\w-]+)\.md\)", text("operations/index.md")))

    assert {page.stem for page in RUNBOOKS.glob("*.md")} == listed


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda page: page.stem)
def test_runbook_has_all_its_parts(page) -> None:
    """Symptom, what to look at, what to do, how to know it is over."""
    headings = " ".join(re.findall(r"^## (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)).lower()

    assert all(part in headings for part in ("symptom", "what to do", "how to know it is over"))


@pytest.mark.parametrize("state", [state for state in STATES if not state.endswith("_IN_PROGRESS")])
def test_deploy_with_a_stack_state_does_what_the_runbook_says(state: str) -> None:
    """It replaces, updates or refuses the stack."""
    assert DOES[next_step(state)] in STATES[state][0]


@pytest.mark.parametrize("state", [state for state in STATES if next_step(state) is StackStep.REFUSE])
def test_refusal_of_a_stack_state_is_quoted_correctly(state: str) -> None:
    """The quotes are part of the error."""
    for quoted in re.findall(r"`([^`]+)`", STATES[state][0]):
        assert quoted in why_refused(state)


def test_health_words_on_the_page_are_those_of_the_command() -> None:
    """For every state of a limiter."""
    shown = {
        health_of(Status(available=available, stack_status=stack))
        for available in (True, False)
        for stack in (None, "CREATE_COMPLETE", "UPDATE_IN_PROGRESS", "UPDATE_ROLLBACK_COMPLETE")
    }

    assert shown == rows("monitoring.md", "## At a glance").keys()


def test_status_on_the_page_has_the_rows_of_the_command() -> None:
    """Those of a limiter on AWS, in their order."""
    (shown,) = re.findall(r"```text\nLIMITER\n(.*?)```", text("monitoring.md"), re.DOTALL)
    known = Status(
        available=True,
        latency_ms=4.1,
        name="my-app",
        region="us-east-1",
        stack_status="UPDATE_COMPLETE",
        table_status="ACTIVE",
        table_item_count=34,
        table_size_bytes=6_800,
        client_version="0.1.0",
        lambda_version="0.1.0",
        schema_version="2.0.0",
    )
    rows_shown = [(title, value) for title, value in status_rows(DeployedStatus(known)) if value is not None]

    assert rows_shown == [tuple(line.split(maxsplit=1)) for line in shown.splitlines()]


def test_errors_of_a_file_are_quoted_correctly() -> None:
    """They are in the source, or SQLite's own."""
    source = "".join((SRC / name).read_text(encoding="utf-8") for name in FILES).replace('"\n    "', "")
    for quoted in rows("operations/runbooks/sqlite.md", "## Symptom and what to do"):
        words = re.sub(r" for [\d.]+ s$", " for ", quoted)
        assert quoted in OF_SQLITE or words in source


def test_causes_of_unavailability_are_quoted_correctly() -> None:
    """They are in some file of the client, up to the first value."""
    source = "".join(path.read_text(encoding="utf-8") for path in SRC.rglob("*.py"))
    quoted = rows("operations/runbooks/unavailable.md", "## What to look at")

    assert quoted
    assert [] == [words for words in quoted if words not in source]


def test_variables_of_the_aggregator_are_those_of_the_template() -> None:
    """And the log level."""
    stack = Resolved("my-app", template_parameters("my-app", StackOptions()))
    variables = stack.properties("AggregatorFunction")["Environment"]["Variables"]
    documented = rows("operations/aggregator.md", "## Settings")

    assert {*variables, "POWERTOOLS_LOG_LEVEL"} == documented.keys()


def test_largest_number_of_shards_is_as_the_pages_say() -> None:
    """The hot-key runbook and the performance page."""
    assert f"at most {MOST_SHARDS} shards" in text("operations/runbooks/hot-key.md")
    assert f"at most {MOST_SHARDS} shards" in text("performance.md")
