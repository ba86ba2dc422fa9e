"""What a type checker sees of a limited function. Mypy reads it, and it is never run."""

from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from typing import Any, assert_type

from zae_limiter import Also, Limit, OnUnavailable, RateLimiter, SyncRateLimiter, limited


def opened() -> RateLimiter:
    raise NotImplementedError


def blocking(limiter: SyncRateLimiter) -> None:
    @limited(limiter, "gpt-4", consume={"rpm": 1}, key="user-1", cost=lambda text: {"tpm": len(text)})
    def ask(user: str, /, times: int = 1, *, loud: bool = False) -> str:
        return user * times

    @limited(lambda: limiter, "gpt-4", consume=lambda user: {"tpm": len(user)}, key=lambda user: user)
    def letters(user: str) -> Iterator[str]:
        yield from user

    @limited(limiter, "gpt-4", consume={"rpm": 1}, key="user-1", also=[Also("tool", "search", {"rpm": 1})])
    def search(text: str) -> int:
        return len(text)

    @limited(limiter, "gpt-4", consume={"rpm": 1}, key="u", also=lambda text: [Also(text, "search", {"rpm": 1})])
    def search_by(text: str) -> int:
        return len(text)

    class Model:
        @limited(limiter, "gpt-4", consume={"rpm": 1}, key=lambda self, text: "user-1")
        def ask(self, text: str) -> int:
            return len(text)

    assert_type(ask("user-1", times=2, loud=True), str)
    assert_type(letters("user-1"), Iterator[str])
    assert_type(search("text"), int)
    assert_type(search_by("text"), int)
    assert_type(Model().ask("text"), int)
    ask(7)  # type: ignore[arg-type] # not a str
    ask("user-1", quiet=True)  # type: ignore[call-arg] # no such parameter
    ask(user="user-1")  # type: ignore[call-arg] # by position only
    Model().ask()  # type: ignore[call-arg] # an argument is missing


async def waiting(limiter: RateLimiter) -> None:
    @limited(opened, "gpt-4", consume={"rpm": 1}, key="user-1", limits=[Limit.per_minute("rpm", 1)], on_error="keep")
    async def ask(user: str) -> str:
        return user

    @limited(limiter, "gpt-4", consume={"rpm": 1}, key="user-1", on_unavailable=OnUnavailable.ALLOW)
    async def letters(user: str) -> AsyncIterator[str]:
        yield user

    assert_type(await ask("user-1"), str)
    async for letter in letters("user-1"):
        assert_type(letter, str)
    same: Callable[[str], Coroutine[Any, Any, str]] = ask
    await same(7)  # type: ignore[arg-type] # not a str


def wrong(limiter: SyncRateLimiter) -> None:
    limited(limiter, "gpt-4", consume={"rpm": 1})  # type: ignore[call-arg] # the key is missing
    limited("memory://", "gpt-4", consume={"rpm": 1}, key="user-1")  # type: ignore[arg-type] # not a limiter
    limited(limiter, "gpt-4", consume={"rpm": "1"}, key="user-1")  # type: ignore[dict-item] # not an int
    limited(limiter, "gpt-4", consume={"rpm": 1}, key="user-1", on_error="x")  # type: ignore[arg-type] # no such option
    limited(limiter, "gpt-4", consume={"rpm": 1}, key="user-1", also=["tool"])  # type: ignore[list-item] # not an Also
