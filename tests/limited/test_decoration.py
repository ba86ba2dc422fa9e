"""A limited function looks like the function, and a mistake is a named error as early as it is known."""

import inspect
import subprocess
import sys

import pytest

from zae_limiter import Also, Limit, ValidationError, limited

ALWAYS = {"consume": {"rpm": 1}, "key": "user-1"}


def function(user: str, *, times: int = 1) -> str:
    """Answer."""
    return user * times


async def coroutine_function(user: str) -> str:
    """Answer later."""
    return user


def generator(user: str):
    """Answer in parts."""
    yield user


async def async_generator(user: str):
    """Answer in parts, later."""
    yield user


class TestLooks:
    """Tools and frameworks see the function itself."""

    @pytest.mark.parametrize("one", [function, generator], ids=lambda one: one.__name__)
    def test_sync_function_keeps_name_signature_and_kind(self, sync_limiter, one):
        """Frameworks inject arguments by the signature."""
        same_in_both(one, limited(sync_limiter, "gpt-4", **ALWAYS)(one))

    @pytest.mark.parametrize("one", [coroutine_function, async_generator], ids=lambda one: one.__name__)
    def test_async_function_keeps_name_signature_and_kind(self, limiter, one):
        """Frameworks decide by the kind how they call it."""
        same_in_both(one, limited(limiter, "gpt-4", **ALWAYS)(one))

    def test_attributes_of_the_function_are_kept(self, sync_limiter):
        """As other decorators set them."""

        def tagged():
            pass

        tagged.tag = "text"

        assert "text" == limited(sync_limiter, "gpt-4", **ALWAYS)(tagged).tag


def same_in_both(one, decorated):
    assert one is decorated.__wrapped__
    assert (one.__name__, one.__qualname__, one.__doc__, one.__module__) == (
        decorated.__name__,
        decorated.__qualname__,
        decorated.__doc__,
        decorated.__module__,
    )
    assert inspect.signature(one) == inspect.signature(decorated)
    assert one.__annotations__ == decorated.__annotations__
    for is_kind in (
        inspect.iscoroutinefunction,
        inspect.isgeneratorfunction,
        inspect.isasyncgenfunction,
        inspect.isfunction,
    ):
        assert is_kind(one) == is_kind(decorated)


class TestWrongLimiter:
    """A function that waits needs an async limiter, and any other a sync one."""

    @pytest.mark.parametrize("one", [coroutine_function, async_generator], ids=lambda one: one.__name__)
    def test_async_function_with_a_sync_limiter_is_a_named_error(self, sync_limiter, one):
        """A sync limiter would block the event loop."""
        with pytest.raises(ValidationError, match=f"is sync, and {one.__name__} is async: pass a RateLimiter"):
            limited(sync_limiter, "gpt-4", **ALWAYS)(one)

    @pytest.mark.parametrize("one", [function, generator], ids=lambda one: one.__name__)
    async def test_sync_function_with_an_async_limiter_is_a_named_error(self, limiter, one):
        """It cannot await."""
        with pytest.raises(ValidationError, match=f"is async, and {one.__name__} is not: pass a SyncRateLimiter"):
            limited(limiter, "gpt-4", **ALWAYS)(one)

    async def test_wrong_limiter_from_a_function_is_a_named_error_of_the_call(self, limiter, sync_limiter):
        """It is not known before."""
        with pytest.raises(ValidationError, match="pass a RateLimiter"):
            await limited(lambda: sync_limiter, "gpt-4", **ALWAYS)(coroutine_function)("user-1")
        with pytest.raises(ValidationError, match="pass a RateLimiter"):
            await anext(limited(lambda: sync_limiter, "gpt-4", **ALWAYS)(async_generator)("user-1"))
        with pytest.raises(ValidationError, match="pass a SyncRateLimiter"):
            limited(lambda: limiter, "gpt-4", **ALWAYS)(function)("user-1")
        with pytest.raises(ValidationError, match="pass a SyncRateLimiter"):
            next(limited(lambda: limiter, "gpt-4", **ALWAYS)(generator)("user-1"))

    @pytest.mark.parametrize("given", [None, "memory://", 7])
    def test_limiter_that_is_something_else_is_a_named_error(self, given):
        """At the decoration, or at the call."""
        with pytest.raises(ValidationError, match="must be a RateLimiter, a SyncRateLimiter"):
            limited(given, "gpt-4", **ALWAYS)(function)
        with pytest.raises(ValidationError, match="must be a RateLimiter, a SyncRateLimiter"):
            limited(lambda: given, "gpt-4", **ALWAYS)(function)("user-1")

    def test_coroutine_function_that_returns_the_limiter_is_a_named_error(self):
        """It would have to be awaited at each call."""
        with pytest.raises(ValidationError, match=r"limiter.*must not be a coroutine function"):
            limited(coroutine_function, "gpt-4", **ALWAYS)(function)


class TestWrongArguments:
    """They are known when the module is imported."""

    @pytest.mark.parametrize(
        ("field", "wrong"),
        [
            *[("consume", wrong) for wrong in ({}, None, "rpm", ["rpm"], {"rpm": -1}, {"r p": 1}, {"rpm": 1.5})],
            *[("key", wrong) for wrong in (None, "", "-user", 7)],
            *[("cost", wrong) for wrong in ({"rpm": 1}, "rpm")],
            *[("limits", wrong) for wrong in (7, ["rpm"], [])],
            *[("also", wrong) for wrong in (7, ["tool"], [("tool", "search", {"rpm": 1})])],
            *[("also", [Also(*wrong)]) for wrong in (("", "search", {"rpm": 1}), ("tool", "#", {"rpm": 1}))],
            ("on_error", "charge"),
            ("on_unavailable", "wait"),
            *[(name, coroutine_function) for name in ("consume", "key", "cost", "also")],
        ],
    )
    def test_wrong_argument_is_a_named_error_at_the_decoration(self, sync_limiter, field, wrong):
        """Not at the first call, which may be in production."""
        with pytest.raises(ValidationError, match=field if wrong != {"r p": 1} else "limit name"):
            limited(sync_limiter, "gpt-4", **{**ALWAYS, field: wrong})

    def test_wrong_resource_is_a_named_error_at_the_decoration(self, sync_limiter):
        """A function in its place means that the arguments are missing."""
        with pytest.raises(ValidationError, match="resource"):
            limited(sync_limiter, function, **ALWAYS)

    @pytest.mark.parametrize("wrong", [{}, {"rpm": -1}, {"rpm": 1.5}])
    def test_wrong_amount_in_also_is_a_named_error_at_the_decoration(self, sync_limiter, wrong):
        """As in ``consume``."""
        with pytest.raises(ValidationError, match="consume"):
            limited(sync_limiter, "gpt-4", **ALWAYS, also=[Also("tool", "search", wrong)])

    def test_missing_key_is_an_error_at_the_decoration(self, sync_limiter):
        """Python names the argument."""
        with pytest.raises(TypeError, match="'key'"):
            limited(sync_limiter, "gpt-4", consume={"rpm": 1})

    @pytest.mark.parametrize("kind", [staticmethod, classmethod])
    def test_decorator_above_a_method_decorator_is_a_named_error(self, sync_limiter, kind):
        """Such an object is bound by the class, and not called."""
        with pytest.raises(ValidationError, match=f"write @{kind.__name__} above @limited"):
            limited(sync_limiter, "gpt-4", **ALWAYS)(kind(function))

    @pytest.mark.parametrize("wrong", [None, "text", Limit])
    def test_decorated_object_that_is_no_function_is_a_named_error(self, sync_limiter, wrong):
        """A class would lose its type."""
        with pytest.raises(ValidationError, match="must be a function"):
            limited(sync_limiter, "gpt-4", **ALWAYS)(wrong)


@pytest.mark.parametrize(("loaded", "unneeded"), [("RateLimiter", "_sync"), ("SyncRateLimiter", "_async")])
def test_decorator_loads_only_the_tree_of_its_limiter(loaded, unneeded):
    """The other tree would make every process slower to start."""
    script = (
        f"import sys; from zae_limiter import limited, {loaded}\n"
        f"print([name for name in sys.modules if name.startswith('zae_limiter.{unneeded}')])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)

    assert "[]\n" == done.stdout
