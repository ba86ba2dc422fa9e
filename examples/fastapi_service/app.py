"""A chat service that limits requests and tokens by API key, and charges a stream for the words that it sent.

Run it: python examples/fastapi_service/app.py

Limits are stored in the default SQLite file, which all workers share, or in the store of ZAE_LIMITER_URL.
"""

import asyncio
from collections.abc import AsyncIterator
from typing import Annotated

from fastapi import Depends, FastAPI, Header, HTTPException
from fastapi.responses import StreamingResponse
from pydantic import BaseModel, Field

from zae_limiter.web.fastapi import Ask, Lease, RateLimitMiddleware, Taken

ESTIMATE = 100
TOKENS_A_WORD = 3
# The owner of each key. The entity is the owner, so that no key is ever stored as an entity id.
CALLERS = {"key-of-alice": "alice", "key-of-bob": "bob"}


class Question(BaseModel):
    """The prompt of a caller, and the number of words in the answer."""

    prompt: str = Field(min_length=1)
    words: int = Field(default=20, ge=0, le=10_000)


async def model(question: Question) -> AsyncIterator[str]:
    """Simulate a model."""
    for number in range(question.words):
        await asyncio.sleep(0.001)
        yield f"word-{number} "


async def caller_of(x_api_key: Annotated[str, Header()]) -> str:
    """Return the owner of the API key."""
    if x_api_key not in CALLERS:
        raise HTTPException(401, "no such API key")
    return CALLERS[x_api_key]


# From here on: limits, headers, 429, a stream, and clients that disconnect.
async def estimate(question: Question, caller: Annotated[str, Depends(caller_of)]) -> Ask:
    """Return what a question takes: one request, and estimated tokens."""
    return Ask(caller, "chat", {"rpm": 1, "tpm": ESTIMATE})


app = FastAPI(title="Limited chat")
app.add_middleware(RateLimitMiddleware)


@app.post("/chat", response_class=StreamingResponse)
async def chat(question: Question, lease: Annotated[Lease, Taken(estimate)]) -> AsyncIterator[str]:
    """Answer word by word, and charge the words that were sent."""
    used = 0
    try:
        async for word in model(question):
            used += TOKENS_A_WORD
            yield word
    finally:
        lease.adjust(tpm=used - ESTIMATE)  # also after a disconnect


if __name__ == "__main__":
    import uvicorn

    uvicorn.run("app:app", port=8000)
