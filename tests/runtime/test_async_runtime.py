"""The async runtime, when its caller is cancelled."""

import asyncio
import contextvars
import gc
import threading

import pytest

from zae_limiter.aws.shared_call import SharedCall
from zae_limiter.runtime.aio import Answer, Parallel, finish, finish_in_place, in_thread, shared


class Call:
    """A call that waits until it is released, and records how it ended."""

    def __init__(self, result="result", error=None):
        self.begun = asyncio.Event()
        self.let_go = asyncio.Event()
        self.ending = None
        self._result, self._error = result, error

    async def __call__(self, *arguments):
        self.begun.set()
        try:
            await self.let_go.wait()
        except asyncio.CancelledError:
            self.ending = "cancelled"
            raise
        self.ending = ("done", *arguments)
        if self._error is not None:
            raise self._error
        return self._result

    complete = __call__


@pytest.fixture
async def logged():
    """Collect what asyncio would log about the running loop."""
    messages = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: messages.append(context["message"]))
    return messages


async def turns(count=10):
    for _ in range(count):
        await asyncio.sleep(0)


async def test_both_runs_its_two_calls_at_the_same_time():
    """Each of the two may wait for the other to begin."""
    first, second = Call(1), Call(2)
    pair = asyncio.create_task(Parallel().run([first, second]))
    await first.begun.wait()
    await second.begun.wait()
    first.let_go.set()
    second.let_go.set()

    assert [1, 2] == await pair


async def test_both_when_cancelled_cancels_its_two_calls():
    """Neither call continues alone."""
    first, second = Call(), Call()
    pair = asyncio.create_task(Parallel().run([first, second]))
    await second.begun.wait()
    pair.cancel()

    with pytest.raises(asyncio.CancelledError):
        await pair
    assert ("cancelled", "cancelled") == (first.ending, second.ending)


async def test_both_when_cancelled_waits_for_calls_that_end_slowly():
    """It waits for a call that cleans up, even if the caller is cancelled again."""
    cleaning, cleaned = asyncio.Event(), asyncio.Event()

    async def slow_to_cancel():
        try:
            await asyncio.Event().wait()
        finally:
            await finish_in_place(cleaning.wait)
            cleaned.set()

    quick = Call()
    pair = asyncio.create_task(Parallel().run([slow_to_cancel, quick]))
    await quick.begun.wait()
    pair.cancel()
    await turns()
    pair.cancel()
    await turns()
    ended_early = pair.done()
    cleaning.set()

    with pytest.raises(asyncio.CancelledError):
        await pair
    assert (False, True) == (ended_early, cleaned.is_set())


async def test_both_when_cancelled_logs_no_errors_of_its_calls(logged):
    """The cancellation is raised instead."""

    async def fail_when_cancelled():
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            raise KeyError("while cleaning up") from None

    pair = asyncio.create_task(Parallel().run([fail_when_cancelled, fail_when_cancelled]))
    await turns()
    pair.cancel()
    await asyncio.wait([pair])
    # The traceback of the cancellation refers to the tasks: asyncio logs when they are collected.
    ended = pair.cancelled()
    del pair
    gc.collect()

    assert (True, []) == (ended, logged)


async def test_blocking_call_on_a_thread_leaves_the_loop_free():
    """The loop runs while a thread blocks."""
    gate = threading.Event()
    blocked = asyncio.create_task(in_thread(gate.wait, 30))
    await turns()
    gate.set()

    assert await blocked


async def test_finishing_work_that_fails_after_the_cancellation_is_its_cause(logged):
    """The cancellation is raised with the error as its cause."""
    error = KeyError("failed")
    call = Call(error=error)
    task = asyncio.create_task(finish(call))
    await call.begun.wait()
    task.cancel()
    await turns()
    call.let_go.set()

    with pytest.raises(asyncio.CancelledError) as caught:
        await task
    cause = caught.value.__cause__
    del task, caught
    gc.collect()
    assert error is cause
    assert [] == logged


async def test_finishing_work_that_cancels_itself_is_cancelled():
    """It has no result."""
    call = Call(error=asyncio.CancelledError())
    call.let_go.set()

    with pytest.raises(asyncio.CancelledError):
        await finish(call)


async def test_timeout_around_finishing_work_raises_timeout_error():
    """Waiting after the cancellation does not confuse asyncio's own scopes."""
    call = Call("taken")

    async def limited():
        async with asyncio.timeout(0):
            await finish(call)

    task = asyncio.create_task(limited())
    await call.begun.wait()
    await turns()
    call.let_go.set()

    with pytest.raises(TimeoutError):
        await task
    assert ("done",) == call.ending


async def test_finishing_work_when_cancelled_is_finished():
    """A credit that has begun is completed."""
    call = Call()
    task = asyncio.create_task(finish(call))
    await call.begun.wait()
    for _ in range(3):
        task.cancel()
        await turns()
    call.let_go.set()

    with pytest.raises(asyncio.CancelledError):
        await task
    assert ("done",) == call.ending


@pytest.mark.parametrize("run", [finish, finish_in_place])
def test_loop_that_shuts_down_waits_for_lasting_work(run):
    """Shutdown cancels every task. The call belongs to none of them and is completed, then its caller is cancelled."""
    seen = []

    async def main():
        call = Call("done")
        task = asyncio.create_task(run(call))
        await call.begun.wait()
        seen.extend((call, task))
        asyncio.get_running_loop().call_later(0.01, call.let_go.set)

    asyncio.run(main())
    call, task = seen

    assert ("done",) == call.ending
    assert task.cancelled()


async def test_finishing_work_that_never_waits_runs_in_place():
    """Leases on an embedded table settle without a turn of the loop."""
    turn = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().call_soon(turn.set_result, None)

    async def settle():
        return "settled"

    assert "settled" == await finish_in_place(settle)
    assert not turn.done()
    await turn


@pytest.mark.parametrize("cancellations", [1, 3])
async def test_finishing_work_cancelled_while_it_waits_continues_from_there(cancellations):
    """What it did before it waited is not repeated."""
    steps = []
    first, second = asyncio.Event(), asyncio.Event()

    async def settle():
        steps.append("child")
        await first.wait()
        steps.append("parent")
        await asyncio.sleep(0)
        await second.wait()
        steps.append("end")

    task = asyncio.create_task(finish_in_place(settle))
    await turns()
    for _ in range(cancellations):
        task.cancel()
        await turns()
    first.set()
    await turns()
    task.cancel()
    await turns()
    waiting = not task.done()
    second.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert waiting
    assert ["child", "parent", "end"] == steps


async def test_error_of_finishing_work_that_waited_is_raised():
    """The caller gets it as if it had run the call itself."""

    async def failing():
        await asyncio.sleep(0)
        raise KeyError("failed")

    with pytest.raises(KeyError):
        await finish_in_place(failing)


async def test_finishing_work_in_place_keeps_the_context_of_its_caller():
    """Log records of a settlement have the context variables of the request."""
    request = contextvars.ContextVar("request")
    request.set("r-1")

    async def settle():
        await asyncio.sleep(0)
        return request.get()

    assert "r-1" == await finish_in_place(settle)


async def test_both_to_the_end_cancelled_before_they_begin_are_completed():
    """A task that is cancelled before its first step never runs; these calls belong to no task."""
    first, second = Call("one"), Call("two")
    task = asyncio.create_task(Parallel().run_to_end([first, second]))
    await asyncio.sleep(0)
    for one in asyncio.all_tasks() - {asyncio.current_task()}:
        one.cancel()
    first.let_go.set()
    second.let_go.set()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert (("done",), ("done",)) == (first.ending, second.ending)


async def test_both_to_the_end_return_their_results_or_raise_the_first_error():
    """As for two calls that may be cancelled."""
    first, second = Call("one"), Call("two")
    first.let_go.set()
    second.let_go.set()

    async def failing():
        raise KeyError("failed")

    assert ["one", "two"] == await Parallel().run_to_end([first, second])
    with pytest.raises(KeyError):
        await Parallel().run_to_end([failing, first])


class SharedWait:
    """Work that waits for a result of a thread."""

    def __init__(self, gate, within_s):
        self._gate, self._within_s = gate, within_s

    async def __call__(self):
        return await shared(SharedCall(lambda: self._gate.wait(60)).begin(), self._within_s)

    complete = __call__


@pytest.mark.parametrize("run", [finish, finish_in_place])
async def test_finishing_work_that_waits_for_a_shared_result_gets_it(run):
    """A batch waits for new keys if its own have expired, although it belongs to no task."""
    gate = threading.Event()
    task = asyncio.create_task(run(SharedWait(gate, 60)))
    await turns()
    waiting = not task.done()
    gate.set()

    assert (True, True) == (waiting, await task)


@pytest.mark.parametrize("run", [finish, finish_in_place])
async def test_finishing_work_whose_shared_result_is_late_raises_timeout_error(run):
    """Its caller is not cancelled."""
    gate = threading.Event()

    with pytest.raises(TimeoutError, match=r"no result within 0\.01 s"):
        await run(SharedWait(gate, 0.01))
    gate.set()


class Answered:
    """Work that waits for an answer, and records what it was and in which context."""

    def __init__(self):
        self.answer = Answer()
        self.answer.detached = None
        self.found = None

    async def complete(self):
        self.found = (await self.answer, tag.get())


tag = contextvars.ContextVar("tag", default="none")


async def test_work_continues_in_the_call_that_delivers_its_answer():
    """No iteration of the loop lies between, and the work keeps the context of its caller."""
    work = Answered()
    tag.set("caller")
    task = asyncio.create_task(finish(work))
    await turns()
    tag.set("other")

    work.answer.deliver("answer")

    assert ("answer", "caller") == work.found
    await task


async def test_answer_that_is_set_like_any_future_resumes_its_work_once(logged):
    """A connection that is lost sets it so, because its caller must not continue in the middle of that."""
    work = Answered()
    task = asyncio.create_task(finish(work))
    await turns()

    work.answer.set_result("lost")

    assert work.found is None
    await task
    assert ("lost", "none") == work.found
    assert [] == logged


async def test_task_that_waits_for_an_answer_is_resumed_by_the_loop():
    """A step of a task must not run inside another callback."""
    work = Answered()
    task = asyncio.create_task(work.complete())
    await turns()

    work.answer.deliver("answer")

    assert work.found is None
    await task
    assert ("answer", "none") == work.found
