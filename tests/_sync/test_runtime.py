"""What the runtime promises in both trees."""  # generated from _async by tools/mirror.py; do not edit

import _thread
import threading

import pytest

from zae_limiter.core.errors import ValidationError
from zae_limiter.runtime.threads import Lock, Parallel, finish, in_background, in_thread, outlast, sleep


def returning(value):
    return value


def failing(error):
    raise error


@pytest.fixture
def parallel():
    opened = Parallel("serial")
    yield opened
    opened.close()


def test_a_pair_returns_both_results_in_order(parallel):
    """Results come in the order of the calls."""
    assert ("left", "right") == parallel.both(lambda: returning("left"), lambda: returning("right"))


def test_pairs_nest(parallel):
    """A call of a pair may itself be a pair."""

    def pair():
        return parallel.both(lambda: returning(1), lambda: returning(2))

    assert ((1, 2), (1, 2)) == parallel.both(pair, pair)


def test_a_failing_first_waits_for_the_second(parallel):
    """Both calls end before an error is raised."""
    ended = []

    def slow():
        sleep(0)
        sleep(0)
        ended.append("second")

    with pytest.raises(KeyError):
        parallel.both(lambda: failing(KeyError("first")), slow)

    assert ["second"] == ended


def test_a_failing_second_waits_for_the_first(parallel):
    """Both calls end before an error is raised."""
    ended = []

    def slow():
        sleep(0)
        sleep(0)
        ended.append("first")

    with pytest.raises(KeyError):
        parallel.both(slow, lambda: failing(KeyError("second")))

    assert ["first"] == ended


def test_a_call_that_fails_before_it_waits_still_leaves_the_other_its_end(parallel):
    """Both calls are made, even when making one of them fails."""
    ended = []

    def recording():
        ended.append("first")

    def broken():
        raise KeyError("second")

    with pytest.raises(KeyError):
        parallel.both(recording, broken)

    assert ["first"] == ended


def test_of_two_errors_the_first_is_raised_and_notes_the_second(parallel):
    """No error is lost."""
    with pytest.raises(KeyError) as caught:
        parallel.both(lambda: failing(KeyError("first")), lambda: failing(ValueError("second")))

    assert ["The concurrent call failed too: ValueError('second')"] == caught.value.__notes__


def test_an_unknown_mode_is_refused():
    """A misspelt mode is an error and not a silent default."""
    with pytest.raises(ValidationError) as caught:
        Parallel("threads")

    assert ("parallel_mode", "threads") == (caught.value.field, caught.value.value)


def test_a_closed_parallel_still_runs_pairs(parallel):
    """Closing lets go of threads, not of the promise to run."""
    parallel.close()

    assert (1, 2) == parallel.both(lambda: returning(1), lambda: returning(2))


def test_a_lock_is_held_inside_its_block_only():
    """One at a time."""
    lock = Lock()

    with lock:
        held = lock.locked()

    assert (True, False) == (held, lock.locked())


def test_a_blocking_call_returns_its_result():
    """Arguments go in, the result comes out."""
    assert 1024 == in_thread(pow, 2, 10)


def test_a_blocking_call_raises_its_error():
    """Errors cross threads."""
    with pytest.raises(ZeroDivisionError):
        in_thread(divmod, 1, 0)


def test_background_work_runs_beside_the_caller():
    """Starting it does not wait for it: here it cannot end before its caller goes on."""
    go_on, ended = threading.Event(), threading.Event()

    def work(first, second):
        first.wait()
        second.set()

    in_background(work, go_on, ended)
    before = ended.is_set()
    go_on.set()

    assert (False, True) == (before, ended.wait(timeout=300))


def test_background_work_is_left_out_when_no_thread_can_be_started(monkeypatch):
    """Optional work never fails its caller."""
    made = []

    def refuse(call, arguments):
        made.append(True)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(_thread, "start_new_thread", refuse)

    in_background(made.append, "ran")

    assert [True] == made


def test_lasting_work_returns_its_result_and_undoes_nothing():
    """Without a cancellation the work is simply done."""
    undone = []

    def undo(result):
        undone.append(result)

    assert "taken" == outlast(lambda: returning("taken"), undo)
    assert [] == undone


def test_lasting_work_raises_its_error_and_undoes_nothing():
    """What failed has no result to undo."""
    undone = []

    def undo(result):
        undone.append(result)

    with pytest.raises(KeyError):
        outlast(lambda: failing(KeyError("failed")), undo)
    assert [] == undone


def test_finishing_work_returns_its_result():
    """Without a cancellation the work is simply done."""
    assert "given back" == finish(lambda: returning("given back"))


def test_finishing_work_raises_its_error():
    """An error is the caller's to handle."""
    with pytest.raises(KeyError):
        finish(lambda: failing(KeyError("failed")))
