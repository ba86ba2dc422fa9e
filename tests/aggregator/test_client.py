"""Requests of the aggregator on real engines through botocore, with lost answers."""

import functools
import ssl
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count as numbers_from
from random import getrandbits
from typing import Any
from urllib.parse import urlsplit

import botocore.session
import pytest
from botocore.config import Config

from tests.aggregator.simulated_table import BUCKETS, change, namespace
from tests.dynamodb.engines import ENGINES, EngineAbsentError, fresh_table_name, running
from tests.dynamodb.faults import Drop, Exchange, Fault, Misdated, conflict, server_error, throttled
from tests.dynamodb.proxy import Proxy
from tests.many_shards import grown
from tests.one_bucket import NOON, at, stored
from zae_limiter.core.errors import InfrastructureNotFoundError, RateLimiterUnavailable, ValidationError
from zae_limiter.core.limit import Limit
from zae_limiter.core.outcome import Applied, Cancelled, Committed, Missing, Refused, Throttled, Unavailable
from zae_limiter.schema.operations import Check, Delete, Equals, ItemAbsent, ItemExists, Key, Put, Update
from zae_limiter.tables.dynamodb.json import loads
from zae_limiter.tables.dynamodb.requests import Calls
from zae_limiter.tables.dynamodb.signing import Credentials, Endpoint
from zae_limiter_aggregator.apply import (
    ApplyContext,
    Pause,
    Read,
    TableAnswer,
    TableDialogue,
    TableRequest,
    Transaction,
    count,
    merge,
    split,
)
from zae_limiter_aggregator.client import AggregatorTable
from zae_limiter_aggregator.plan import Merge, Rules, Split, accounts_of, groups
from zae_limiter_aggregator.transport import Carried, Direct
from zae_limiter_aggregator.write_rates import Watch

KEY = Key("part", "sort")
ITEM = {"PK": "part", "SK": "sort", "number": 5, "text": "ü", "flag": True, "nothing": None, "list": [1, "a"]}
SNAPSHOT = Key(f"{BUCKETS[0].namespace_id}/ENTITY#user-1", "#USAGE#gpt-4#2024-01")


@functools.cache
def client(url: str) -> Any:
    """Return a botocore client."""
    return botocore.session.Session().create_client(
        "dynamodb",
        config=Config(retries={"total_max_attempts": 1}),
        endpoint_url=url,
        region_name="us-east-1",
        aws_access_key_id="engine",
        aws_secret_access_key="secret",
    )


def new_table(url: str) -> str:
    name = fresh_table_name()
    client(url).create_table(**loads(Calls(name).create_table().body))
    return name


def direct(url: str) -> Direct:
    parts = urlsplit(url)
    endpoint = Endpoint("http", parts.hostname or "", parts.port or 80, "/", "us-east-1")
    return Direct(endpoint, lambda: Credentials("engine", "secret"), ssl.create_default_context)


@contextmanager
def table_by(kind: str, url: str, name: str) -> Iterator[AggregatorTable]:
    """Return a table that uses one kind of transport."""
    caller = direct(url) if kind == "direct" else Carried(client(url))
    yield AggregatorTable(caller, name, sleep=lambda seconds: None)
    if isinstance(caller, Direct):
        caller.close()


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest) -> str:
    """The URL of every installed engine."""
    try:
        return running(request.param).url
    except EngineAbsentError as absent:
        pytest.skip(str(absent))


@pytest.fixture(params=["direct", "carried"])
def table(request: pytest.FixtureRequest, url: str) -> Iterator[AggregatorTable]:
    """A new table, with each kind of transport."""
    with table_by(request.param, url, new_table(url)) as made:
        yield made


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A fault proxy in front of the default engine."""
    with Proxy(running().url) as started:
        yield started


def always() -> bool:
    return True


def ask(table: AggregatorTable, asked: TableRequest) -> Any:
    """Return the answer to one request."""

    def dialogue() -> TableDialogue[TableAnswer]:
        answer: TableAnswer = yield asked
        return answer

    return table.run(dialogue(), always)


def token() -> str:
    return f"test-{getrandbits(60)}"


def test_a_batch_get_returns_items_in_the_order_of_its_keys(table: AggregatorTable):
    """A missing item is None, and a repeated key is returned twice."""
    assert Applied(ITEM) == ask(table, Put(ITEM))

    found = ask(table, Read((Key("no", "no"), KEY, KEY), True))
    assert [None, ITEM, ITEM] == [None if item is None else dict(item) for item in found]


def test_a_write_returns_the_stored_item(table: AggregatorTable):
    """The item is current, whether or not the write was applied."""
    ask(table, Put(ITEM))
    added = ask(table, Update(KEY, add={"number": 2}, set={"text": "b"}, when=(Equals("number", 5),)))
    refused = ask(table, Update(KEY, add={"number": 2}, when=(Equals("number", 5),)))

    assert (7, "b") == (added.new["number"], added.new["text"])
    assert isinstance(refused, Refused)
    assert 7 == refused.old["number"]
    assert Missing() == ask(table, Update(Key("no", "no"), add={"number": 2}, when=(ItemExists(),)))
    assert Applied({}) == ask(table, Delete(KEY))


def test_a_transaction_is_all_or_nothing(table: AggregatorTable):
    """A refused transaction returns the items that refused it."""
    other = Key("other", "sort")
    put = Put({"PK": "other", "SK": "sort"}, (ItemAbsent(),))
    ask(table, Put(ITEM))
    operations = (put, Check(KEY, (Equals("number", 6),)))
    cancelled = ask(table, Transaction(operations, token()))

    assert isinstance(cancelled, Cancelled)
    assert cancelled.reasons[0] is None
    assert isinstance(cancelled.reasons[1], Refused)
    assert [None] == ask(table, Read((other,), True))
    assert Committed() == ask(table, Transaction((put, Check(KEY, (Equals("number", 5),))), token()))
    assert [None] != ask(table, Read((other,), True))


def test_usage_of_a_repeated_batch_is_counted_once(table: AggregatorTable):
    """A batch may be delivered twice."""
    ask(table, namespace())
    context = ApplyContext(numbers_from(getrandbits(60)), table.now)
    batches = [[change(1, BUCKETS[0], 0, 5)], [change(2, BUCKETS[0], 0, 6), change(3, BUCKETS[1], 0, 7)]]
    added = []
    for batch in [*batches, *batches]:
        counted = [table.run(count(group, Rules(), context), always) for group in groups(accounts_of(batch))]
        added.append(sum(one.added for one in counted))
        assert not any(one.left for one in counted)
    (snapshot,) = ask(table, Read((SNAPSHOT,), True))

    assert [3, 6, 0, 0] == added
    assert (18, 3) == (snapshot["rpm"], snapshot["total_events"])


def test_shards_are_split_and_merged_on_an_engine(table: AggregatorTable):
    """The time is that of the server."""
    bucket = BUCKETS[0]
    context = ApplyContext(numbers_from(getrandbits(60)), table.now)
    (item,) = grown(stored(Limit.per_minute("rpm", 1_000)), [], at(NOON)).values()
    ask(table, Put({**item, "b_rpm_tk": 0, "rf": int(time.time() * 1000)}))
    known: dict[int, Watch] = {}
    assert table.run(split(Split(bucket, 1), context), always)
    known.update(table.run(merge(Merge(bucket, 2, {}), Rules(), context), always).shards)
    long_ago = {shard: watch._replace(calm_since_ms=0) for shard, watch in known.items()}
    calm = {shard: watch._replace(gauge=watch.gauge._replace(at_ms=0)) for shard, watch in long_ago.items()}
    surveyed = table.run(merge(Merge(bucket, 2, calm), Rules(), context), always)
    keys = tuple(Key(item["PK"][:-1] + str(shard), "#STATE") for shard in range(2))
    left = ask(table, Read(keys, True))

    assert ({0, 1}, 1) == (set(known), surveyed.merged)
    assert [False, True] == [one is None for one in left]
    assert (1, 3) == (left[0]["shard_count"], left[0]["b_wcu_tc"])


def test_the_aggregator_uses_the_time_of_the_server(url: str, table: AggregatorTable):
    """The bounds come from the dates of its answers."""
    before = table.now()
    ask(table, Read((KEY,), True))
    sooner_ms = time.time() * 1000
    low, high = table.now()
    later_ms = time.time() * 1000

    assert before[0] == before[1]
    assert low < high
    assert low - 2_000 <= later_ms
    assert sooner_ms <= high + 2_000


@pytest.mark.parametrize("date", ["", "soon", "Mon, 01 Jan 99999999999999999999 00:00:00 GMT"])
def test_an_invalid_date_header_does_not_stop_a_batch(date: str, proxy: Proxy):
    """An unreadable header is treated as missing."""

    class InvalidDate:
        async def play(self, exchange: Exchange) -> None:
            answer = exchange.finished(await exchange.forward())
            await exchange.send(answer.with_header("Date", date).bytes)

    proxy.always(InvalidDate())
    with table_by("direct", proxy.url, new_table(running().url)) as table:
        assert [None] == ask(table, Read((KEY,), True))


@pytest.mark.parametrize("kind", ["direct", "carried"])
@pytest.mark.parametrize("off_s", [3600, -3600])
def test_a_single_wrong_date_does_not_move_the_clock(kind: str, off_s: int, proxy: Proxy):
    """This applies to the first response and to later ones: a read on a new connection refutes it."""
    with table_by(kind, proxy.url, new_table(running().url)) as table:
        times = []
        for _ in range(2):
            proxy.next(Misdated(off_s))
            ask(table, Read([KEY], consistent=True))
            times.append(table.now())
        first, second = times

    assert abs(first[0] - time.time() * 1000) < 600_000
    assert first[0] <= second[0] <= second[1] < first[1] + 600_000


@pytest.mark.parametrize("kind", ["direct", "carried"])
def test_a_step_of_the_server_clock_is_followed(kind: str, proxy: Proxy):
    """Two connections confirm it."""
    with table_by(kind, proxy.url, new_table(running().url)) as table:
        ask(table, Read([KEY], consistent=True))
        proxy.settings.date_s = lambda: NOON / 1000
        ask(table, Read([KEY], consistent=True))
        low, high = table.now()

    assert low - 60_000 <= NOON <= high + 60_000


def test_a_missing_table_is_named_in_the_error(url: str):
    """The request is not retried."""
    with table_by("direct", url, "limiter-absent-table") as absent:
        for asked in (Read((KEY,), False), Put(ITEM)):
            with pytest.raises(InfrastructureNotFoundError, match="limiter-absent-table"):
                ask(absent, asked)


def test_an_invalid_write_raises_an_error(table: AggregatorTable):
    """The conditions make no difference."""
    with pytest.raises(ValidationError):
        ask(table, Put({"PK": "", "SK": "sort"}))


class TestFaults:
    @pytest.fixture(params=["direct", "carried"])
    def behind(self, request: pytest.FixtureRequest, proxy: Proxy) -> Iterator[AggregatorTable]:
        """Return a table behind a proxy that injects faults."""
        with table_by(request.param, proxy.url, new_table(running().url)) as made:
            yield made

    @pytest.mark.parametrize("applied", [False, True])
    def test_a_failed_read_is_retried(self, behind: AggregatorTable, proxy: Proxy, applied: bool):
        """After a throttle, a server error or a lost answer."""
        ask(behind, Put(ITEM))
        for fault in (throttled(), server_error(applied), Drop(applied)):
            proxy.next(fault, target="BatchGetItem")

        assert [ITEM] == [dict(item) for item in ask(behind, Read((KEY,), True))]

    def test_a_read_that_is_never_answered_raises_an_error(self, behind: AggregatorTable, proxy: Proxy):
        """The number of attempts is bounded."""
        proxy.always(Drop(False), target="BatchGetItem")

        with pytest.raises(RateLimiterUnavailable):
            ask(behind, Read((KEY,), True))
        assert 2 < proxy.targets.count("BatchGetItem") <= 10

    def test_a_single_write_is_not_retried(self, behind: AggregatorTable, proxy: Proxy):
        """The caller finds out whether it was applied."""
        proxy.next(Drop(True), target="UpdateItem")
        lost = ask(behind, Update(KEY, add={"number": 1}))
        proxy.next(throttled(), target="UpdateItem")

        assert isinstance(lost, Unavailable)
        assert lost.ambiguous
        assert Throttled() == ask(behind, Update(KEY, add={"number": 1}))
        assert [1] == [item["number"] for item in ask(behind, Read((KEY,), True))]

    @pytest.mark.parametrize("applied", [False, True])
    def test_a_transaction_is_retried_with_its_token(self, behind: AggregatorTable, proxy: Proxy, applied: bool):
        """It is applied once."""
        proxy.next(Drop(applied), target="TransactWriteItems")
        proxy.next(throttled(), target="TransactWriteItems")

        assert Committed() == ask(behind, Transaction((Update(KEY, add={"number": 1}),), token()))
        assert [1] == [item["number"] for item in ask(behind, Read((KEY,), True))]

    def test_a_transaction_that_is_never_answered_has_an_unknown_outcome(self, behind: AggregatorTable, proxy: Proxy):
        """The number of attempts is bounded."""
        proxy.always(server_error(False), target="TransactWriteItems")
        outcome = ask(behind, Transaction((Update(KEY, add={"number": 1}),), token()))

        assert isinstance(outcome, Unavailable)
        assert outcome.ambiguous

    def test_no_request_is_sent_or_retried_without_time_left(self, behind: AggregatorTable, proxy: Proxy):
        """The remaining time is checked before every request."""
        left = iter([True, False])

        def dialogue() -> TableDialogue[TableAnswer]:
            answer: TableAnswer = yield Read((KEY,), True)
            return answer

        proxy.always(Drop(False), target="BatchGetItem")
        proxy.forget()
        with pytest.raises(RateLimiterUnavailable):
            behind.run(dialogue(), lambda: next(left))
        with pytest.raises(RateLimiterUnavailable, match="no time"):
            behind.run(dialogue(), lambda: False)
        assert ["BatchGetItem"] == proxy.targets

    @pytest.mark.parametrize("fault", [Drop(True), Drop(False), throttled(), server_error(True), conflict()])
    def test_usage_is_counted_once_despite_faults(self, behind: AggregatorTable, proxy: Proxy, fault: Fault):
        """A fault hits the first request of every kind."""
        ask(behind, namespace())
        context = ApplyContext(numbers_from(getrandbits(60)), behind.now)
        for number in (1, 2):
            for target in ("BatchGetItem", "TransactWriteItems", "UpdateItem"):
                proxy.next(fault, target=target)
            (group,) = groups(accounts_of([change(number, BUCKETS[0], 0, 5)]))
            assert () == tuple(behind.run(count(group, Rules(), context), always).left)
        (snapshot,) = ask(behind, Read((SNAPSHOT,), True))

        assert (10, 2) == (snapshot["rpm"], snapshot["total_events"])

    def test_pauses_sleep_for_the_requested_time(self, proxy: Proxy):
        """The elapsed time is about that of the pauses."""
        slept: list[float] = []
        ask(AggregatorTable(direct(proxy.url), "limiter", slept.append), Pause(2.0))

        assert 1.0 <= slept[0] <= 2.0
