"""``zae-limiter available``, and how tables are printed."""

import json
import sys

import pytest

from zae_limiter.cli._output import Column, Grid, print_grid, print_json


class TestAvailable:
    def test_it_shows_every_limit_in_force(self, run):
        """What is left, of how much, and how fast it comes back."""
        run("system", "set-defaults", "-l", "rpd:100/d", "-l", "tpd:1000/d:burst=2000")
        run("acquire", "user-1", "gpt-4", "-c", "rpd:1")
        done = run("available", "user-1", "gpt-4")

        lines = [
            "LIMIT  AVAILABLE  CAPACITY  REFILL",
            "rpd           99       100  100 per day",
            "tpd         2000      2000  1000 per day",
        ]
        assert (lines, "") == (done.stdout.splitlines(), done.stderr)

    def test_json_has_amounts_by_name(self, run):
        """What a script wants is at .available.rpd."""
        done = run("available", "user-1", "gpt-4", "-l", "rpd:100/d", "--json")

        limit = {"name": "rpd", "capacity": 100, "refill_amount": 100, "refill_period_seconds": 86400}
        facts = {"entity_id": "user-1", "resource": "gpt-4", "available": {"rpd": 100}, "limits": [limit]}
        assert facts == json.loads(done.stdout)

    def test_looking_takes_nothing(self, run):
        """However often one looks."""
        told = [run("available", "user-1", "gpt-4", "-l", "rpd:1/d", "--json").stdout for _ in range(3)]

        assert 1 == len(set(told))

    def test_without_limits_anywhere_it_says_how_to_give_some(self, run):
        """The hint is a command, not Python."""
        done = run("available", "user-1", "gpt-4")

        assert 2 == done.exit_code
        assert "zae-limiter system set-defaults -l rpm:100" in done.stderr
        assert "set_system_defaults" not in done.stderr


class TestWhereTheDataIs:
    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the data directory is not in the environment")
    def test_the_default_file_is_named_on_stderr(self, run, tmp_path, monkeypatch):
        """Whoever named no file is told which one it is; stdout is free of it."""
        monkeypatch.delenv("ZAE_LIMITER_URL")
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        done = run("available", "user-1", "gpt-4", "-l", "rpd:1/d", "--json")

        file = tmp_path / "zae-limiter" / "limiter.db"
        assert f"Using {file} (choose another with --name or --url)\n" == done.stderr
        assert {"rpd": 1} == json.loads(done.stdout)["available"]

    def test_a_url_given_goes_before_the_environment(self, run, database, tmp_path):
        """And nothing is said of what the user said."""
        done = run("available", "user-1", "gpt-4", "-l", "rpd:1/d", "--url", f"sqlite:///{tmp_path}/other.db")

        assert "" == done.stderr
        assert (True, False) == ((tmp_path / "other.db").exists(), database.exists())

    def test_memory_is_said_to_keep_nothing(self, run):
        """It ends with the command, which is hardly what one wants of it."""
        done = run("available", "user-1", "gpt-4", "-l", "rpd:1/d", "--url", "memory://")

        assert "is lost when this command ends" in done.stderr


class TestInATerminal:
    def test_tables_have_a_rule_and_json_is_indented(self, capsys, monkeypatch):
        """Somebody is looking."""
        monkeypatch.setattr("zae_limiter.cli._output.in_terminal", lambda: True)
        print_grid(Grid([Column("limit"), Column("left", True)], [("rpm", "7")]))
        print_json({"a": 1})

        table, told = capsys.readouterr().out.split("{")
        assert ["limit   left", "────────────", "rpm        7"] == table.splitlines()
        assert '\n  "a": 1\n}\n' == told
