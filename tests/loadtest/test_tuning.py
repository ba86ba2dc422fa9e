"""How the best number of users per worker is found."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.loadtest.run_configs import a_run
from zae_limiter.loadtest.aws_run import RunResult
from zae_limiter.loadtest.aws_tuning import AwsTuning, TuningPlan
from zae_limiter.loadtest.measurements import Latencies, Measurements
from zae_limiter.loadtest.run_config import RunConfig, RunMode
from zae_limiter.loadtest.tuning import (
    TuningGoal,
    TuningResult,
    TuningStep,
    chart_lines,
    efficiency,
    next_baseline_s,
    next_users,
    planned_commands,
    tuned,
)

GOAL = TuningGoal(most_users=40, threshold=0.8)
ALONE = TuningStep(users=1, requests=500, p50_ms=8.0, calls_per_s=100.0)


def step(users: int, p50_ms: float) -> TuningStep:
    return TuningStep(users, 1000, p50_ms, users * 1000 / p50_ms)


def measured_until_done(p50_ms_of, goal: TuningGoal = GOAL) -> list[TuningStep]:
    """Return all steps of a tuning of a worker with this latency."""
    steps: list[TuningStep] = []
    while (users := next_users(ALONE, steps, goal)) is not None:
        steps.append(step(users, p50_ms_of(users)))
    return steps


class TestBaseline:
    def test_baseline_with_100_requests_is_enough(self):
        """Its median is reliable."""
        assert next_baseline_s(100, 60, longest_s=270) is None

    def test_baseline_with_fewer_requests_is_extended_at_its_own_rate(self):
        """With 50 requests per minute, another minute is needed, and a little more."""
        assert 72 == next_baseline_s(50, 60, longest_s=270)

    def test_extension_is_no_longer_than_one_function_may_run(self):
        """The rest follows in another part."""
        assert 270 == next_baseline_s(1, 60, longest_s=270)

    def test_baseline_without_requests_is_repeated(self):
        """Nothing is known about its rate."""
        assert 60 == next_baseline_s(0, 60, longest_s=270)


class TestBisection:
    def test_first_step_tries_the_most_users(self):
        """If they are efficient, no other step is needed."""
        assert 40 == next_users(ALONE, [], GOAL)
        assert next_users(ALONE, [step(40, 8.1)], GOAL) is None

    def test_each_step_halves_the_range(self):
        """Between an efficient and an inefficient number."""
        assert [40, 20, 10, 15, 12, 13, 14] == [
            one.users for one in measured_until_done(lambda users: 8 if users < 14 else 20)
        ]

    def test_most_users_of_one_need_no_step(self):
        """The baseline is the answer."""
        assert next_users(ALONE, [], TuningGoal(1, 0.8)) is None

    @given(knee=st.integers(1, 60), most=st.integers(2, 60))
    def test_best_step_is_the_last_efficient_number(self, knee, most):
        """For a worker that is efficient up to some number of users."""
        goal = TuningGoal(most, 0.8)
        steps = measured_until_done(lambda users: 8 if users <= knee else 20, goal)

        assert min(knee, most) == tuned(ALONE, steps, goal).best.users
        assert len(steps) <= 8

    def test_noise_does_not_place_the_best_above_an_inefficient_number(self):
        """A larger number that looks efficient by chance is not trusted."""
        steps = [step(40, 20), step(20, 8), step(30, 8), step(10, 20)]

        assert ALONE == tuned(ALONE, steps, GOAL).best

    def test_step_without_requests_is_inefficient(self):
        """Its median is unknown."""
        assert 0.0 == efficiency(ALONE, TuningStep(40, 0, 0.0, 0.0))


class MeasuredLoadTest:
    """A load test whose runs measure the same again and again."""

    def __init__(self, measured: Measurements) -> None:
        self.configs: list[RunConfig] = []
        self._measured = measured

    def configure(self, mode: RunMode, file: str, **options: Any) -> RunConfig:
        return a_run(mode, file, **options)

    def run(self, config: RunConfig, listener: object) -> RunResult:
        self.configs.append(config)
        return RunResult(self._measured, None, 0, 0)


class TestRuns:
    def test_ceiling_of_a_tuning_is_that_of_all_its_runs(self):
        """Each run starts with what the runs before it have cost."""
        measured = Measurements(write_units=1_000_000, latencies={"ACQUIRE": Latencies(Counter({100: 200}), 3.0)})
        load_test = MeasuredLoadTest(measured)
        plan = TuningPlan("simple.py", (), GOAL, step_s=30, baseline_s=60, max_usd=2.0, max_duration_s=900)

        AwsTuning(load_test, plan, lambda _: None).tune()

        assert [1, 40] == [one.users for one in load_test.configs]
        assert [0.0, 0.625] == pytest.approx([one.spent_usd for one in load_test.configs], abs=0.01)
        assert {(2.0, 900)} == {(one.ceiling.max_usd, one.ceiling.max_duration_s) for one in load_test.configs}


class TestOutput:
    def test_chart_marks_the_threshold_and_the_best(self):
        """One bar per number of users, in their order."""
        result = TuningResult(ALONE, (step(40, 16), step(20, 8)), step(20, 8))
        lines = chart_lines(result, 0.8)

        assert ["1 users", "20 users", "40 users"] == [" ".join(line.split()[:2]) for line in lines]
        assert lines[2].count("█") == 20
        assert lines[2].index("|") == lines[0].index("█") + 32
        assert lines[2].endswith("50%")

    def test_commands_have_as_many_workers_as_the_users_need(self):
        """With the best number of users in each."""
        assert [
            "zae-limiter loadtest run -n my-app -f simple.py SimpleUser --users 100 --workers 9",
            "zae-limiter loadtest run -n my-app -f simple.py SimpleUser --users 500 --workers 42",
            "zae-limiter loadtest run -n my-app -f simple.py SimpleUser --users 1000 --workers 84",
        ] == planned_commands(" -n my-app", "simple.py", ["SimpleUser"], 12)

    @pytest.mark.parametrize("best_users", [20, 40])
    def test_chart_names_the_best_step(self, best_users):
        """It is the number to use."""
        steps = (step(40, 9), step(20, 8))
        best = next(one for one in steps if one.users == best_users)

        assert [f"{best_users} users"] == [
            " ".join(line.split()[:2]) for line in chart_lines(TuningResult(ALONE, steps, best), 0.8) if "best" in line
        ]
