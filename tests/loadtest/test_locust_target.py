"""Which limiter a Locust user calls, and when its tasks are due."""

import pytest

from zae_limiter.loadtest.locust_target import Schedule, TargetChoice, pacing_s, target_url

NOTHING = TargetChoice(None, None, None, None)


class Hand:
    """A clock that is set by hand."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.mark.parametrize(
    ("choice", "environ", "url"),
    [
        (NOTHING, {}, None),
        (TargetChoice("a", None, None, "b"), {"TARGET_STACK_NAME": "c"}, "dynamodb://a?region=us-east-1"),
        (TargetChoice(None, None, None, "b"), {"TARGET_STACK_NAME": "c"}, "dynamodb://b?region=us-east-1"),
        (NOTHING, {"TARGET_STACK_NAME": "c", "ZAE_LIMITER_URL": "memory://"}, "dynamodb://c?region=us-east-1"),
        (TargetChoice("a", None, None, None), {"TARGET_REGION": "eu-west-1"}, "dynamodb://a?region=eu-west-1"),
        (TargetChoice("a", "eu-west-2", None, None), {"TARGET_REGION": "x"}, "dynamodb://a?region=eu-west-2"),
        (NOTHING, {"ZAE_LIMITER_URL": "memory://"}, "memory://"),
        (TargetChoice("a", None, "memory://", "b"), {"ZAE_LIMITER_URL": "sqlite:///x"}, "memory://"),
        (TargetChoice(None, None, None, "sqlite:///x"), {}, "sqlite:///x"),
        (TargetChoice("a", None, "memory://", "b"), {"ZAE_LOADTEST_URL": "sqlite:///run"}, "sqlite:///run"),
    ],
)
def test_target_is_the_run_then_the_class_then_the_host_then_the_environment(choice, environ, url):
    """A command that starts a run has the last word. A host is the name of a stack, or a URL."""
    assert url == target_url(choice, environ)


def test_wait_time_of_another_kind_has_no_interval():
    """Only Locust's own paced waits are known to have one."""
    assert (None, None) == (pacing_s(lambda user: 1.0), pacing_s(None))


def test_first_task_is_due_when_it_begins_and_the_next_one_interval_after_it_ended():
    """Setting up a user does not make it late."""
    clock = Hand()
    schedule = Schedule(2.0, clock)
    before = schedule.take_due_s()
    wait_s = schedule.wait_s()

    assert (100.0, 2.0) == (before, wait_s)
    assert (102.0, None) == (schedule.take_due_s(), schedule.take_due_s())


def test_late_task_does_not_move_the_tasks_after_it():
    """The user skips its waits until it has caught up."""
    clock = Hand()
    schedule = Schedule(2.0, clock)
    schedule.wait_s()
    clock.now_s = 105.0
    waits, due = [schedule.wait_s(), schedule.wait_s()], schedule.take_due_s()

    assert ([0.0, 1.0], 106.0) == (waits, due)
