"""``zae-limiter acquire``: what it prints, and what a shell sees of it."""

import json
import re
import sqlite3
import time
from contextlib import closing, contextmanager

import pytest

ONE_AN_HOUR = ("acquire", "user-1", "gpt-4", "-c", "rph:1", "-l", "rph:1/h")
# What comes back is counted in these, from any moment of one on.
MILLITOKEN = 0.001


@contextmanager
def locked(path):
    """Hold the file's write lock, as a process that hangs would."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN IMMEDIATE")
        yield


class TestTaken:
    def test_it_prints_what_was_taken_and_what_is_left(self, run):
        """Every limit in force is shown, also those nothing was taken of."""
        done = run("acquire", "user-1", "gpt-4", "-c", "rpd:1", "-l", "rpd:100/d", "-l", "tpd:500/d")

        assert ("LIMIT  TAKEN  LEFT\nrpd        1    99\ntpd        0   500\n", "") == (done.stdout, done.stderr)

    def test_json_is_one_line_in_a_pipe(self, run):
        """A program reads it as it is."""
        done = run("acquire", "user-1", "gpt-4", "-c", "rpd:1", "-l", "rpd:100/d", "--json")

        assert {
            "acquired": True,
            "entity_id": "user-1",
            "resource": "gpt-4",
            "consumed": {"rpd": 1},
            "available": {"rpd": 99},
            "degraded": False,
        } == json.loads(done.stdout)
        assert 1 == done.stdout.count("\n")

    def test_stored_limits_hold_where_none_are_given(self, run):
        """What system set-defaults stored is enforced."""
        run("system", "set-defaults", "-l", "rpd:2/d")
        codes = [run("acquire", "user-1", "gpt-4", "-c", "rpd:1").exit_code for _ in range(3)]

        assert [0, 0, 75] == codes

    def test_it_waits_for_tokens_that_come_in_time(self, run):
        """Six of the ten are there at once, six more after a fifth of a second."""
        command = ("acquire", "user-1", "gpt-4", "-c", "rps:6", "-l", "rps:10/s", "--wait", "30")
        started = time.monotonic()
        codes = [run(*command).exit_code for _ in range(2)]

        assert [0, 0] == codes
        assert 0.2 <= time.monotonic() - started


class TestRejected:
    def test_the_line_says_what_lacks_and_when_to_try_again(self, run):
        """One line on stderr, nothing on stdout."""
        began_s = time.monotonic()
        run("acquire", "user-1", "gpt-4", "-c", "rpd:100", "-l", "rpd:100/d")
        done = run("acquire", "user-1", "gpt-4", "-c", "rpd:1", "-l", "rpd:100/d")
        took_s = time.monotonic() - began_s

        line = r"rate limit exceeded: rpd of user-1: 0 of 100 available, 1 requested; retry after (\d+(?:\.\d+)?) s\n"
        assert "" == done.stdout
        assert 864 - took_s - MILLITOKEN * 864 <= float(re.fullmatch(line, done.stderr)[1]) <= 864

    def test_the_line_names_the_parent_where_that_lacks_tokens(self, run):
        """A key may have plenty while its project has none."""
        run("entity", "create", "project-1")
        run("entity", "create", "key-1", "--parent", "project-1", "--cascade")
        run("entity", "set-limits", "project-1", "-l", "rpd:1/d")
        run("entity", "set-limits", "key-1", "-l", "rpd:100/d")
        done = [run("acquire", "key-1", "gpt-4", "-c", "rpd:1") for _ in range(2)][-1]

        assert done.stderr.startswith("rate limit exceeded: rpd of project-1: 0 of 1 available, 1 requested; retry")

    def test_json_says_so_too(self, run):
        """The same exit code and line, and all the error knows on stdout."""
        began_s = time.monotonic()
        run(*ONE_AN_HOUR)
        done = run(*ONE_AN_HOUR, "--json")
        took_s = time.monotonic() - began_s

        told = json.loads(done.stdout)
        assert (75, False) == (done.exit_code, told["acquired"])
        assert 3600 - took_s - MILLITOKEN * 3600 <= told["retry_after_seconds"] <= 3600
        assert told["message"] == done.stderr.strip()

    @pytest.mark.parametrize("wait", ["30", "nan"])
    def test_it_does_not_wait_for_tokens_that_come_too_late(self, run, wait):
        """To wait in vain helps nobody."""
        run(*ONE_AN_HOUR)
        started = time.monotonic()
        done = run(*ONE_AN_HOUR, "--wait", wait)

        assert 75 == done.exit_code
        assert time.monotonic() - started < 20


class TestMisused:
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
            (("u", "r", "-c", "rpm:6", "-l", "rpm:5"), "more than the capacity of limit 'rpm' (5)"),
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
    def test_it_is_told_in_one_line_with_exit_code_2(self, run, arguments, words):
        """The line says what is wrong and what would be right; nothing is taken."""
        done = run("acquire", *arguments)

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert done.stderr.startswith("Error: ")
        assert words in done.stderr


class TestInAShell:
    def test_exit_codes(self, shell):
        """0 if taken, 75 if too few tokens are left, 2 if it is misused; a shell tells them apart."""
        codes = [shell(*ONE_AN_HOUR).returncode for _ in range(2)] + [
            shell("acquire", "u#", "r", "-c", "x:1").returncode
        ]

        assert [0, 75, 2] == codes

    def test_a_store_that_is_away_is_exit_code_69(self, shell, database):
        """A file that somebody keeps locked is given up on at the deadline."""
        shell("available", "user-1", "gpt-4", "-l", "rph:1/h")
        with locked(database):
            done = shell(*ONE_AN_HOUR)

        assert (69, "") == (done.returncode, done.stdout)
        line = r"Error: the store is unavailable: the file was locked by others for \d+\.\d s\. Retry later\.\n"
        assert re.fullmatch(line, done.stderr)

    def test_a_store_that_cannot_be_used_is_exit_code_69(self, shell, database):
        """A file that is not ours is named, and left as it is."""
        database.write_text("not a database, but long enough to be looked at " * 20)
        done = shell(*ONE_AN_HOUR)

        assert (69, 1) == (done.returncode, done.stderr.count("\n"))
        assert str(database) in done.stderr

    def test_let_through_while_the_store_is_away_is_exit_code_0(self, shell, database):
        """Where the system's defaults say so, a call goes on unlimited, and the user is told."""
        shell("system", "set-defaults", "-l", "rph:1/h", "--on-unavailable", "allow")
        with locked(database):
            done = shell("acquire", "user-1", "gpt-4", "-c", "rph:1")

        assert (0, "LIMIT  TAKEN  LEFT\nrph        1     ?\n") == (done.returncode, done.stdout)
        assert "Store unavailable; request allowed without limiting, because on_unavailable is 'allow'\n" == done.stderr
