"""Limit the callers of a service by API key: 429 with Retry-After, and streams charged for the tokens they sent.

Run it: python examples/fastapi_service/app.py

Limits are stored in the default SQLite file, which all workers share, or in the store of ZAE_LIMITER_URL.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, Any

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse, StreamingResponse
from pydantic import BaseModel, Field

from zae_limiter import Lease, Limit, RateLimiter, RateLimiterUnavailable, RateLimitExceeded, Repository

RESOURCE = "chat"
LIMITS = [Limit.per_minute("rpm", 10), Limit.per_minute("tpm", 2_000)]
ESTIMATE = 100
TOKENS_A_WORD = 3
# The owner of each key. The entity is the owner, so that no key is ever stored as an entity id.
CALLERS = {"key-of-alice": "alice", "key-of-bob": "bob"}


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[dict[str, RateLimiter]]:
    """Open and close the repository with the service; keep limits that are already stored."""
    async with await Repository.open() as repo:
        if not await repo.get_resource_defaults(RESOURCE):
            await repo.set_resource_defaults(RESOURCE, LIMITS)
        yield {"limiter": RateLimiter(repo)}


app = FastAPI(title="Limited chat", lifespan=lifespan)


def limiter_of(request: Request) -> RateLimiter:
    """Return the limiter that the lifespan opened."""
    limiter: RateLimiter = request.state.limiter
    return limiter


def caller_of(x_api_key: Annotated[str, Header()]) -> str:
    """Return the owner of the API key."""
    if x_api_key not in CALLERS:
        raise HTTPException(401, "no such API key")
    return CALLERS[x_api_key]


Limiter = Annotated[RateLimiter, Depends(limiter_of)]
Caller = Annotated[str, Depends(caller_of)]


async def take(limiter: Limiter, caller: Caller) -> AsyncIterator[Lease]:
    """Take one request and estimated tokens until the response ends; an error gives them back."""
    async with limiter.acquire(caller, RESOURCE, {"rpm": 1, "tpm": ESTIMATE}) as lease:
        yield lease


Taken = Annotated[Lease, Depends(take)]


@app.exception_handler(RateLimitExceeded)
async def too_many(request: Request, exceeded: RateLimitExceeded) -> JSONResponse:
    """Answer 429, with the first second at which a retry is admitted, and every limit in the body."""
    return JSONResponse(exceeded.as_dict(), 429, {"Retry-After": exceeded.retry_after_header})


@app.exception_handler(RateLimiterUnavailable)
async def unavailable(request: Request, error: RateLimiterUnavailable) -> JSONResponse:
    """Answer 503 while the store is unavailable."""
    return JSONResponse({"error": "the rate limiter is unavailable"}, 503, {"Retry-After": "1"})


class Question(BaseModel):
    """The prompt of a caller, and the number of words in the answer."""

    prompt: str
    words: int = Field(default=20, ge=0, le=10_000)


async def model(question: Question) -> AsyncIterator[str]:
    """Simulate a model."""
    for number in range(question.words):
        await asyncio.sleep(0.001)
        yield f"word-{number} "


@app.post("/chat")
async def chat(question: Question, lease: Taken) -> dict[str, Any]:
    """Answer in one piece, and adjust to the actual cost."""
    if not question.prompt:
        raise HTTPException(422, "the prompt is empty")
    words = [word async for word in model(question)]
    await lease.adjust(tpm=TOKENS_A_WORD * len(words) - ESTIMATE)
    return {"answer": "".join(words), "tokens": lease.consumed["tpm"]}


@app.post("/stream")
async def stream(question: Question, lease: Taken) -> StreamingResponse:
    """Answer word by word; the lease ends with the response, and is charged for the words sent."""

    async def answer() -> AsyncIterator[str]:
        used = 0
        try:
            async for word in model(question):
                lease.commit()  # from the first word on, the caller pays, also after a disconnect
                used += TOKENS_A_WORD
                yield word
        finally:
            lease.adjust(tpm=used - ESTIMATE)

    return StreamingResponse(answer(), media_type="text/plain")


@app.get("/limits")
async def limits(limiter: Limiter, caller: Caller) -> dict[str, int]:
    """Return the available tokens of the caller, without taking any."""
    return await limiter.available(caller, RESOURCE)


if __name__ == "__main__":
    import uvicorn

    uvicorn.run("app:app", port=8000)
