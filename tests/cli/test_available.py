"""``zae-limiter available``, and the format of tables."""

import json
import sys

import pytest

from zae_limiter.cli._output import Column, Grid, print_grid, print_json


class TestAvailable:
    def test_available_shows_every_limit_in_force(self, run):
        """It shows what is left, the capacity and the refill rate."""
        run("system", "set-defaults", "-l", "rpd:100/d", "-l", "tpd:1000/d:burst=2000")
        run("acquire", "user-1", "gpt-4", "-c", "rpd:1")
        done = run("available", "user-1", "gpt-4")

        lines = [
            "LIMIT  AVAILABLE  CAPACITY  REFILL",
            "rpd           99       100  100 per day",
            "tpd         2000      2000  1000 per day",
        ]
        assert (lines, "") == (done.stdout.splitlines(), done.stderr)

    def test_available_json_has_amounts_by_limit_name(self, run):
        """A script reads `.available.rpd`."""
        done = run("available", "user-1", "gpt-4", "-l", "rpd:100/d", "--json")

        limit = {"name": "rpd", "capacity": 100, "refill_amount": 100, "refill_period_seconds": 86400}
        facts = {"entity_id": "user-1", "resource": "gpt-4", "available": {"rpd": 100}, "limits": [limit]}
        assert facts | {"blocked": None} == json.loads(done.stdout)

    def test_available_of_a_blocked_entity_says_that_it_is_blocked(self, run):
        """Nothing is left, also of a child. The command itself succeeds."""
        run("entity", "create", "project-1")
        run("entity", "create", "key-1", "--parent", "project-1", "--cascade")
        run("entity", "block", "project-1", "--reason", "unpaid invoice")
        show = ("available", "key-1", "gpt-4", "-l", "rpd:100/d")
        done, facts = run(*show), json.loads(run(*show, "--json").stdout)

        blocked = (
            "blocked: project-1 for all resources: unpaid invoice; unblock it: zae-limiter entity unblock project-1"
        )
        assert (0, ["rpd            0       100  100 per day", blocked]) == (
            done.exit_code,
            done.stdout.splitlines()[1:],
        )
        assert ("project-1", blocked) == (facts["blocked"]["entity_id"], facts["blocked"]["message"])

    def test_available_without_tokens_is_not_blocked(self, run):
        """An empty bucket refills; a block does not."""
        run("acquire", "user-1", "gpt-4", "-c", "rpd:1", "-l", "rpd:1/d")
        done = run("available", "user-1", "gpt-4", "-l", "rpd:1/d")

        assert ["rpd            0         1  1 per day"] == done.stdout.splitlines()[1:]

    def test_available_shows_limits_across_resources(self, run):
        """What is left is the smallest amount of all buckets."""
        run("resource", "set-defaults", "gpt-4", "-l", "rpd:100/d")
        run("entity", "set-limits", "key-1", "--all-resources", "-l", "rpd:60/d", "-l", "spend:7/d")
        done = run("available", "key-1", "gpt-4")

        lines = ["rpd           60       100  100 per day", "spend          7         7  7 per day"]
        assert lines == done.stdout.splitlines()[1:]

    def test_available_takes_no_tokens(self, run):
        """Repeated calls show the same balance."""
        printed = [run("available", "user-1", "gpt-4", "-l", "rpd:1/d", "--json").stdout for _ in range(3)]

        assert 1 == len(set(printed))

    def test_available_without_any_limits_shows_how_to_set_some(self, run):
        """The hint is a command, not Python code."""
        done = run("available", "user-1", "gpt-4")

        assert 2 == done.exit_code
        assert "zae-limiter system set-defaults -l rpm:100" in done.stderr
        assert "set_system_defaults" not in done.stderr


class TestStoreLocation:
    @pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the data directory is not in the environment")
    def test_the_default_file_is_announced_on_stderr(self, run, tmp_path, monkeypatch):
        """Without a URL, stderr names the file in use; stdout has the result alone."""
        monkeypatch.delenv("ZAE_LIMITER_URL")
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        made = run("system", "set-defaults", "-l", "rpd:1/d", "--json")
        done = run("available", "user-1", "gpt-4", "-l", "rpd:1/d", "--json")

        file = tmp_path / "zae-limiter" / "limiter.db"
        assert f"Using {file} (--url selects another)\n" == made.stderr
        assert made.stderr == done.stderr
        assert {"rpd": 1} == json.loads(done.stdout)["available"]

    def test_the_url_option_overrides_the_environment(self, run, tmp_path):
        """A location that the user gave is not repeated."""
        url = f"sqlite:///{tmp_path}/other.db"
        done = run("system", "set-defaults", "-l", "rpd:1/d", "--url", url)

        assert "" == done.stderr
        assert "rpd" in run("system", "get-defaults", "--url", url).stdout
        assert "" == run("system", "get-defaults").stdout

    def test_a_memory_url_prints_a_warning_that_nothing_is_kept(self, run):
        """The data of `memory://` is lost when the command ends."""
        done = run("available", "user-1", "gpt-4", "-l", "rpd:1/d", "--url", "memory://")

        assert "is lost when this command ends" in done.stderr


class TestInATerminal:
    def test_output_in_a_terminal_has_a_table_rule_and_indented_json(self, capsys, monkeypatch):
        """The output is formatted for reading."""
        monkeypatch.setattr("zae_limiter.cli._output.in_terminal", lambda: True)
        print_grid(Grid([Column("limit"), Column("left", True)], [("rpm", "7")]))
        print_json({"a": 1})

        table, printed = capsys.readouterr().out.split("{")
        assert ["limit   left", "────────────", "rpm        7"] == table.splitlines()
        assert '\n  "a": 1\n}\n' == printed
