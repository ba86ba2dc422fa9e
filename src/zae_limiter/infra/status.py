"""Describe what surrounds a table: its stack, its size, its roles. Blocking."""

from collections.abc import Callable
from typing import Any, TypeVar

from zae_limiter.core.errors import StackOperationError
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.stack import Stack
from zae_limiter.infra.stack_state import StackState, TableFacts

T = TypeVar("T")


def look_around(name: str, clients: Clients) -> dict[str, Any]:
    """Return what AWS reports about a limiter, as fields of its status; None for what it refuses to report."""
    stack = Stack(name, clients)
    return {"name": name, "region": clients.region, **told(_allowed(stack.describe), _allowed(stack.table_facts))}


def told(state: StackState | None, facts: TableFacts | None) -> dict[str, Any]:
    """Return the fields of a status from a stack and its table."""
    outputs = {} if state is None else state.outputs
    return {
        "stack_status": None if state is None else state.status,
        "aggregator_enabled": "AggregatorFunctionName" in outputs,
        "app_role_arn": outputs.get("AppRoleArn"),
        "admin_role_arn": outputs.get("AdminRoleArn"),
        "readonly_role_arn": outputs.get("ReadOnlyRoleArn"),
        "table_status": None if facts is None else facts.status,
        "table_item_count": None if facts is None else facts.item_count,
        "table_size_bytes": None if facts is None else facts.size_bytes,
    }


def _allowed(look: Callable[[], T | None]) -> T | None:
    """Return the result, None if AWS refuses it: an identity that may only acquire has no such permission."""
    try:
        return look()
    except StackOperationError:
        return None
