"""What the commands on AWS print."""

from pathlib import Path

import pytest

from tests.loadtest.test_tuning import ALONE, step
from zae_limiter.cli._place import Region, StoreLocation
from zae_limiter.cli.loadtest._aws_run import mode_of, print_ending, print_failure, progress_text, telling
from zae_limiter.cli.loadtest._run_options import RunOptions
from zae_limiter.cli.loadtest.tune import print_tuning
from zae_limiter.loadtest.aws_run import RunProgress, RunResult
from zae_limiter.loadtest.aws_tuning import TuningPlan, step_of
from zae_limiter.loadtest.measurements import Latencies, Measurements
from zae_limiter.loadtest.run_config import RunMode
from zae_limiter.loadtest.run_objects import RunFailure
from zae_limiter.loadtest.tuning import TuningGoal, TuningResult


def options(workers: int | None = None, standalone: bool = False) -> RunOptions:
    return RunOptions(
        file=Path("simple.py"),
        directory=Path(),
        classes=(),
        users=20,
        duration_s=60,
        spawn_rate=10.0,
        processes=1,
        workers=workers,
        standalone=standalone,
        max_usd=5.0,
        max_duration_s=None,
        as_json=False,
        html=None,
    )


def measured() -> Measurements:
    """Return measurements of 30 seconds, with 1,200 admitted and 3 rejected calls."""
    found = Measurements(admitted=1200, rejected=3)
    found.include(100.0, 130.0)
    for name, duration_ms in (("ACQUIRE", 4.0), ("ACQUIRE", 6.0), ("ACQUIRE", 8.0), ("SET_SYSTEM_DEFAULTS", 900.0)):
        found.latencies.setdefault(name, Latencies()).add(duration_ms)
    return found


class TestRun:
    def test_mode_follows_from_workers_and_standalone(self):
        """Without both, one function runs all users."""
        found = [mode_of(options()), mode_of(options(workers=3)), mode_of(options(standalone=True))]

        assert [RunMode.HEADLESS, RunMode.DISTRIBUTED, RunMode.STANDALONE] == found

    def test_progress_has_time_users_workers_and_calls(self):
        """One line says how far the test is."""
        progress = RunProgress(running_s=50, workers=2, users=20, measured=measured())

        assert "30 of 60 s, 20 users on 2 of 3 workers: 1,200 admitted, 3 rejected" == progress_text(
            progress, options(workers=3)
        )

    def test_progress_before_the_first_call_has_the_time_since_the_start(self):
        """A master needs a minute to start."""
        assert "starting, 12 s" == progress_text(RunProgress(12.3, 0, 0, None), options())

    def test_log_gets_a_line_every_ten_seconds(self):
        """A file is not a terminal, which replaces the line."""
        heard: list[str] = []
        listen = telling(heard.append, options())

        for running_s in (0, 2, 9, 10, 19, 21):
            listen(RunProgress(running_s, 0, 0, None))

        assert ["starting, 0 s", "starting, 10 s", "starting, 21 s"] == heard

    def test_failure_of_a_worker_is_printed_with_its_log(self, capsys):
        """Also if the test continues."""
        print_failure(RunFailure("worker-2", "killed", ("line 1", "line 2")))

        assert ["worker-2 failed: killed", "  line 1", "  line 2"] == plain(capsys.readouterr().err)

    @pytest.mark.parametrize(
        ("result", "notes"),
        [
            (RunResult(Measurements(), None, 0, 0), []),
            (RunResult(Measurements(), "it has cost USD 5.00", 0, 0), ["The test was stopped early"]),
            (RunResult(Measurements(), None, 2, 1), ["2 workers were replaced", "1 workers were lost"]),
        ],
    )
    def test_ending_says_what_was_not_as_planned(self, result, notes, capsys):
        """A test that ended as planned needs no note."""
        print_ending(result)

        printed = plain(capsys.readouterr().err)
        assert len(notes) == len(printed)
        assert all(line.startswith(note) for line, note in zip(printed, notes, strict=True))


class TestTune:
    def test_tuning_prints_table_chart_throughput_and_commands(self, capsys):
        """The commands select the same limiter."""
        place = StoreLocation("my-app", Region("eu-west-1", None))
        plan = TuningPlan("simple.py", ("SimpleUser",), TuningGoal(40, 0.8), 30, 60, 5.0)
        best = step(20, 8.0)

        print_tuning(TuningResult(ALONE, (step(40, 16.0), best), best), plan, place, as_json=False)

        printed = capsys.readouterr().out
        assert "One worker handles 20 users well, with 2,500 calls per second." in printed
        command = "zae-limiter loadtest run --name my-app --region eu-west-1 -f simple.py SimpleUser --users 1000"
        assert f"{command} --workers 50" in printed
        assert 3 == printed.count("users  ")

    def test_step_counts_acquires_only(self):
        """Setting up a user does not belong to its latency."""
        found = step_of(measured(), users=2, duration_s=3)

        assert (2, 3, 1.0) == (found.users, found.requests, found.calls_per_s)
        assert 6.0 == pytest.approx(found.p50_ms, rel=0.01)


def plain(printed: str) -> list[str]:
    """Return printed lines without their style."""
    return [line.removeprefix("\x1b[2m").removesuffix("\x1b[0m") for line in printed.splitlines()]
