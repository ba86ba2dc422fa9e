"""What is asked for is done on real engines by a botocore client, though answers get lost."""

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

from tests.aggregator.stage import BUCKETS, change, namespace
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
    Ask,
    Pause,
    Read,
    TableAnswer,
    TableDialogue,
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
    """A client of botocore."""
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
    """A table by a kind of caller."""
    caller = direct(url) if kind == "direct" else Carried(client(url))
    yield AggregatorTable(caller, name, sleep=lambda seconds: None)
    if isinstance(caller, Direct):
        caller.close()


@pytest.fixture(params=ENGINES)
def url(request: pytest.FixtureRequest) -> str:
    """Every engine that is installed here."""
    try:
        return running(request.param).url
    except EngineAbsentError as absent:
        pytest.skip(str(absent))


@pytest.fixture(params=["direct", "carried"])
def table(request: pytest.FixtureRequest, url: str) -> Iterator[AggregatorTable]:
    """A new table, by each kind of caller."""
    with table_by(request.param, url, new_table(url)) as made:
        yield made


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A fault proxy before the default engine."""
    with Proxy(running().url) as started:
        yield started


def always() -> bool:
    return True


def ask(table: AggregatorTable, asked: Ask) -> Any:
    """What is answered to one thing."""

    def asking() -> TableDialogue[TableAnswer]:
        answer: TableAnswer = yield asked
        return answer

    return table.run(asking(), always)


def token() -> str:
    return f"test-{getrandbits(60)}"


def test_items_come_back_as_they_were_put(table: AggregatorTable):
    """In the order they were asked for, None for one that is absent; twice for one that is asked for twice."""
    assert Applied(ITEM) == ask(table, Put(ITEM))

    found = ask(table, Read((Key("no", "no"), KEY, KEY), True))
    assert [None, ITEM, ITEM] == [None if item is None else dict(item) for item in found]


def test_a_write_is_answered_with_the_item(table: AggregatorTable):
    """As it stands, whether or not it was carried out."""
    ask(table, Put(ITEM))
    added = ask(table, Update(KEY, add={"number": 2}, set={"text": "b"}, when=(Equals("number", 5),)))
    refused = ask(table, Update(KEY, add={"number": 2}, when=(Equals("number", 5),)))

    assert (7, "b") == (added.new["number"], added.new["text"])
    assert isinstance(refused, Refused)
    assert 7 == refused.old["number"]
    assert Missing() == ask(table, Update(Key("no", "no"), add={"number": 2}, when=(ItemExists(),)))
    assert Applied({}) == ask(table, Delete(KEY))


def test_a_transaction_is_all_or_nothing(table: AggregatorTable):
    """Refused, it says by which items."""
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


def test_usage_is_counted(table: AggregatorTable):
    """Once, though a batch comes twice."""
    ask(table, namespace())
    means = ApplyContext(numbers_from(getrandbits(60)), table.now)
    batches = [[change(1, BUCKETS[0], 0, 5)], [change(2, BUCKETS[0], 0, 6), change(3, BUCKETS[1], 0, 7)]]
    added = []
    for batch in [*batches, *batches]:
        counted = [table.run(count(group, Rules(), means), always) for group in groups(accounts_of(batch))]
        added.append(sum(one.added for one in counted))
        assert not any(one.left for one in counted)
    (snapshot,) = ask(table, Read((SNAPSHOT,), True))

    assert [3, 6, 0, 0] == added
    assert (18, 3) == (snapshot["rpm"], snapshot["total_events"])


def test_shards_are_split_and_merged(table: AggregatorTable):
    """By the time of the server."""
    bucket = BUCKETS[0]
    means = ApplyContext(numbers_from(getrandbits(60)), table.now)
    (item,) = grown(stored(Limit.per_minute("rpm", 1_000)), [], at(NOON)).values()
    ask(table, Put({**item, "b_rpm_tk": 0, "rf": int(time.time() * 1000)}))
    known: dict[int, Watch] = {}
    assert table.run(split(Split(bucket, 1), means), always)
    known.update(table.run(merge(Merge(bucket, 2, {}), Rules(), means), always).shards)
    long_ago = {shard: watch._replace(calm_since_ms=0) for shard, watch in known.items()}
    calm = {shard: watch._replace(gauge=watch.gauge._replace(at_ms=0)) for shard, watch in long_ago.items()}
    surveyed = table.run(merge(Merge(bucket, 2, calm), Rules(), means), always)
    keys = tuple(Key(item["PK"][:-1] + str(shard), "#STATE") for shard in range(2))
    left = ask(table, Read(keys, True))

    assert ({0, 1}, 1) == (set(known), surveyed.merged)
    assert [False, True] == [one is None for one in left]
    assert (1, 3) == (left[0]["shard_count"], left[0]["b_wcu_tc"])


def test_the_time_is_the_servers(url: str, table: AggregatorTable):
    """As far as its answers bound it."""
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
def test_a_date_that_is_none_does_not_stop_a_batch(date: str, proxy: Proxy):
    """A header that cannot be read is as if it were missing."""

    class OddDate:
        async def play(self, exchange: Exchange) -> None:
            answer = exchange.finished(await exchange.forward())
            await exchange.send(answer.with_header("Date", date).bytes)

    proxy.always(OddDate())
    with table_by("direct", proxy.url, new_table(running().url)) as table:
        assert [None] == ask(table, Read((KEY,), True))


@pytest.mark.parametrize("kind", ["direct", "carried"])
@pytest.mark.parametrize("off_s", [3600, -3600])
def test_a_single_wrong_date_moves_nothing(kind: str, off_s: int, proxy: Proxy):
    """Neither the first of all responses nor a later one: a read on a new connection refutes it."""
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
def test_a_step_of_the_server_is_followed(kind: str, proxy: Proxy):
    """Two connections agree on it."""
    with table_by(kind, proxy.url, new_table(running().url)) as table:
        ask(table, Read([KEY], consistent=True))
        proxy.manner.date_s = lambda: NOON / 1000
        ask(table, Read([KEY], consistent=True))
        low, high = table.now()

    assert low - 60_000 <= NOON <= high + 60_000


def test_a_table_that_is_not_there_is_named(url: str):
    """It is no reason to try again."""
    with table_by("direct", url, "limiter-absent-table") as absent:
        for asked in (Read((KEY,), False), Put(ITEM)):
            with pytest.raises(InfrastructureNotFoundError, match="limiter-absent-table"):
                ask(absent, asked)


def test_what_no_table_takes_is_an_error(table: AggregatorTable):
    """Whatever the conditions."""
    with pytest.raises(ValidationError):
        ask(table, Put({"PK": "", "SK": "sort"}))


class TestFaults:
    @pytest.fixture(params=["direct", "carried"])
    def behind(self, request: pytest.FixtureRequest, proxy: Proxy) -> Iterator[AggregatorTable]:
        """A table behind a proxy that plays faults."""
        with table_by(request.param, proxy.url, new_table(running().url)) as made:
            yield made

    @pytest.mark.parametrize("applied", [False, True])
    def test_a_read_is_made_again(self, behind: AggregatorTable, proxy: Proxy, applied: bool):
        """After a throttle, an error of the server, and an answer that was lost."""
        ask(behind, Put(ITEM))
        for fault in (throttled(), server_error(applied), Drop(applied)):
            proxy.next(fault, target="BatchGetItem")

        assert [ITEM] == [dict(item) for item in ask(behind, Read((KEY,), True))]

    def test_a_read_that_is_never_answered_is_an_error(self, behind: AggregatorTable, proxy: Proxy):
        """After some tries."""
        proxy.always(Drop(False), target="BatchGetItem")

        with pytest.raises(RateLimiterUnavailable):
            ask(behind, Read((KEY,), True))
        assert 2 < proxy.targets.count("BatchGetItem") <= 10

    def test_a_single_write_is_not_sent_again(self, behind: AggregatorTable, proxy: Proxy):
        """Whether it was carried out is for whoever asked to find out."""
        proxy.next(Drop(True), target="UpdateItem")
        lost = ask(behind, Update(KEY, add={"number": 1}))
        proxy.next(throttled(), target="UpdateItem")

        assert isinstance(lost, Unavailable)
        assert lost.ambiguous
        assert Throttled() == ask(behind, Update(KEY, add={"number": 1}))
        assert [1] == [item["number"] for item in ask(behind, Read((KEY,), True))]

    @pytest.mark.parametrize("applied", [False, True])
    def test_a_transaction_is_sent_again_with_its_token(self, behind: AggregatorTable, proxy: Proxy, applied: bool):
        """It is carried out once."""
        proxy.next(Drop(applied), target="TransactWriteItems")
        proxy.next(throttled(), target="TransactWriteItems")

        assert Committed() == ask(behind, Transaction((Update(KEY, add={"number": 1}),), token()))
        assert [1] == [item["number"] for item in ask(behind, Read((KEY,), True))]

    def test_a_transaction_that_is_never_answered_stays_in_doubt(self, behind: AggregatorTable, proxy: Proxy):
        """After some tries."""
        proxy.always(server_error(False), target="TransactWriteItems")
        outcome = ask(behind, Transaction((Update(KEY, add={"number": 1}),), token()))

        assert isinstance(outcome, Unavailable)
        assert outcome.ambiguous

    def test_nothing_is_begun_when_there_is_no_time_left(self, behind: AggregatorTable, proxy: Proxy):
        """Nor tried again."""
        left = iter([True, False])

        def asking() -> TableDialogue[TableAnswer]:
            answer: TableAnswer = yield Read((KEY,), True)
            return answer

        proxy.always(Drop(False), target="BatchGetItem")
        proxy.forget()
        with pytest.raises(RateLimiterUnavailable):
            behind.run(asking(), lambda: next(left))
        with pytest.raises(RateLimiterUnavailable, match="no time"):
            behind.run(asking(), lambda: False)
        assert ["BatchGetItem"] == proxy.targets

    @pytest.mark.parametrize("fault", [Drop(True), Drop(False), throttled(), server_error(True), conflict()])
    def test_usage_is_counted_once_through_faults(self, behind: AggregatorTable, proxy: Proxy, fault: Fault):
        """Whatever happens to the first of every kind of call."""
        ask(behind, namespace())
        means = ApplyContext(numbers_from(getrandbits(60)), behind.now)
        for number in (1, 2):
            for target in ("BatchGetItem", "TransactWriteItems", "UpdateItem"):
                proxy.next(fault, target=target)
            (group,) = groups(accounts_of([change(number, BUCKETS[0], 0, 5)]))
            assert () == tuple(behind.run(count(group, Rules(), means), always).left)
        (snapshot,) = ask(behind, Read((SNAPSHOT,), True))

        assert (10, 2) == (snapshot["rpm"], snapshot["total_events"])

    def test_pauses_are_slept(self, proxy: Proxy):
        """About as long as they are asked for."""
        slept: list[float] = []
        ask(AggregatorTable(direct(proxy.url), "limiter", slept.append), Pause(2.0))

        assert 1.0 <= slept[0] <= 2.0
