"""What the runtime guarantees in both trees."""  # generated from _async by tools/mirror.py; do not edit

import _thread
import threading

import pytest

from zae_limiter.core.errors import ValidationError
from zae_limiter.runtime.threads import Lock, Parallel, finish, in_background, in_thread, sleep


def returning(value):
    return value


def failing(error):
    raise error


class Work:
    """Work that raises its result if that is an error."""

    def __init__(self, result):
        self.result = result

    def complete(self):
        if isinstance(self.result, Exception):
            raise self.result
        return self.result


@pytest.fixture
def parallel():
    opened = Parallel("serial")
    yield opened
    opened.close()


def test_run_returns_the_results_in_the_order_of_the_calls(parallel):
    """The order in which the calls end makes no difference."""
    assert ["left", "right"] == parallel.run([lambda: returning("left"), lambda: returning("right")])


def test_run_may_be_nested(parallel):
    """A call of ``run`` may itself use ``run``."""

    def pair():
        return parallel.run([lambda: returning(1), lambda: returning(2)])

    assert [[1, 2], [1, 2]] == parallel.run([pair, pair])


def test_run_with_a_failing_first_call_waits_for_the_second(parallel):
    """Both calls end before an error is raised."""
    ended = []

    def slow():
        sleep(0)
        sleep(0)
        ended.append("second")

    with pytest.raises(KeyError):
        parallel.run([lambda: failing(KeyError("first")), slow])

    assert ["second"] == ended


def test_run_with_a_failing_second_call_waits_for_the_first(parallel):
    """Both calls end before an error is raised."""
    ended = []

    def slow():
        sleep(0)
        sleep(0)
        ended.append("first")

    with pytest.raises(KeyError):
        parallel.run([slow, lambda: failing(KeyError("second"))])

    assert ["first"] == ended


def test_run_completes_one_call_if_the_other_cannot_be_started(parallel):
    """Both calls are made, even if making one of them fails."""
    ended = []

    def recording():
        ended.append("first")

    def broken():
        raise KeyError("second")

    with pytest.raises(KeyError):
        parallel.run([recording, broken])

    assert ["first"] == ended


def test_run_with_two_errors_raises_the_first_with_a_note_of_the_second(parallel):
    """No error is lost."""
    with pytest.raises(KeyError) as caught:
        parallel.run([lambda: failing(KeyError("first")), lambda: failing(ValueError("second"))])

    assert ["The concurrent call failed too: ValueError('second')"] == caught.value.__notes__


def test_parallel_with_an_unknown_mode_raises():
    """A misspelt mode is an error and not a silent default."""
    with pytest.raises(ValidationError) as caught:
        Parallel("threads")

    assert ("parallel_mode", "threads") == (caught.value.field, caught.value.value)


def test_run_of_a_closed_parallel_still_runs_both_calls(parallel):
    """Closing releases threads, but calls still run."""
    parallel.close()

    assert [1, 2] == parallel.run([lambda: returning(1), lambda: returning(2)])


def test_lock_is_held_only_inside_its_block():
    """Leaving the block releases it."""
    lock = Lock()

    with lock:
        held = lock.locked()

    assert (True, False) == (held, lock.locked())


def test_in_thread_returns_the_result_of_the_call():
    """Arguments are passed on."""
    assert 1024 == in_thread(pow, 2, 10)


def test_in_thread_raises_the_error_of_the_call():
    """Errors cross threads."""
    with pytest.raises(ZeroDivisionError):
        in_thread(divmod, 1, 0)


def test_in_background_does_not_wait_for_the_work():
    """Here the work cannot end before its caller continues."""
    go_on, ended = threading.Event(), threading.Event()

    def work(first, second):
        first.wait()
        second.set()

    in_background(work, go_on, ended)
    before = ended.is_set()
    go_on.set()

    assert (False, True) == (before, ended.wait(timeout=300))


def test_in_background_skips_the_work_if_no_thread_can_be_started(monkeypatch):
    """Optional work never fails its caller."""
    made = []

    def refuse(call, arguments):
        made.append(True)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)

    in_background(made.append, "ran")

    assert [True] == made


def test_finish_without_cancellation_returns_the_result():
    """The work simply runs."""
    assert "given back" == finish(Work("given back"))


def test_finish_of_failing_work_raises_its_error():
    """The caller handles the error."""
    with pytest.raises(KeyError):
        finish(Work(KeyError("failed")))
