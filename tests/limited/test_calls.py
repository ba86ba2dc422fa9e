"""A limited function takes before it runs, and settles what it has actually used."""

import asyncio
from functools import partial

import pytest

from zae_limiter import Also, Limit, RateLimiter, RateLimitExceeded, Repository, ValidationError, limited


def settle_from(answer):
    return {"tpm": answer}


class TestFunctions:
    """With a SyncRateLimiter."""

    def test_call_takes_before_the_function_runs(self, sync_limiter):
        """The function runs while the lease is held."""

        @limited(sync_limiter, "gpt-4", consume={"rpm": 1, "tpm": 500}, key="user-1")
        def ask():
            return sync_limiter.available("user-1", "gpt-4")

        assert {"rpm": 9, "tpm": 500} == ask()

    def test_rejected_call_does_not_run_the_function(self, sync_limiter):
        """The error is that of acquire."""
        runs = []

        @limited(sync_limiter, "gpt-4", consume={"rpm": 10}, key="user-1")
        def ask():
            runs.append(1)

        ask()

        with pytest.raises(RateLimitExceeded):
            ask()
        assert [1] == runs

    def test_cost_of_the_result_replaces_what_was_taken(self, sync_limiter):
        """A limit without a cost keeps what was taken."""

        @limited(sync_limiter, "gpt-4", consume={"rpm": 1, "tpm": 500}, key="user-1", cost=settle_from)
        def ask(tokens):
            return tokens

        assert 730 == ask(730)
        assert {"rpm": 9, "tpm": 270} == sync_limiter.available("user-1", "gpt-4")

    def test_cost_below_what_was_taken_is_given_back(self, sync_limiter):
        """The difference is available again."""

        @limited(sync_limiter, "gpt-4", consume={"tpm": 500}, key="user-1", cost=settle_from)
        def ask(tokens):
            return tokens

        ask(tokens=20)

        assert 980 == sync_limiter.available("user-1", "gpt-4")["tpm"]

    def test_cost_of_a_limit_that_was_not_taken_is_charged(self, sync_limiter):
        """Every limit in force can be settled."""

        @limited(sync_limiter, "gpt-4", consume={"rpm": 1}, key="user-1", cost=settle_from)
        def ask():
            return 300

        ask()

        assert {"rpm": 9, "tpm": 700} == sync_limiter.available("user-1", "gpt-4")

    def test_cost_none_keeps_what_was_taken(self, sync_limiter):
        """The estimate is the cost."""

        @limited(sync_limiter, "gpt-4", consume={"tpm": 500}, key="user-1", cost=lambda answer: None)
        def ask():
            return "text"

        ask()

        assert 500 == sync_limiter.available("user-1", "gpt-4")["tpm"]

    def test_cost_that_fails_is_raised_and_charges_what_was_taken(self, sync_limiter):
        """The function has run, so the work has a cost."""

        @limited(sync_limiter, "gpt-4", consume={"tpm": 500}, key="user-1", cost=lambda answer: answer["usage"])
        def ask():
            return {}

        with pytest.raises(KeyError):
            ask()
        assert 500 == sync_limiter.available("user-1", "gpt-4")["tpm"]

    def test_cost_of_an_unknown_limit_is_a_named_error(self, sync_limiter):
        """It names the limits in force."""

        @limited(sync_limiter, "gpt-4", consume={"tpm": 500}, key="user-1", cost=lambda answer: {"spend": 1})
        def ask():
            return {}

        with pytest.raises(ValidationError, match="rpm, tpm"):
            ask()

    def test_function_that_raises_gives_back(self, sync_limiter):
        """Nothing was used."""

        @limited(sync_limiter, "gpt-4", consume={"tpm": 500}, key="user-1")
        def ask():
            raise OSError

        with pytest.raises(OSError):  # noqa: PT011 - it has no text
            ask()
        assert 1000 == sync_limiter.available("user-1", "gpt-4")["tpm"]

    def test_function_that_raises_with_on_error_keep_is_charged(self, sync_limiter):
        """The attempt has a cost."""

        @limited(sync_limiter, "gpt-4", consume={"tpm": 500}, key="user-1", on_error="keep")
        def ask():
            raise OSError

        with pytest.raises(OSError):  # noqa: PT011 - it has no text
            ask()
        assert 500 == sync_limiter.available("user-1", "gpt-4")["tpm"]

    def test_limits_of_the_decorator_replace_the_stored_ones(self, sync_limiter):
        """As with acquire."""

        @limited(sync_limiter, "gpt-4", consume={"rpm": 1}, key="user-1", limits=[Limit.per_minute("rpm", 1)])
        def ask():
            pass

        ask()

        with pytest.raises(RateLimitExceeded):
            ask()

    def test_limiter_from_a_function_is_looked_up_at_each_call(self, sync_limiter):
        """A limiter is opened later than decorators run."""
        opened = []

        @limited(lambda: opened[-1], "gpt-4", consume={"rpm": 1}, key="user-1")
        def ask():
            return "text"

        opened.append(sync_limiter)

        assert "text" == ask()
        assert 9 == sync_limiter.available("user-1", "gpt-4")["rpm"]


def hidden(function):
    """Wrap a coroutine function as careless decorators do."""
    return lambda *args: function(*args)


class AsyncCallable:
    async def __call__(self):
        raise AssertionError("it never runs")


class TestHiddenCoroutines:
    """A coroutine that a sync function returns would run after its lease."""

    @pytest.mark.parametrize("made", [AsyncCallable, lambda: hidden(AsyncCallable())], ids=["object", "wrapper"])
    def test_coroutine_that_a_sync_function_returns_is_a_named_error_and_gives_back(self, sync_limiter, made):
        """It is closed, so that Python does not warn that it was never awaited."""
        call = limited(sync_limiter, "gpt-4", consume={"rpm": 1}, key="user-1")(made())

        with pytest.raises(ValidationError, match="has returned a coroutine"):
            call()

        assert 10 == sync_limiter.available("user-1", "gpt-4")["rpm"]


class TestKeys:
    """Entity and amounts can depend on the arguments of the call."""

    def test_key_and_consume_get_the_arguments_of_the_call(self, sync_limiter):
        """By position and by name, as the function does."""

        @limited(
            sync_limiter,
            "gpt-4",
            consume=lambda user, text, times=1: {"tpm": len(text) * times},
            key=lambda user, text, times=1: user,
        )
        def ask(user, text, times=1):
            return text

        ask("user-1", "four", times=3)

        assert 988 == sync_limiter.available("user-1", "gpt-4")["tpm"]
        assert 1000 == sync_limiter.available("user-2", "gpt-4")["tpm"]

    def test_key_of_a_method_gets_the_instance(self, sync_limiter):
        """As the first argument."""

        class Model:
            user = "user-7"

            @limited(sync_limiter, "gpt-4", consume={"rpm": 1}, key=lambda self, text: self.user)
            def ask(self, text):
                return text

            @staticmethod
            @limited(sync_limiter, "gpt-4", consume={"rpm": 1}, key="user-8")
            def count(text):
                return len(text)

            @classmethod
            @limited(sync_limiter, "gpt-4", consume={"rpm": 1}, key=lambda cls: cls.user)
            def named(cls):
                return cls.__name__

        assert ("text", 4, "Model") == (Model().ask("text"), Model.count("text"), Model.named())
        assert 8 == sync_limiter.available("user-7", "gpt-4")["rpm"]
        assert 9 == sync_limiter.available("user-8", "gpt-4")["rpm"]

    def test_key_can_be_a_partial(self, sync_limiter):
        """Any callable will do."""

        def in_team(team, user):
            return f"{team}/{user}"

        @limited(sync_limiter, "gpt-4", consume={"rpm": 1}, key=partial(in_team, "team-a"))
        def ask(user):
            return user

        ask("user-1")

        assert 9 == sync_limiter.available("team-a/user-1", "gpt-4")["rpm"]

    def test_invalid_key_of_a_call_is_a_named_error(self, sync_limiter):
        """It came with the call, so the call raises it."""

        @limited(sync_limiter, "gpt-4", consume={"rpm": 1}, key=lambda user: user)
        def ask(user):
            return user

        with pytest.raises(ValidationError, match="entity_id"):
            ask("")

    def test_nested_decorators_take_from_both(self, sync_limiter):
        """If the inner one rejects, the outer one gives back."""

        @limited(sync_limiter, "gateway", consume={"rpm": 1}, key="user-1")
        @limited(sync_limiter, "gpt-4", consume={"tpm": 600}, key="user-1", cost=settle_from)
        def ask():
            return 600

        ask()
        with pytest.raises(RateLimitExceeded):
            ask()

        assert 9 == sync_limiter.available("user-1", "gateway")["rpm"]
        assert 400 == sync_limiter.available("user-1", "gpt-4")["tpm"]

    def test_partial_of_a_function_can_be_decorated(self, sync_limiter):
        """It has no name of its own."""
        ask = limited(sync_limiter, "gpt-4", consume={"rpm": 1}, key="user-1")(partial(max, 3))

        assert 7 == ask(7)
        assert 9 == sync_limiter.available("user-1", "gpt-4")["rpm"]


class TestCoroutineFunctions:
    """With a RateLimiter."""

    async def test_coroutine_takes_and_settles(self, limiter):
        """As a function does."""

        @limited(lambda: limiter, "gpt-4", consume={"rpm": 1, "tpm": 500}, key=lambda user: user, cost=settle_from)
        async def ask(user):
            assert {"rpm": 9, "tpm": 500} == await limiter.available(user, "gpt-4")
            return 730

        assert 730 == await ask("user-1")
        assert {"rpm": 9, "tpm": 270} == await limiter.available("user-1", "gpt-4")

    async def test_call_that_is_not_awaited_takes_nothing(self, limiter):
        """The coroutine takes when it runs."""

        @limited(limiter, "gpt-4", consume={"rpm": 1}, key="user-1")
        async def ask():
            pass

        ask().close()

        assert 10 == (await limiter.available("user-1", "gpt-4"))["rpm"]

    async def test_coroutine_that_raises_gives_back(self, limiter):
        """Nothing was used."""

        @limited(limiter, "gpt-4", consume={"tpm": 500}, key="user-1")
        async def ask():
            raise OSError

        with pytest.raises(OSError):  # noqa: PT011 - it has no text
            await ask()
        assert 1000 == (await limiter.available("user-1", "gpt-4"))["tpm"]

    @pytest.mark.parametrize(("on_error", "left"), [("give_back", 1000), ("keep", 500)])
    async def test_cancelled_coroutine_follows_on_error(self, limiter, on_error, left):
        """A cancellation is a failure of the call."""
        started = asyncio.Event()

        @limited(limiter, "gpt-4", consume={"tpm": 500}, key="user-1", on_error=on_error)
        async def ask():
            started.set()
            await asyncio.Event().wait()

        task = asyncio.create_task(ask())
        await started.wait()
        task.cancel()

        with pytest.raises(asyncio.CancelledError):
            await task
        assert left == (await limiter.available("user-1", "gpt-4"))["tpm"]

    async def test_method_that_is_a_coroutine_function_is_bound(self, limiter):
        """As any method."""

        class Model:
            @limited(limiter, "gpt-4", consume={"rpm": 1}, key=lambda self, user: user)
            async def ask(self, user):
                return self, user

        model = Model()

        assert (model, "user-1") == await model.ask("user-1")


class TestSeveralEntities:
    """``also`` names other entities and resources, all or none."""

    tool = Also("tool", "search", {"rpm": 4})

    def test_call_takes_from_other_entities_too(self, sync_limiter):
        """``cost`` settles what the call itself takes."""

        @limited(sync_limiter, "gpt-4", consume={"tpm": 500}, key="user-1", cost=settle_from, also=[self.tool])
        def ask(tokens):
            return tokens

        ask(730)

        assert {"rpm": 10, "tpm": 270} == sync_limiter.available("user-1", "gpt-4")
        assert {"rpm": 6, "tpm": 1000} == sync_limiter.available("tool", "search")

    async def test_call_that_another_entity_rejects_takes_nothing(self, limiter):
        """The function does not run."""
        runs = []

        @limited(limiter, "gpt-4", consume={"rpm": 1}, key="user-1", also=[self.tool])
        async def ask():
            runs.append(1)

        await ask()
        await ask()
        with pytest.raises(RateLimitExceeded):
            await ask()

        assert [1, 1] == runs
        assert 8 == (await limiter.available("user-1", "gpt-4"))["rpm"]
        assert 2 == (await limiter.available("tool", "search"))["rpm"]

    def test_other_entities_can_depend_on_the_arguments(self, sync_limiter):
        """A call without any is a call of one entity."""

        @limited(
            sync_limiter,
            "gpt-4",
            consume={"rpm": 1},
            key=lambda user, tools: user,
            also=lambda user, tools: [Also(tool, "search", {"rpm": 2}) for tool in tools],
        )
        def ask(user, tools):
            return user

        ask("user-1", [])
        ask("user-1", ["tool-1", "tool-2"])

        assert [8, 8, 8] == [
            sync_limiter.available(entity, resource)["rpm"]
            for entity, resource in (("user-1", "gpt-4"), ("tool-1", "search"), ("tool-2", "search"))
        ]

    def test_function_that_raises_gives_back_to_all(self, sync_limiter):
        """Unless the rule keeps."""

        @limited(sync_limiter, "gpt-4", consume={"rpm": 1}, key="user-1", also=[self.tool])
        def fail():
            raise KeyError

        with pytest.raises(KeyError):
            fail()

        assert 10 == sync_limiter.available("user-1", "gpt-4")["rpm"] == sync_limiter.available("tool", "search")["rpm"]

    def test_function_that_returns_something_else_is_a_named_error_of_the_call(self, sync_limiter):
        """It is not known before."""
        ask = limited(sync_limiter, "gpt-4", consume={"rpm": 1}, key="user-1", also=lambda: ["tool"])(lambda: None)

        with pytest.raises(ValidationError, match="also"):
            ask()

    async def test_generator_holds_all_until_its_end(self, limiter):
        """One lease for the whole iteration."""

        @limited(limiter, "gpt-4", consume={"rpm": 1}, key="user-1", also=[self.tool])
        async def words():
            yield (await limiter.available("tool", "search"))["rpm"]

        assert [6] == [word async for word in words()]
        assert 6 == (await limiter.available("tool", "search"))["rpm"]


async def test_call_with_max_wait_waits_for_its_tokens():
    """A call whose tokens come in time is not rejected, and one that would wait longer is."""
    async with await Repository.open("memory://") as repo:
        await repo.set_system_defaults([Limit.per_second("rps", 20)])
        limiter = RateLimiter(repo)

        @limited(limiter, "api", consume={"rps": 20}, key="user-1", max_wait=30, priority=1)
        async def call():
            return "done"

        @limited(limiter, "api", consume={"rps": 20}, key="user-1", max_wait=0.01)
        async def impatient():
            return "done"

        assert ["done", "done"] == [await call(), await call()]
        with pytest.raises(RateLimitExceeded) as caught:
            await impatient()
        assert 1 == caught.value.position


def test_decorator_with_invalid_wait_is_refused():
    """The wait is checked when the function is decorated."""
    with pytest.raises(ValidationError, match="max_wait"):
        limited(lambda: None, "api", consume={"rps": 1}, key="user-1", max_wait=-1)
