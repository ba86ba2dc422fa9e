"""``zae-limiter acquire``: its output and its exit codes."""

import json
import math
import re
import signal
import sqlite3
import subprocess
import sys
import time
from contextlib import closing, contextmanager

import pytest

from zae_limiter.cli.acquire import waiting_text
from zae_limiter.core.waiting import Standing

ONE_AN_HOUR = ("acquire", "user-1", "gpt-4", "-c", "rph:1", "-l", "rph:1/h")
# Refill is counted in whole millitokens, so a retry time may be off by one of them.
MILLITOKEN = 0.001


@contextmanager
def locked(path):
    """Hold the write lock of the file, as a process that hangs would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


class TestAdmitted:
    def test_acquire_prints_what_was_taken_and_what_is_left_of_each_limit(self, run):
        """Every limit in force is shown, also one of which nothing was taken."""
        done = run("acquire", "user-1", "gpt-4", "-c", "rpd:1", "-l", "rpd:100/d", "-l", "tpd:500/d")

        assert ("LIMIT  TAKEN  LEFT\nrpd        1    99\ntpd        0   500\n", "") == (done.stdout, done.stderr)

    def test_acquire_json_is_one_line_in_a_pipe(self, run):
        """Outside a terminal, JSON is printed on one line."""
        done = run("acquire", "user-1", "gpt-4", "-c", "rpd:1", "-l", "rpd:100/d", "--json")

        assert {
            "acquired": True,
            "entity_id": "user-1",
            "resource": "gpt-4",
            "consumed": {"rpd": 1},
            "available": {"rpd": 99},
            "limits": [{"name": "rpd", "capacity": 100, "refill_amount": 100, "refill_period_seconds": 86400}],
            "degraded": False,
            "also": [],
        } == json.loads(done.stdout)
        assert 1 == done.stdout.count("\n")

    def test_acquire_without_limits_enforces_the_stored_system_defaults(self, run):
        """Limits stored by `system set-defaults` are enforced if the command gives none."""
        run("system", "set-defaults", "-l", "rpd:2/d")
        codes = [run("acquire", "user-1", "gpt-4", "-c", "rpd:1").exit_code for _ in range(3)]

        assert [0, 0, 75] == codes

    def test_acquire_waits_for_tokens_that_refill_within_the_deadline(self, run):
        """Six of the ten tokens are available immediately, six more after a fifth of a second."""
        command = ("acquire", "user-1", "gpt-4", "-c", "rps:6", "-l", "rps:10/s", "--wait", "30")
        started = time.monotonic()
        codes = [run(*command).exit_code for _ in range(2)]

        assert [0, 0] == codes
        assert 0.2 <= time.monotonic() - started

    def test_acquire_that_waits_outside_a_terminal_prints_one_line_about_it(self, run, tmp_path):
        """The line is on stderr, and an interrupt ends the wait."""
        url = f"sqlite:///{tmp_path / 'waiting.db'}"
        run(*ONE_AN_HOUR, "--url", url)
        command = [sys.executable, "-m", "zae_limiter", *ONE_AN_HOUR, "--wait", "4000", "--url", url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
            first = waiting.stderr.readline()
            waiting.send_signal(signal.SIGINT)
            out, err = waiting.communicate(timeout=60)

        assert (130, "", "Interrupted.\n") == (waiting.returncode, out, err)
        assert re.fullmatch(r"Waiting [0-9.]+ s for the tokens \.\.\.\n", first)

    def test_status_line_of_a_wait_shows_the_place_and_the_seconds_left(self):
        """Requests ahead are counted; without refill there is no number of seconds."""
        assert "Waiting for the tokens: 3 s left" == waiting_text(Standing(1, 2.1))
        assert "Waiting for the tokens: 3 s left, 4 ahead" == waiting_text(Standing(5, 2.1))
        assert "Waiting for the tokens: until tokens come back" == waiting_text(Standing(1, math.inf))


class TestRejected:
    def test_a_rejected_acquire_prints_the_exceeded_limit_and_the_retry_time(self, run):
        """One line goes to stderr, nothing to stdout."""
        began_s = time.monotonic()
        run("acquire", "user-1", "gpt-4", "-c", "rpd:100", "-l", "rpd:100/d")
        done = run("acquire", "user-1", "gpt-4", "-c", "rpd:1", "-l", "rpd:100/d")
        took_s = time.monotonic() - began_s

        short = "rate limit exceeded: rpd of user-1 for gpt-4: 0 of 100 available, 1 requested"
        line = rf"{short}; retry after (\d+(?:\.\d+)?) s\n"
        assert "" == done.stdout
        assert 864 - took_s - MILLITOKEN * 864 <= float(re.fullmatch(line, done.stderr)[1]) <= 864

    def test_a_rejected_acquire_names_the_parent_if_the_parent_lacks_tokens(self, run):
        """A key may have plenty of tokens while its project has none."""
        run("entity", "create", "project-1")
        run("entity", "create", "key-1", "--parent", "project-1", "--cascade")
        run("entity", "set-limits", "project-1", "-l", "rpd:1/d")
        run("entity", "set-limits", "key-1", "-l", "rpd:100/d")
        done = [run("acquire", "key-1", "gpt-4", "-c", "rpd:1") for _ in range(2)][-1]

        assert done.stderr.startswith("rate limit exceeded: rpd of project-1 for gpt-4: 0 of 1 available, 1 requested;")

    def test_a_rejected_acquire_names_limits_across_resources(self, run):
        """The name of their bucket is not a resource that the caller knows."""
        run("entity", "set-limits", "key-1", "--all-resources", "-l", "rpd:1/d")
        done = [run("acquire", "key-1", one, "-c", "rpd:1") for one in ("gpt-4", "search")][-1]
        never = run("acquire", "key-1", "gpt-4", "-c", "rpd:2")

        assert done.stderr.startswith("rate limit exceeded: rpd of key-1 across resources: 0 of 1 available,")
        assert "never admitted: 2 requested, but the capacity of rpd of key-1 across resources is 1\n" in never.stderr

    def test_a_rejected_acquire_with_json_lists_every_bucket(self, run):
        """Each has the status of all its limits; `limits` has them in one list."""
        run("entity", "create", "project-1")
        run("entity", "create", "key-1", "--parent", "project-1", "--cascade")
        run("resource", "set-defaults", "gpt-4", "-l", "rpd:1/d")
        run("entity", "set-limits", "key-1", "--all-resources", "-l", "rpd:100/d")
        done = [run("acquire", "key-1", "gpt-4", "-c", "rpd:1", "--json") for _ in range(2)][-1]
        printed = json.loads(done.stdout)

        assert {("key-1", "gpt-4"), ("key-1", "_all_"), ("project-1", "gpt-4")} == {
            (one["entity_id"], one["resource"]) for one in printed["buckets"]
        }
        assert printed["limits"] == [limit for one in printed["buckets"] for limit in one["limits"]]

    def test_a_rejected_acquire_with_json_prints_the_error_details(self, run):
        """The exit code and the line on stderr stay the same; all data of the error is on stdout."""
        began_s = time.monotonic()
        run(*ONE_AN_HOUR)
        done = run(*ONE_AN_HOUR, "--json")
        took_s = time.monotonic() - began_s

        printed = json.loads(done.stdout)
        assert (75, False) == (done.exit_code, printed["acquired"])
        assert 3600 - took_s - MILLITOKEN * 3600 <= printed["retry_after_seconds"] <= 3600
        assert printed["message"] == done.stderr.strip()

    @pytest.mark.parametrize("wait", ["30", "nan"])
    def test_acquire_does_not_wait_for_tokens_that_refill_after_the_deadline(self, run, wait):
        """A wait that cannot succeed is not started."""
        run(*ONE_AN_HOUR)
        started = time.monotonic()
        done = run(*ONE_AN_HOUR, "--wait", wait)

        assert 75 == done.exit_code
        assert time.monotonic() - started < 20


class TestAlso:
    TAKE = ("acquire", "user-1", "gpt-4", "-c", "rpd:1", "--also", "tool", "search", "rpd:3,tpd:1k")

    @pytest.fixture
    def limited(self, run):
        """Limits for every entity and resource, and fewer requests for search."""
        run("system", "set-defaults", "-l", "rpd:100/d", "-l", "tpd:2000/d")
        run("resource", "set-defaults", "search", "-l", "rpd:5/d", "-l", "tpd:2000/d")
        return run

    def test_acquire_takes_for_several_entities_and_resources(self, limited):
        """The table names what was taken from whom."""
        done = limited(*self.TAKE)

        assert [
            "ENTITY  RESOURCE  LIMIT  TAKEN  LEFT",
            "user-1  gpt-4     rpd        1    99",
            "user-1  gpt-4     tpd        0  2000",
            "tool    search    rpd        3     2",
            "tool    search    tpd     1000  1000",
        ] == done.stdout.splitlines()

    def test_acquire_json_has_a_part_for_each_other_request(self, limited):
        """They are in the order of the options."""
        printed = json.loads(limited(*self.TAKE, "--also", "user-2", "gpt-4", "rpd:2", "--json").stdout)

        other = {"entity_id": "user-2", "resource": "gpt-4", "consumed": {"rpd": 2}}
        assert ({"rpd": 1}, "tool") == (printed["consumed"], printed["also"][0]["entity_id"])
        left = {"available": {"rpd": 98, "tpd": 2000}, "limits": printed["limits"]}
        assert other | left == printed["also"][1]

    def test_acquire_takes_nothing_if_one_of_several_requests_is_rejected(self, limited):
        """The line names the bucket that refused."""
        codes = [limited(*self.TAKE).exit_code for _ in range(2)]
        done = limited(*self.TAKE)
        left = limited("available", "user-1", "gpt-4", "--json")

        assert [0, 75] == codes
        assert done.stderr.startswith("rate limit exceeded: rpd of tool for search: 2 of 5 available, 3 requested;")
        assert {"rpd": 99, "tpd": 2000} == json.loads(left.stdout)["available"]

    @pytest.mark.parametrize(
        ("also", "words"),
        [
            (
                ("tool", "search", "rpd"),
                "'--also': 'rpd': must be NAME:AMOUNT, such as rpm:1, tpm:1.5k or spend:0.05usd",
            ),
            (("tool", "search", "rpd:1,"), "'--also': '': must be NAME:AMOUNT"),
            (("tool", "search", "rpd:1,rpd:2"), "'--also': 'rpd': appears twice; pass each limit once"),
            (("tool", "search"), "Option '--also' requires 3 arguments"),
            (("a b", "search", "rpd:1"), "an entity id starts with"),
        ],
    )
    def test_acquire_with_an_invalid_other_request_takes_nothing(self, limited, also, words):
        """One line names the mistake."""
        done = limited("acquire", "user-1", "gpt-4", "-c", "rpd:1", "--also", *also)

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert words in done.stderr


class TestBlocked:
    def test_acquire_of_a_blocked_entity_exits_with_77_and_the_reason(self, run):
        """The line says who is blocked, until when and why, and how to end it; a wait would not help."""
        run("entity", "create", "project-1")
        run("entity", "create", "key-1", "--parent", "project-1", "--cascade")
        run("entity", "block", "project-1", "-r", "gpt-4", "--reason", "a\x1b[2Jb", "--until", "2999-12-01")
        done = run("acquire", "key-1", "gpt-4", "-c", "rpd:1", "-l", "rpd:5/d", "--wait", "4000")

        line = "blocked: project-1 for gpt-4 until 2999-12-01 00:00:00 UTC: a\\x1b[2Jb; unblock it: zae-limiter"
        assert (77, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert f"{line} entity unblock project-1 --resource gpt-4\n" == done.stderr

    def test_acquire_of_a_blocked_entity_with_json_prints_the_error_details(self, run):
        """The exit code and the line on stderr stay the same."""
        run("entity", "create", "user-1")
        run("entity", "block", "user-1", "--reason", "unpaid invoice")
        done = run("acquire", "user-1", "gpt-4", "-c", "rpd:1", "-l", "rpd:5/d", "--json")

        facts = {"acquired": False, "error": "entity_blocked", "message": done.stderr.strip()}
        block = {"entity_id": "user-1", "resource": None, "reason": "unpaid invoice", "until": None}
        assert (77, facts | block) == (done.exit_code, json.loads(done.stdout))


class TestInvalidArguments:
    @pytest.mark.parametrize(
        ("arguments", "words"),
        [
            ((), "Missing argument 'ENTITY'"),
            (("u",), "Missing argument 'RESOURCE'"),
            (("u", "r"), "Missing option '--consume' / '-c'"),
            (("u", "r", "-c", "rpm"), "'rpm': must be NAME:AMOUNT"),
            (("u", "r", "-c", "rpm:1", "-l", "rpm"), "'rpm': must be NAME:RATE[/PERIOD][:burst=N]"),
            (("u", "r", "-c", "rpm:1", "-l", "rpm:0"), "'rpm:0': rate: must be at least 1"),
            (("u", "r", "-c", "rpm:1", "-c", "rpm:1", "-l", "rpm:5"), "'rpm': appears twice"),
            (("u", "r", "-c", "rpm:1", "-l", "rpm:5", "-l", "rpm:6"), "'rpm': appears twice"),
            (("u", "r", "-c", "rpm:-1", "-l", "rpm:5"), "-1"),
            (
                ("u", "r", "-c", "rpm:6", "-l", "rpm:5"),
                "never admitted: 6 requested, but the capacity of rpm of u for r is 5",
            ),
            (("u", "r", "-c", "tpm:1", "-l", "rpm:5"), "'tpm'"),
            (("u#1", "r", "-c", "rpm:1", "-l", "rpm:5"), "'u#1': an entity id starts with"),
            (("u", "r#", "-c", "rpm:1", "-l", "rpm:5"), "'r#': a resource starts with"),
            (
                ("u", "r", "-c", "rpm:1"),
                "pass -l rpm:100, or set defaults with: zae-limiter system set-defaults",
            ),
            (("u", "r", "-c", "rpm:1", "--url", "redis://x"), "memory://, sqlite:///file.db"),
            (
                ("u", "r", "-c", "rpm:1", "-N", "elsewhere"),
                "there is no namespace 'elsewhere'; register it: zae-limiter",
            ),
            (("u", "r", "-c", "rpm:1", "--wait", "-1"), "'--wait'"),
        ],
    )
    def test_acquire_with_invalid_arguments_prints_one_line_and_exits_with_2(self, run, arguments, words):
        """The line names the mistake and the correct form; no tokens are taken."""
        done = run("acquire", *arguments)

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert done.stderr.startswith("Error: ")
        assert words in done.stderr


class TestInAShell:
    def test_acquire_exit_codes_distinguish_admitted_rejected_and_invalid(self, shell):
        """0 if admitted, 75 if too few tokens are left, 2 if the arguments are invalid."""
        codes = [shell(*ONE_AN_HOUR).returncode for _ in range(2)] + [
            shell("acquire", "u#", "r", "-c", "x:1").returncode
        ]

        assert [0, 75, 2] == codes

    def test_acquire_on_an_unavailable_store_exits_with_69(self, shell, database):
        """Waiting for a locked file ends at the deadline."""
        shell("system", "set-defaults", "-l", "rph:1/h")
        with locked(database):
            done = shell(*ONE_AN_HOUR)

        assert (69, "") == (done.returncode, done.stdout)
        line = (
            r"Error: the store is unavailable: the file was locked by another program for \d+\.\d s\. Retry later\.\n"
        )
        assert re.fullmatch(line, done.stderr)

    def test_acquire_on_an_unusable_file_exits_with_69(self, shell, database):
        """A file of another application is named in the error and left unchanged."""
        database.write_text("not a database, but long enough to be looked at " * 20)
        done = shell(*ONE_AN_HOUR)

        assert (69, 1) == (done.returncode, done.stderr.count("\n"))
        assert str(database) in done.stderr

    def test_acquire_allowed_while_the_store_is_unavailable_exits_with_0(self, shell, database):
        """If the system defaults allow it, the call proceeds without limiting, and stderr says so."""
        shell("system", "set-defaults", "-l", "rph:1/h", "--on-unavailable", "allow")
        with locked(database):
            done = shell("acquire", "user-1", "gpt-4", "-c", "rph:1")

        assert (0, "LIMIT  TAKEN  LEFT\nrph        1     ?\n") == (done.returncode, done.stdout)
        assert "Store unavailable; request allowed without limiting, because on_unavailable is 'allow'\n" == done.stderr

    def test_acquire_of_several_requests_while_the_store_is_unavailable_shows_all(self, shell, database):
        """What is left of them is unknown."""
        shell("system", "set-defaults", "-l", "rph:1/h", "--on-unavailable", "allow")
        with locked(database):
            done = shell("acquire", "user-1", "gpt-4", "-c", "rph:1", "--also", "tool", "search", "rph:1")

        assert ["user-1  gpt-4     rph        1     ?", "tool    search    rph        1     ?"] == (
            done.stdout.splitlines()[1:]
        )
