"""Quotas, money and soft limits in every command that shows, takes or counts limits."""

import json

import pytest

from zae_limiter import Limit, SyncRepository, usd
from zae_limiter.core.calendar import period_at
from zae_limiter.core.limit_text import reset_text

SPEND = Limit.quota("spend", usd("500"), tz="Europe/Berlin", unit="USD")
WRITTEN = "spend:500usd/month@Europe/Berlin"
SOFT = "tokens:1m/day@UTC:unit=tokens:soft"


@pytest.fixture
def limited(run):
    run("system", "set-defaults", "-l", "rph:100/h", "-l", WRITTEN, "-l", SOFT)
    return run


@pytest.fixture
def used(limited):
    """The buckets of user-1, with most of the money spent, and more tokens than allowed."""
    assert 0 == limited("acquire", "user-1", "gpt-4", "-c", "spend:487.50usd", "-c", "tokens:1.5m").exit_code
    return limited


@pytest.fixture
def resets(database):
    """When the quotas of this test reset, in words. The end of a month can be in the middle of a test."""
    now_s = SyncRepository.open(f"sqlite:///{database}").scope.table.now()[1] // 1000
    return {
        name: reset_text(limit.schedule, period_at(limit.schedule, now_s)[1])
        for name, limit in {"spend": SPEND, "tokens": Limit.quota("tokens", 1, "day")}.items()
    }


def rows(done):
    """Return the lines of a table by the name of the limit, with single spaces."""
    lines = [line.split() for line in done.stdout.splitlines()]
    return {word: " ".join(words) for words in lines for word in words if word in ("spend", "tokens", "rph")}


class TestShown:
    def test_stored_limits_have_their_unit_and_schedule(self, limited):
        """Everywhere in the same words, and soft limits are marked."""
        found = rows(limited("system", "get-defaults"))

        assert "spend 500.00 USD each month Europe/Berlin" == found["spend"]
        assert "tokens 1000000 tokens each day UTC, soft" == found["tokens"]
        assert found == rows(limited("entity", "resolve", "user-1", "gpt-4"))

    @pytest.mark.parametrize(
        "command",
        [
            ("resource", "set-defaults", "gpt-4"),
            ("entity", "set-limits", "user-1"),
            ("entity", "set-limits", "user-1", "--all-resources"),
        ],
    )
    def test_limits_are_stored_at_every_level_and_in_json(self, run, command):
        """JSON has plain numbers, the unit and the schedule."""
        done = run(*command, "-l", f"{WRITTEN}:warn=0.8,1", "--json")

        assert [
            {
                "name": "spend",
                "capacity": 500_000_000,
                "refill_amount": 0,
                "refill_period_seconds": 0,
                "every": "month",
                "tz": "Europe/Berlin",
                "starts": [1, "00:00"],
                "unit": "USD",
                "warn_at": [0.8, 1.0],
            }
        ] == json.loads(done.stdout)["limits"]

    def test_audit_log_shows_limits_in_the_form_of_the_command_line(self, run):
        """They can be copied into a command, with thresholds."""
        run("system", "set-defaults", "-l", f"{WRITTEN}:warn=0.8,1", "-l", SOFT)
        words = run("audit", "list", "--system").stdout

        assert f"{WRITTEN}:warn=0.8,1" in words
        assert "tokens:1000000/day@UTC:unit=tokens:soft" in words

    def test_available_shows_units_and_when_a_quota_resets(self, used, resets):
        """A soft limit may be below zero."""
        found = rows(used("available", "user-1", "gpt-4"))

        assert f"spend 12.50 USD 500.00 USD each month, resets {resets['spend']}" == found["spend"]
        assert f"tokens -500000 tokens 1000000 tokens each day, resets {resets['tokens']}, soft" == found["tokens"]

    def test_available_json_has_plain_numbers_and_the_reset(self, used):
        """Limits that are no quotas have no reset."""
        printed = json.loads(used("available", "user-1", "gpt-4", "--json").stdout)
        limits = {one["name"]: one for one in printed["limits"]}

        assert {"rph": 100, "spend": 12_500_000, "tokens": -500_000} == printed["available"]
        assert {"spend", "tokens"} == {name for name, one in limits.items() if "resets_at" in one}
        assert ("USD", "Europe/Berlin") == (limits["spend"]["unit"], limits["spend"]["tz"])

    def test_buckets_show_units_and_when_a_quota_resets(self, used, resets):
        """What was consumed has the unit too."""
        found = rows(used("entity", "buckets", "user-1"))
        facts = {one["limit_name"]: one for one in json.loads(used("entity", "buckets", "user-1", "--json").stdout)}

        line = f"gpt-4 spend 12.50 USD 500.00 USD each month, resets {resets['spend']} 487.50 USD"
        assert line == found["spend"]
        assert ("m1 0000 Europe/Berlin", "USD") == (facts["spend"]["schedule"], facts["spend"]["unit"])
        assert not {"schedule", "resets_at", "unit", "enforce", "warn_at"} & facts["rph"].keys()
        assert facts["tokens"]["enforce"] is False

    def test_balances_show_what_is_left_of_every_limit(self, used, resets):
        """With the used part, and when it is full again."""
        found = rows(used("entity", "balances", "user-1"))
        facts = {one["limit_name"]: one for one in json.loads(used("entity", "balances", "user-1", "--json").stdout)}

        line = f"gpt-4 spend 12.50 of 500.00 USD 97.5 % each month, resets {resets['spend']}"
        assert line == found["spend"]
        assert "gpt-4 rph 100 of 100 0.0 % 100 per hour" == found["rph"]
        assert (12_500_000, 97.5, "quota") == tuple(facts["spend"][key] for key in ("available", "used_pct", "kind"))

    def test_balances_of_a_rate_show_when_it_is_full(self, limited):
        """A rate refills all the time."""
        limited("acquire", "user-1", "gpt-4", "-c", "rph:50")
        line = rows(limited("entity", "balances", "user-1"))["rph"]

        assert line.startswith("gpt-4 rph 50 of 100 50.0 % 100 per hour, full in ")

    def test_balances_of_an_unused_entity_say_how_to_set_limits(self, limited):
        """The command succeeds, and stdout has no result."""
        done = limited("entity", "balances", "user-2")

        assert (0, "") == (done.exit_code, done.stdout)
        assert "zae-limiter entity set-limits user-2 -l rpm:1000" in done.stderr

    def test_capacity_of_a_resource_has_the_unit(self, used):
        """In the rows, in the total and in JSON."""
        done = used("resource", "capacity", "gpt-4", "spend")
        printed = json.loads(used("resource", "capacity", "gpt-4", "spend", "--json").stdout)
        plain = json.loads(used("resource", "capacity", "gpt-4", "rph", "--json").stdout)

        assert ["user-1  500.00 USD  12.50 USD  97.5 %", "Total: 12.50 of 500.00 USD left, 97.5 % in use."] == (
            done.stdout.splitlines()[1:]
        )
        assert ("USD", ["USD"]) == (printed["unit"], [one["unit"] for one in printed["entities"]])
        assert "unit" not in {**plain, **plain["entities"][0]}


def test_usage_list_and_summary_show_amounts_in_their_unit(used):
    """Money has its decimals. JSON has plain numbers, and the units."""
    table = used("usage", "list").stdout.splitlines()
    printed = json.loads(used("usage", "list", "--json").stdout)
    total = json.loads(used("usage", "summary", "--json").stdout)

    assert "spend (USD)" in table[0]
    assert "487.50" in table[1].split()
    assert [usd("487.50")] == [one["counters"]["spend"] for one in printed["snapshots"]]
    assert {"spend": "USD", "tokens": "tokens"} == printed["units"] == total["units"]
    assert ["spend", "487.50", "487.50"] == rows(used("usage", "summary"))["spend"].split()


def test_usage_top_shows_amounts_in_their_unit(used):
    """JSON has plain numbers, and the unit of the limit."""
    used("acquire", "user-2", "gpt-4", "-c", "spend:12.50usd", "-c", "rph:5")
    shown = used("usage", "top").stdout.splitlines()
    facts = {one["limit_name"]: one for one in json.loads(used("usage", "top", "--json").stdout)["limits"]}

    assert ["user-1", "487.50", "USD"] == next(line for line in shown if "487" in line).split()[:3]
    assert ["user-1", "1,500,000", "tokens"] == next(line for line in shown if "1,500" in line).split()[:3]
    assert (usd("500"), "USD", "tokens") == (facts["spend"]["total"], facts["spend"]["unit"], facts["tokens"]["unit"])
    assert "unit" not in facts["rph"]


class TestAcquire:
    def test_acquire_shows_what_was_taken_and_left_in_the_unit(self, limited, resets):
        """A quota says when it resets."""
        done = limited("acquire", "user-1", "gpt-4", "-c", "spend:487.50usd", "-c", "tokens:1.5m")
        found = rows(done)

        assert f"spend 487.50 USD 12.50 of 500.00 USD, resets {resets['spend']}" == found["spend"]
        line = f"tokens 1500000 tokens -500000 of 1000000 tokens, resets {resets['tokens']}, soft"
        assert line == found["tokens"]
        assert "rph 0 100" == found["rph"]

    def test_acquire_json_has_micro_units_and_the_limits(self, limited):
        """The unit and the reset are those of the limit."""
        done = limited("acquire", "user-1", "gpt-4", "-c", "spend:0.05usd", "--json")
        printed = json.loads(done.stdout)
        (spend,) = [one for one in printed["limits"] if one["name"] == "spend"]

        assert ({"spend": 50_000}, 499_950_000) == (printed["consumed"], printed["available"]["spend"])
        assert "USD" == spend["unit"]
        assert isinstance(spend["resets_at"], int)

    def test_a_rejected_acquire_shows_units_and_the_reset(self, used, resets):
        """All data of the error is in JSON too."""
        done = used("acquire", "user-1", "gpt-4", "-c", "spend:20usd")
        printed = json.loads(used("acquire", "user-1", "gpt-4", "-c", "spend:20usd", "--json").stdout)

        short = "spend of user-1 for gpt-4: 12.50 of 500.00 USD available, 20.00 USD requested"
        assert 75 == done.exit_code
        assert done.stderr.startswith(f"rate limit exceeded: {short}, resets {resets['spend']}; retry after ")
        (status,) = [one for one in printed["limits"] if one["exceeded"]]
        assert (20_000_000, "USD", "m1 0000 Europe/Berlin") == (
            status["requested"],
            status["unit"],
            status["schedule"],
        )

    def test_an_acquire_above_the_amount_is_refused_in_the_unit(self, limited):
        """No wait helps."""
        done = limited("acquire", "user-1", "gpt-4", "-c", "spend:600usd")

        line = "never admitted: 600.00 USD requested, but the capacity of spend of user-1 for gpt-4 is 500.00 USD"
        assert (2, f"Error: {line}\n") == (done.exit_code, done.stderr)

    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            (("-c", "spend:5"), "limit 'spend' is in USD; write the currency, such as spend:0.05usd"),
            (("-c", "spend:5eur"), "limit 'spend' is in USD"),
            (("-c", "tokens:5usd"), "limit 'tokens' is not money; pass a plain number"),
            (("-c", "rph:1", "--also", "user-2", "gpt-4", "spend:5"), "limit 'spend' is in USD"),
            (("-c", "total:5", "-c", "rph:1"), "limit 'total' is in EUR; write the currency, such as total:0.05eur"),
        ],
    )
    def test_an_amount_in_another_unit_takes_nothing(self, limited, arguments, words):
        """5 would be 5 micro-dollars."""
        limited("entity", "set-limits", "user-1", "--all-resources", "-l", "total:5eur/week")
        done = limited("acquire", "user-1", "gpt-4", *arguments)

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert words in done.stderr
        assert "user-1 has no buckets yet" in limited("entity", "buckets", "user-1").stderr


@pytest.mark.parametrize("command", [("system", "set-defaults"), ("entity", "set-limits", "user-1")])
def test_help_shows_how_quotas_are_written(run, command):
    """The option names every form of a limit, and how a quota differs from a rate."""
    text = " ".join(run(*command, "--help").stdout.split())

    assert "NAME:AMOUNT/PERIOD@ZONE[:starts=...]. Each may end in :soft" in text
    assert "tokens:1m/day@UTC:starts=06:00 a quota, because of @ZONE" in text
