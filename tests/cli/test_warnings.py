"""Limits that have warned, in the commands that show usage."""

import json

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository, usd


@pytest.fixture
def warned(run, database):
    """A file in which one of two entities has used 85 % of its budget."""
    with SyncRepository.open(f"sqlite:///{database}") as repo:
        limiter = SyncRateLimiter(repo)
        limiter.set_system_defaults([Limit.quota("spend", usd("100"), every="month", unit="USD", warn_at=(0.8, 1.0))])
        for entity, dollars in (("user-1", "85"), ("user-2", "5")):
            with limiter.acquire(entity, "gpt-4", {"spend": usd(dollars)}):
                pass
    return run


def test_usage_list_shows_the_threshold_that_was_reached(warned):
    """Rows of other entities have a dash."""
    lines = warned("usage", "list", "-w", "monthly").stdout.splitlines()
    marks = {line.split()[1]: line.split()[4:-1] for line in lines[1:]}

    assert "spend warned at" in lines[0]
    assert {"user-1": ["80", "%"], "user-2": ["-"]} == marks


def test_usage_summary_shows_the_highest_threshold(warned):
    """It is that of any entity and window."""
    lines = warned("usage", "summary", "-w", "monthly").stdout.splitlines()

    assert any(line.split()[0] == "spend" and line.rstrip().endswith("80 %") for line in lines if line.split())


def test_usage_as_json_has_thresholds_by_limit(warned):
    """Programs get them as numbers."""
    found = json.loads(warned("usage", "list", "-w", "monthly", "--json").stdout)["snapshots"]
    summary = json.loads(warned("usage", "summary", "-w", "monthly", "--json").stdout)

    assert {"user-1": {"spend": 0.8}, "user-2": {}} == {one["entity_id"]: one["warnings"] for one in found}
    assert {"spend": 0.8} == summary["warnings"]


def test_audit_log_shows_limits_with_thresholds(warned):
    """A table stores no fractions, so their thresholds are stored as texts."""
    done = warned("audit", "list", "--system")

    assert 0 == done.exit_code
    assert "spend" in done.stdout


def test_command_that_reaches_a_threshold_shows_the_warning(warned):
    """Each warning is sent once, so no other process would show it."""
    done = warned("acquire", "user-2", "gpt-4", "-c", "spend:76usd", "--json")
    again = warned("acquire", "user-2", "gpt-4", "-c", "spend:1usd", "--json")

    assert "Warning: user-2 has used 81.00 of 100.00 USD of limit spend for gpt-4." in done.stderr
    assert True is json.loads(done.stdout)["acquired"]
    assert "" == again.stderr
