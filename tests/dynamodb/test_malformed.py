"""Malformed answers raise package errors, and the client continues to work with the next answer."""

import json
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.dynamodb.faults import Rewrite
from tests.dynamodb.faulty_table import LIMITS, FaultyTable
from tests.dynamodb.trees import KINDS, tree
from zae_limiter import ValidationError, ZAELimiterError

HUGE = {"rf": {"N": "9" * 6_000}}
BODIES = {
    "not an object": b"5",
    "not JSON": b'{"Item":',
    "no text": b'{"Item":{"PK":{"S":"\xff"}}}',
    "deep": b'{"Item":' * 5_000,
    "a number for a value": b'{"Item":{"PK":5},"Responses":{"t":[{"PK":5}]},"Items":[{"PK":5}],"Attributes":{"PK":5}}',
    "a number for an item": b'{"Item":5,"Responses":{"t":[5]},"Items":[5],"Attributes":5}',
    "a number for all": b'{"Item":5,"Responses":5,"Items":5,"Attributes":5,"UnprocessedKeys":5}',
    "no members": b'{"Item":{"x":{}},"Responses":{"t":[{"x":{}}]},"Items":[{"x":{}}],"Attributes":{}}',
    "a fraction": b'{"Item":{"rf":{"N":1.5}},"Responses":{"t":[{"rf":{"N":1.5}}]},"Items":[{}]}',
    "a huge number": json.dumps(
        {"Item": HUGE, "Attributes": HUGE, "Responses": {"t": [HUGE]}, "Items": [HUGE]}
    ).encode(),
}


@pytest.fixture(scope="module", params=KINDS)
def faulty(request: pytest.FixtureRequest) -> Iterator[FaultyTable]:
    with ExitStack() as stack:
        yield FaultyTable(request.param, stack)


def verbs(limiter: Any, entity: str) -> list[Any]:
    """Return calls that together receive every kind of answer."""

    def take() -> None:
        with limiter.acquire(entity, "gpt-4", {"rpm": 1}) as lease:
            lease.adjust(rpm=1)

    return [
        take,
        take,
        lambda: limiter.available(entity, "gpt-4"),
        lambda: limiter.get_buckets(entity),
        lambda: limiter.get_entity(entity),
        lambda: limiter.set_limits(entity, LIMITS),
        lambda: limiter.list_namespaces(),
    ]


@pytest.mark.parametrize("body", BODIES.values(), ids=BODIES)
def test_a_malformed_answer_raises_a_package_error(faulty: FaultyTable, body: bytes) -> None:
    """This holds for every call, and the same client then works with correct answers."""
    actor = faulty.actor()
    limiter = faulty.new_limiter(30.0)
    for number in range(len(verbs(limiter, ""))):
        faulty.proxy.always(Rewrite(lambda _: body))
        try:
            verbs(limiter, f"{actor.entity_id}-{number}")[number]()
        except ZAELimiterError as error:
            raised: object = error
        else:
            raised = None
        faulty.clear_faults()

        assert raised is None or str(raised)
        verbs(limiter, f"{actor.entity_id}-{number}")[number]()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "url",
    [
        "sqlite:///\udc80.db",
        "sqlite:///\ud800/limits.db",
        "dynamodb://\ud800",
        "dynamodb://my-app?region=\ud800",
        "dynamodb://my-app?region=us-east-1&endpoint_url=http://\udc80",
    ],
    ids=ascii,
)
def test_an_invalid_url_leaves_no_file_thread_or_descriptor(
    kind: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opening fails without side effects."""
    monkeypatch.chdir(tmp_path)
    with tree(kind) as opened:
        before = threading.active_count(), len(os.listdir("/proc/self/fd"))
        with pytest.raises(ValidationError, match="not valid Unicode"):
            opened.open(url)

        assert before == (threading.active_count(), len(os.listdir("/proc/self/fd")))
    assert [] == list(tmp_path.iterdir())
