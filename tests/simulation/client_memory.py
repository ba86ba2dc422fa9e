"""Measure the memory of what one client has cached."""

import gc
import sys
from types import BuiltinFunctionType, FunctionType, MethodType, ModuleType

from zae_limiter import RateLimiter

_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType, MethodType)
"""Code, which all clients of a process have in common."""


def cached_buckets(limiter: RateLimiter) -> int:
    """Return the number of buckets that a client has cached."""
    return len(limiter._client.caches.buckets)


def cached_bytes(limiter: RateLimiter) -> int:
    """Return the bytes of all objects that the cached buckets of a client consist of, shared ones counted once."""
    pending: list[object] = [limiter._client.caches.buckets]
    seen: set[int] = set()
    total = 0
    while pending:
        found = pending.pop()
        if id(found) in seen or isinstance(found, _SHARED):
            continue
        seen.add(id(found))
        total += sys.getsizeof(found)
        pending += gc.get_referents(found)
    return total
