"""Carries out what the aggregator decides: a generator yields table operations, and is sent their results."""

from typing import TypeVar, assert_never

import zae_limiter.runtime.aio as runtime
from zae_limiter._async.table import Table
from zae_limiter.schema.operations import Delete, Put, Update
from zae_limiter_aggregator.apply import Pause, Read, TableAnswer, TableDialogue, TableRequest, Transaction

T = TypeVar("T")


async def carry_out(table: Table, dialogue: TableDialogue[T]) -> T:
    """Run a dialogue to its end, and return its result."""
    answer: TableAnswer = None
    while True:
        try:
            ask = dialogue.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = await _answer(table, ask)


async def _answer(table: Table, ask: TableRequest) -> TableAnswer:
    """Carry out one yielded operation."""
    match ask:
        case Read(wanted, consistent):
            return await table.batch_get(wanted, consistent=consistent)
        case Transaction(operations, token):
            return await table.transact(operations, token)
        case Put() | Update() | Delete():
            return await table.write(ask)
        case Pause(seconds):
            await runtime.sleep(seconds)
            return None
        case never:
            assert_never(never)
