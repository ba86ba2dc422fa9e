"""The modes in which the sync runtime runs two calls at the same time."""

import contextlib
import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings

import pytest

from zae_limiter.runtime.threads import Later, Parallel, Promise


@pytest.fixture
def threadpool():
    with several_cpus():
        parallel = Parallel("threadpool")
    yield parallel
    parallel.close()


@contextlib.contextmanager
def several_cpus():
    """Keep a host with one CPU from warning in tests of something else."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*single CPU")
        yield


def run_script(source: str) -> list[str]:
    """Run a script in an interpreter of its own, and return the lines that it prints."""
    finished = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(source)],
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert (0, "") == (finished.returncode, finished.stderr)
    return finished.stdout.splitlines()


def test_threadpool_runs_both_calls_at_the_same_time(threadpool):
    """Each may wait for the other to begin; the first stays on the caller's thread."""
    meeting = threading.Barrier(2, timeout=300)

    def meet():
        meeting.wait()
        return threading.get_ident()

    first, second = threadpool.run([meet, meet])

    assert (True, True) == (threading.get_ident() == first, first != second)


def test_threadpool_waits_for_a_second_call_that_outlives_a_failing_first(threadpool):
    """Neither call continues alone."""
    begun, ended = threading.Event(), []

    def fail():
        begun.wait()
        raise KeyError("first")

    def slow():
        begun.set()
        time.sleep(0.05)  # Long enough to show a pair that does not wait.
        ended.append("second")

    with pytest.raises(KeyError):
        threadpool.run([fail, slow])

    assert ["second"] == ended


def test_error_on_a_pool_thread_is_raised_in_the_caller(threadpool):
    """Errors cross threads."""
    begun = threading.Event()

    def fail():
        begun.set()
        raise KeyError("second")

    with pytest.raises(KeyError):
        threadpool.run([begun.wait, fail])


@pytest.mark.parametrize("workers", [1, 2])
def test_nested_pairs_on_a_small_pool_do_not_deadlock(workers):
    """A caller runs work itself that no thread has begun."""
    with several_cpus():
        parallel = Parallel("threadpool", workers=workers)

    def nested(depth):
        if depth == 0:
            return 1
        return sum(parallel.run([lambda: nested(depth - 1), lambda: nested(depth - 1)]))

    sums = []
    caller = threading.Thread(target=lambda: sums.extend(nested(6) for _ in range(20)), daemon=True)
    caller.start()
    caller.join(timeout=300)
    parallel.close()

    assert [64] * 20 == sums


@pytest.mark.parametrize("workers", [1, 2])
def test_work_that_the_pool_has_not_begun_runs_in_place_once(workers):
    """While every worker is busy, the caller makes both calls itself, and no worker repeats them."""
    with several_cpus():
        parallel = Parallel("threadpool", workers=workers)
    # The pool must exist before the threads start, or each would make one.
    parallel.run([lambda: None, lambda: None])
    held, gate, calls = threading.Barrier(workers + 1, timeout=300), threading.Event(), []

    def hold():
        held.wait()
        gate.wait()

    holders = [threading.Thread(target=parallel.run, args=([gate.wait, hold],), daemon=True) for _ in range(workers)]
    for holder in holders:
        holder.start()
    held.wait()
    parallel.run([lambda: calls.append("first"), lambda: calls.append(threading.get_ident())])
    gate.set()
    for holder in holders:
        holder.join()
    parallel.run([lambda: None, lambda: None])
    parallel.close()

    assert ["first", threading.get_ident()] == calls


def test_promise_gives_its_value_to_every_waiter():
    """A result may be asked for more than once."""
    promise = Promise()
    promise.set("value")

    assert ["value", "value"] == [promise.wait(), promise.wait()]


def test_promise_of_none_has_a_result():
    """None is a value like others."""
    promise = Promise()
    promise.set(None)

    assert promise.wait() is None


def test_failed_promise_raises_its_error_in_every_waiter():
    """The error is raised each time."""
    promise = Promise()
    promise.fail(KeyError("lost"))

    with pytest.raises(KeyError, match="lost"):
        promise.wait()
    with pytest.raises(KeyError, match="lost"):
        promise.wait()


def test_promise_with_a_value_or_an_error_is_done():
    """Both are results."""
    waiting, kept, failed = Promise(), Promise(), Promise()
    kept.set(1)
    failed.fail(KeyError("lost"))

    assert [False, True, True] == [waiting.done(), kept.done(), failed.done()]


def test_second_result_of_a_promise_is_refused():
    """It is a mistake of the caller, and the first result stays."""
    promise = Promise()
    promise.set("first")

    with pytest.raises(RuntimeError):
        promise.set("second")
    with pytest.raises(RuntimeError):
        promise.fail(KeyError("third"))
    assert "first" == promise.wait()


def test_promise_gives_its_value_to_every_waiting_thread():
    """A result wakes all waiting threads."""
    promise, values = Promise(), []
    waiters = [threading.Thread(target=lambda: values.append(promise.wait()), daemon=True) for _ in range(8)]
    for waiter in waiters:
        waiter.start()
    promise.set("value")
    for waiter in waiters:
        waiter.join(timeout=300)

    assert ["value"] * 8 == values


def test_interrupt_in_the_first_call_keeps_the_second_from_beginning():
    """After Ctrl-C no further call is made."""
    calls = []

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Parallel("serial").run([interrupt, lambda: calls.append("second")])

    assert [] == calls


def test_interrupt_in_the_first_call_waits_for_a_second_that_has_begun(threadpool):
    """Neither call continues alone."""
    begun, ended = threading.Event(), []

    def interrupt():
        begun.wait()
        raise KeyboardInterrupt

    def slow():
        begun.set()
        time.sleep(0.05)  # Long enough to show a pair that does not wait.
        ended.append("second")

    with pytest.raises(KeyboardInterrupt):
        threadpool.run([interrupt, slow])

    assert ["second"] == ended


def test_pool_is_created_by_the_first_pair_and_ended_by_close():
    """A client that never runs two calls at the same time has no threads."""
    printed = run_script("""
        import _thread, threading, time, warnings
        from zae_limiter.runtime.threads import Parallel

        warnings.simplefilter("ignore")
        parallel = Parallel("threadpool")
        print(_thread._count())
        both = threading.Barrier(2)
        parallel.run([both.wait, both.wait])
        members = parallel._pool._threads
        print(len(members))
        parallel.close()
        while members:
            time.sleep(0.001)
        print(len(members))
        """)

    assert ["0", "1", "0"] == printed


def test_serial_mode_runs_both_calls_in_place_in_order():
    """No thread is started."""
    calls = []
    first, second = Parallel("serial").run(
        [
            lambda: (calls.append("first"), threading.get_ident()),
            lambda: (calls.append("second"), threading.get_ident()),
        ]
    )

    assert ["first", "second"] == calls
    assert [threading.get_ident()] * 2 == [first[1], second[1]]


def test_gevent_mode_without_patching_warns_and_runs_in_place():
    """The mode has no effect then, but the work is done."""
    with pytest.warns(UserWarning, match="'gevent' without monkey patching") as caught:
        parallel = Parallel("gevent")

    assert __file__ == caught[0].filename
    assert [threading.get_ident()] * 2 == parallel.run([threading.get_ident, threading.get_ident])


def test_gevent_mode_with_patching_runs_both_calls_on_greenlets():
    """Explicitly or by auto: each may wait for the other, on one thread, without a warning."""
    printed = run_script("""
        from gevent import monkey
        monkey.patch_all()
        import warnings
        warnings.simplefilter("error")
        import gevent, threading
        from zae_limiter.runtime.threads import Parallel

        real_thread = monkey.get_original("threading", "get_ident")
        for mode in ("gevent", "auto"):
            begun = threading.Event(), threading.Event()
            greenlets = []
            def meet(mine, other):
                greenlets.append(gevent.getcurrent())
                begun[mine].set()
                assert begun[other].wait(300)
                return real_thread()
            parallel = Parallel(mode)
            first, second = parallel.run([lambda: meet(0, 1), lambda: meet(1, 0)])
            print(mode, first == second == real_thread(), len(set(greenlets)))
            print(parallel._pool)
        """)

    assert ["gevent True 2", "None", "auto True 2", "None"] == printed


def test_promise_or_nested_pair_under_gevent_blocks_only_its_greenlet():
    """While one greenlet waits, the others run."""
    printed = run_script("""
        from gevent import monkey
        monkey.patch_all()
        from zae_limiter.runtime.threads import Later, Parallel, Promise, sleep

        parallel, promise = Parallel("gevent"), Promise()
        def nested(depth):
            sleep(0)
            return 1 if depth == 0 else sum(parallel.run([lambda: nested(depth - 1), lambda: nested(depth - 1)]))
        print(parallel.run([promise.wait, lambda: promise.set("kept")]))
        print(nested(5))
        """)

    assert ["['kept', None]", "32"] == printed


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the number of CPUs can be set on Linux only")
def test_auto_mode_on_one_cpu_is_serial_and_an_explicit_threadpool_warns():
    """An explicit mode is used, with a warning."""
    printed = run_script("""
        import os, warnings
        os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
        import threading
        from zae_limiter.runtime.threads import Parallel

        for mode in ("auto", "threadpool"):
            with warnings.catch_warnings(record=True) as caught:
                warnings.simplefilter("always")
                parallel = Parallel(mode)
            begun, in_place = threading.Event(), []
            def second():
                in_place.append(threading.current_thread() is threading.main_thread())
                begun.set()
            parallel.run([lambda: begun.wait(0.2 if mode == "auto" else 30), second])
            print(mode, in_place, [str(warning.message) for warning in caught])
        """)

    assert [
        "auto [True] []",
        "threadpool [False] [\"parallel_mode='threadpool' on a single CPU: its threads contend for the GIL\"]",
    ] == printed


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="the number of CPUs can be set on Linux only")
@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
def test_auto_mode_on_several_cpus_is_a_threadpool():
    """It gives no warning."""
    meeting = threading.Barrier(2, timeout=300)
    parallel = Parallel("auto")

    parallel.run([meeting.wait, meeting.wait])
    parallel.close()

    assert not meeting.broken


def test_calls_of_one_acquire_all_run_at_the_same_time():
    """It has 16 buckets at most. A second round needs no other threads."""
    with several_cpus():
        parallel = Parallel("threadpool")
    started = []
    for _ in range(5):
        meeting = threading.Barrier(16, timeout=300)
        parallel.run([meeting.wait] * 16)
        started.append(len(parallel._pool._threads))
    parallel.close()

    assert [15] * 5 == started


def test_pairs_of_one_caller_need_one_thread():
    """A thread is started only if none is idle."""
    with several_cpus():
        parallel = Parallel("threadpool")
    for _ in range(20):
        meeting = threading.Barrier(2, timeout=300)
        parallel.run([meeting.wait, meeting.wait])
        # A thread is idle soon after the result of its call is known.
        while not parallel._pool._idle:
            time.sleep(0.001)
    started = len(parallel._pool._threads)
    parallel.close()

    assert 1 == started


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_creates_its_own_pool():
    """Threads do not survive a fork, and pairs of the child still run at the same time."""
    printed = run_script("""
        import os, threading, warnings
        from zae_limiter.runtime.threads import Parallel

        warnings.simplefilter("ignore")
        parallel = Parallel("threadpool")
        def meet():
            meeting = threading.Barrier(2, timeout=300)
            parallel.run([meeting.wait, meeting.wait])
        meet()
        child = os.fork()
        meet()
        if child:
            print(os.waitpid(child, 0)[1])
        """)

    assert ["0"] == printed


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_forked_child_inherits_no_lock_of_background_work():
    """A thread that starts, pauses or stops the work at the fork does not exist in the child."""
    printed = run_script("""
        import os, signal, threading, warnings
        from zae_limiter.runtime.threads import Background

        warnings.simplefilter("ignore")
        background, holding, done = Background(), threading.Event(), threading.Event()
        def hold():
            with background._starting, background._stop._cond:
                holding.set()
                done.wait()
        threading.Thread(target=hold, daemon=True).start()
        holding.wait()
        child = os.fork()
        if not child:
            signal.alarm(60)
            worked = threading.Event()
            background.start(worked.set)
            started = background._thread is not None and worked.wait()
            background.stop()
            os._exit(0 if started else 1)
        print(os.waitpid(child, 0)[1])
        done.set()
        """)

    assert ["0"] == printed


def test_pair_during_the_exit_of_the_interpreter_runs_in_place():
    """When no thread can be started, the caller does the work."""
    printed = run_script("""
        import atexit, warnings
        from zae_limiter.runtime.threads import Parallel

        warnings.simplefilter("ignore")
        parallel = Parallel("threadpool")
        atexit.register(lambda: print(parallel.run([lambda: 1, lambda: 2])))
        """)

    assert ["[1, 2]"] == printed


def test_background_work_does_not_keep_the_interpreter_alive():
    """A daemon thread that never ends does not delay the exit."""
    for form in ("aio", "threads"):
        printed = run_script(f"""
            import threading
            from zae_limiter.runtime.{form} import in_background

            begun = threading.Event()
            def hang():
                begun.set()
                threading.Event().wait()
            in_background(hang)
            print(begun.wait(300))
            """)

        assert ["True"] == printed


def test_stop_waits_for_work_that_has_begun():
    """At the exit of the interpreter, the thread of the work would be cut off otherwise."""
    calls: list[int] = []
    ended: list[int] = []
    first, second, turn = threading.Event(), threading.Event(), threading.Lock()

    def work():
        calls.append(len(calls))
        (second if len(calls) > 1 else first).set()
        with turn:
            if not ended:
                second.wait(300)
            ended.append(len(calls))

    later = Later(work, work)
    later.start(0)
    first.wait(300)

    later.stop()

    assert [2, 2] == ended
