"""Limits of concurrent use in every command that shows, takes or counts limits."""

import json
import threading
import time

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository

SLOTS = "slots:20/concurrent:hold=30s"


@pytest.fixture
def limited(run):
    run("system", "set-defaults", "-l", "rpm:100", "-l", SLOTS)
    return run


@pytest.fixture
def busy(limited, database):
    """A process that holds 12 of 20 slots."""
    with (
        SyncRateLimiter(SyncRepository.open(f"sqlite:///{database}")) as limiter,
        limiter.acquire("user-1", "gpt-4", {"slots": 12}) as lease,
    ):
        yield lease


class TestShown:
    def test_limits_of_slots_say_how_many_at_a_time_and_how_long_they_are_held(self, limited):
        """A rate would be nothing per nothing."""
        lines = limited("system", "get-defaults").stdout.splitlines()

        assert ["slots", "20", "at", "a", "time,", "hold", "30", "s"] == lines[2].split()
        assert lines == limited("entity", "resolve", "user-1", "gpt-4").stdout.splitlines()[:3]

    def test_limits_of_slots_have_their_hold_in_json(self, limited):
        """Only those have one, so that other programs find the limits they know."""
        found = json.loads(limited("system", "get-defaults", "--json").stdout)["limits"]

        assert [Limit.per_minute("rpm", 100).to_dict(), Limit.concurrent("slots", 20, 30).to_dict()] == found

    def test_limits_of_entities_and_resources_take_slots(self, run):
        """They are stored at every level, across resources too."""
        for command in (
            ("resource", "set-defaults", "gpt-4"),
            ("entity", "set-limits", "user-1"),
            ("entity", "set-limits", "user-1", "--all-resources"),
        ):
            done = run(*command, "-l", "slots:3/concurrent", "--json")

            assert [60] == [limit["hold_seconds"] for limit in json.loads(done.stdout)["limits"]]
        assert "share: slots:3/concurrent:hold=60s." in run("entity", "resolve", "user-1", "gpt-4").stdout

    def test_audit_log_shows_slots_in_the_form_of_the_command_line(self, limited):
        """They can be copied into a command."""
        assert f"rpm:100/min {SLOTS}" in limited("audit", "list", "--system").stdout

    def test_buckets_show_slots_in_use_and_free(self, busy, limited):
        """As of now, because slots are returned by time too."""
        lines = limited("entity", "buckets", "user-1").stdout.splitlines()
        rpm, slots = json.loads(limited("entity", "buckets", "user-1", "--json").stdout)

        assert "12 of 20 in use, 8 free" in lines[2]
        assert (12, 30, 8_000) == (slots["in_use"], slots["hold_seconds"], slots["tokens_milli"])
        assert not {"in_use", "hold_seconds", "cohorts"} & rpm.keys()

    def test_available_and_capacity_count_free_slots(self, busy, limited):
        """Those in use are missing."""
        left = json.loads(limited("available", "user-1", "gpt-4", "--json").stdout)["available"]

        assert {"rpm": 100, "slots": 8} == left
        assert "at a time, hold 30 s" in limited("available", "user-1", "gpt-4").stdout
        assert "Total: 8 of 20 left, 60.0 % in use." in limited("resource", "capacity", "gpt-4", "slots").stdout

    def test_usage_shows_takes_and_the_highest_number_in_use(self, busy, limited):
        """As a table, as CSV, as JSON and as a sum."""
        limited("acquire", "user-1", "gpt-4", "-c", "slots:3")
        table = limited("usage", "list").stdout.splitlines()
        found = json.loads(limited("usage", "list", "--json").stdout)["snapshots"]
        header, row = limited("usage", "list", "--csv").stdout.splitlines()

        assert table[0].split()[-6:] == ["slots", "slots", "highest", "in", "use", "writes"]
        assert ["15", "15"] == table[1].split()[-3:-1]
        assert [{"slots": 15}] == [one["highest_in_use"] for one in found]
        assert "15" == dict(zip(header.split(","), row.split(","), strict=True))["highest_in_use_slots"]
        assert ["slots", "15", "15.0", "15"] == limited("usage", "summary").stdout.splitlines()[-1].split()
        assert "user-1" in limited("usage", "top", "--limit-name", "slots").stdout


class TestAcquire:
    def test_acquired_slots_are_returned_when_the_command_ends(self, limited):
        """The command says so, and the next one finds them free."""
        done = [limited("acquire", "user-1", "gpt-4", "-c", "slots:20") for _ in range(2)]

        assert [0, 0] == [one.exit_code for one in done]
        assert "slots: returned now, because this command ends." in done[0].stderr
        assert ["slots", "20", "0"] in [line.split() for line in done[0].stdout.splitlines()]

    def test_rejected_slots_are_described_by_their_use(self, busy, limited):
        """The wait is short, as slots are returned at any time."""
        done = limited("acquire", "user-1", "gpt-4", "-c", "rpm:1", "-c", "slots:9")
        told = json.loads(limited("acquire", "user-1", "gpt-4", "-c", "slots:9", "--json").stdout)

        line = "slots of user-1 for gpt-4: 12 of 20 in use, 8 free, 9 requested"
        assert f"rate limit exceeded: {line}; retry after 1 s, as slots are returned at any time\n" == done.stderr
        assert 75 == done.exit_code
        assert (False, 1.0, 30 < told["retry_after_seconds"] <= 45) == (told["exact"], told["next_try_seconds"], True)
        assert [(12, False)] == [(one["in_use"], one["exact"]) for one in told["limits"] if one["exceeded"]]
        assert "100" == limited("available", "user-1", "gpt-4").stdout.splitlines()[1].split()[1]

    def test_acquire_waits_for_slots_until_they_are_returned(self, limited, database):
        """It asks again, although their exact wait is longer than its deadline."""
        with SyncRateLimiter(SyncRepository.open(f"sqlite:///{database}")) as limiter:
            lease = limiter.acquire("user-1", "gpt-4", {"slots": 20})
            lease.__enter__()
            returned = threading.Timer(0.3, lease.__exit__, (None, None, None))
            returned.start()
            done = limited("acquire", "user-1", "gpt-4", "-c", "slots:1", "--wait", "20")
            returned.join()

        assert 0 == done.exit_code
        assert 1 == done.stderr.count("Waiting ")

    def test_acquire_gives_up_waiting_for_slots_at_its_deadline(self, busy, limited):
        """It does not wait for the end of the hold."""
        began_s = time.monotonic()
        done = limited("acquire", "user-1", "gpt-4", "-c", "slots:9", "--wait", "0.6")

        assert (75, True) == (done.exit_code, time.monotonic() - began_s < 25)


@pytest.mark.parametrize("command", [("system", "set-defaults"), ("entity", "set-limits", "user-1")])
def test_help_shows_how_slots_are_written(run, command):
    """The option names both forms of a limit."""
    text = " ".join(run(*command, "--help").stdout.split())

    assert "NAME:SLOTS/concurrent[:hold=60s]" in text


def test_a_mistyped_limit_of_slots_is_named_with_what_was_meant(run):
    """The message is that of a wrong option."""
    done = run("system", "set-defaults", "-l", "slots:20/concurent")

    assert 2 == done.exit_code
    assert "did you mean concurrent?" in done.stderr
