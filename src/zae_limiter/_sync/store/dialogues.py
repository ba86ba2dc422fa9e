"""Carries out what the aggregator decides: a generator yields table operations, and is sent their results."""  # generated from _async by tools/mirror.py; do not edit

from typing import TypeVar, assert_never

import zae_limiter.runtime.threads as runtime
from zae_limiter._sync.table import Table
from zae_limiter.schema.operations import Delete, Put, Update
from zae_limiter_aggregator.apply import Pause, Read, TableAnswer, TableDialogue, TableRequest, Transaction

T = TypeVar("T")


def carry_out(table: Table, dialogue: TableDialogue[T]) -> T:
    """Run a dialogue to its end, and return its result."""
    answer: TableAnswer = None
    while True:
        try:
            ask = dialogue.send(answer)
        except StopIteration as end:
            result: T = end.value
            return result
        answer = _answer(table, ask)


def _answer(table: Table, ask: TableRequest) -> TableAnswer:
    """Carry out one yielded operation."""
    match ask:
        case Read(wanted, consistent):
            return table.batch_get(wanted, consistent=consistent)
        case Transaction(operations, token):
            return table.transact(operations, token)
        case Put() | Update() | Delete():
            return table.write(ask)
        case Pause(seconds):
            runtime.sleep(seconds)
            return None
        case never:
            assert_never(never)
