"""The deployed aggregator: environment, role, stream, and its package without other installed packages."""

import json
import subprocess
import time
import venv
from collections import Counter
from collections.abc import Callable
from importlib import metadata
from itertools import count as numbers_from
from pathlib import Path
from random import getrandbits
from typing import Any

import pytest

from tests.aggregator.simulated_table import BUCKETS, change, namespace
from tests.dynamodb.engines import Engine
from tests.dynamodb.trees import session
from tests.infra.request_recorder import TABLE, requests_of
from tests.infra.resolved import Resolved
from tests.infra.simulator import Request, actions, allows
from tests.many_shards import grown
from tests.one_bucket import NOON, at, stored
from zae_limiter import Limit, SyncRateLimiter, SyncRepository
from zae_limiter.core.audit import AuditAction, AuditEvent
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.function import AggregatorFunction, package_sha256
from zae_limiter.infra.lambda_package import HANDLER, build_package
from zae_limiter.infra.options import StackOptions, template_parameters
from zae_limiter.infra.provision import provide, update_code
from zae_limiter.infra.stack import Stack
from zae_limiter.schema.operations import Put
from zae_limiter.tables.dynamodb.requests import DynamoDbCall
from zae_limiter_aggregator import settings
from zae_limiter_aggregator.apply import ApplyContext, TableAnswer, TableDialogue, count, merge, split
from zae_limiter_aggregator.archive import Archive
from zae_limiter_aggregator.client import AggregatorTable
from zae_limiter_aggregator.plan import Merge, Rules, Split, accounts_of, groups
from zae_limiter_aggregator.records import ExpiredEvent, read_all
from zae_limiter_aggregator.transport import AggregatorTransport, Carried

LIMITS = [Limit.per_day("rpm", 1_000)]
PATIENCE_S = 120.0
WITHOUT_AGGREGATOR = StackOptions(enable_aggregator=False, enable_alarms=False, create_iam=False)

# The packages that the Lambda runtime of Python provides.
RUNTIME = ("boto3", "botocore", "s3transfer", "jmespath", "python-dateutil", "six", "urllib3")

DRIVER = """
import importlib, json, sys
sys.path[:0] = sys.argv[1:3]
module, _, name = sys.argv[3].rpartition(".")
class Context:
    aws_request_id = "request-1"
    def get_remaining_time_in_millis(self):
        return 60_000
answer = getattr(importlib.import_module(module), name)(json.load(sys.stdin), Context())
print(json.dumps(answer))
"""


@pytest.fixture(scope="module")
def package() -> bytes:
    return build_package()


def opened(stack: Stack, url: str) -> SyncRepository:
    """Open a client of a stack's table, with the default namespace."""
    place = f"dynamodb://{stack.name}?region=us-east-1&endpoint_url={url}&create=true"
    repo = SyncRepository.open(place, session=session(), deadline_s=20.0)
    repo.set_system_defaults(LIMITS)
    return repo


def take(repo: SyncRepository, times: int) -> None:
    limiter = SyncRateLimiter(repo)
    for _ in range(times):
        with limiter.acquire("user-1", "gpt-4", {"rpm": 2}):
            pass


def counted(repo: SyncRepository) -> dict[str, int]:
    """Return the usage counted so far by kind of window; an hour may end in between."""
    sums: Counter[str] = Counter()
    for one in repo.get_usage_snapshots("user-1")[0]:
        sums[one.window_type] += one.counters["rpm"]
    return dict(sums)


def poll_until(expected: Any, look: Callable[[], Any]) -> Any:
    """Poll until the value is as expected, and return the value seen last."""
    end_s = time.monotonic() + PATIENCE_S
    while (seen := look()) != expected and time.monotonic() < end_s:
        time.sleep(0.2)
    return seen


class TestEnvironment:
    def test_aggregator_environment_contains_every_setting_it_reads(self) -> None:
        """Every variable is set, and the aggregator can parse each value."""
        stack = Resolved("my-app", template_parameters("my-app", StackOptions(snapshot_windows="monthly")))
        environment = stack.properties("AggregatorFunction")["Environment"]["Variables"]
        known = {settings.TABLE_NAME, settings.SNAPSHOT_WINDOWS, settings.USAGE_INTERVAL_SECONDS}
        known |= {
            settings.USAGE_RETENTION_DAYS,
            settings.ARCHIVE_BUCKET,
            settings.WARNING_EVENT_BUS,
            settings.WARNING_TOPIC_ARN,
        }
        read = settings.AggregatorSettings.of(environment)

        assert known == {name for name in environment if not name.startswith("POWERTOOLS_")}
        assert ("Table", ("monthly",), 60, "ArchiveBucket") == (
            read.table_name,
            read.rules.window_types,
            read.rules.interval_s,
            read.archive_bucket,
        )

    def test_aggregator_metrics_are_those_of_one_stack(self) -> None:
        """Several limiters of an account are not summed."""
        stack = Resolved("my-app", template_parameters("my-app", StackOptions()))

        assert "my-app" == stack.properties("AggregatorFunction")["Environment"]["Variables"]["POWERTOOLS_SERVICE_NAME"]

    def test_aggregator_without_an_archive_archives_nothing(self) -> None:
        stack = Resolved("my-app", template_parameters("my-app", StackOptions(enable_audit_archival=False)))
        environment = stack.properties("AggregatorFunction")["Environment"]["Variables"]

        assert settings.AggregatorSettings.of(environment).archive_bucket is None

    def test_aggregator_handler_is_that_of_the_package(self) -> None:
        stack = Resolved("my-app", template_parameters("my-app", StackOptions()))

        assert HANDLER == stack.properties("AggregatorFunction")["Handler"]


class TestRole:
    @pytest.fixture
    def requests(self, aws: Engine, stack: Stack, clients: Clients) -> list[Request]:
        """The requests of counting, splitting, merging and archiving."""
        archive = stack.deploy(StackOptions(enable_alarms=False)).state.outputs["ArchiveBucketName"]
        recorded: list[Request] = []

        def record_request(model: Any, **_: Any) -> None:
            recorded.append(Request(f"s3:{model.name}", "ArchiveBucket.Arn/some-object", None))

        clients.of("s3").meta.events.register("before-call.s3", record_request)
        prepare(table_of(stack, clients))
        work(table_of(stack, clients, recorded))
        event = AuditEvent("1", "2024-01-01T00:00:00Z", AuditAction.LIMITS_SET, "user-1", None, None, {})
        Archive(archive, lambda: clients.of("s3")).write(
            [ExpiredEvent(namespace_id="ns000000000", sequence="1", at_ms=0, event=event)]
        )
        return recorded

    def test_aggregator_role_allows_exactly_what_the_aggregator_requests(self, requests: list[Request]) -> None:
        role = Resolved("my-app", template_parameters("my-app", StackOptions())).properties("AggregatorRole")
        said = [statement for policy in role["Policies"] for statement in policy["PolicyDocument"]["Statement"]]
        document = {"Statement": said}
        # The Lambda service makes this request, not the aggregator.
        streams = {"dynamodb:ListStreams"}

        assert [] == [request for request in requests if not allows(document, request, {})]
        assert {request.action for request in requests if request.resource == TABLE} == actions(
            document, TABLE
        ) - streams
        assert {"s3:PutObject"} == actions(document, "ArchiveBucket.Arn/some-object") - streams


class RecordingTransport:
    """Make calls, and record the requests in them."""

    def __init__(self, caller: AggregatorTransport, recorded: list[Request]) -> None:
        self._caller = caller
        self._heard = recorded
        self.reconnect = caller.reconnect

    @property
    def connection(self) -> int:
        return self._caller.connection

    def call(self, call: DynamoDbCall, now_s: int) -> Any:
        self._heard += requests_of(call.target.rpartition(".")[2], json.loads(call.body))
        return self._caller.call(call, now_s)


def table_of(stack: Stack, clients: Clients, recorded: list[Request] | None = None) -> AggregatorTable:
    """Return the table of a stack as the aggregator uses it."""
    caller = RecordingTransport(Carried(clients.of("dynamodb")), [] if recorded is None else recorded)
    return AggregatorTable(caller, stack.name, sleep=lambda seconds: None)


def prepare(table: AggregatorTable) -> None:
    """Create a namespace, and a bucket in it that can be split."""
    (item,) = grown(stored(Limit.per_minute("rpm", 1_000)), [], at(NOON)).values()

    def operations() -> TableDialogue[TableAnswer]:
        yield namespace()
        answer: TableAnswer = yield Put({**item, "b_rpm_tk": 0, "rf": int(time.time() * 1000)})
        return answer

    table.run(operations(), lambda: True)


def work(table: AggregatorTable) -> None:
    """Count usage in a new and in an existing snapshot; split a bucket and merge it again."""
    context = ApplyContext(numbers_from(getrandbits(60)), table.now)
    for number in (1, 2):
        for group in groups(accounts_of([change(number, BUCKETS[0], 0, 5)])):
            assert not table.run(count(group, Rules(), context), lambda: True).left
    assert table.run(split(Split(BUCKETS[0], 1), context), lambda: True)
    seen = table.run(merge(Merge(BUCKETS[0], 2, {}), Rules(), context), lambda: True).shards
    calm = {
        shard: watch._replace(calm_since_ms=0, gauge=watch.gauge._replace(at_ms=0)) for shard, watch in seen.items()
    }
    assert 1 == table.run(merge(Merge(BUCKETS[0], 2, calm), Rules(), context), lambda: True).merged


class TestPackage:
    @pytest.fixture
    def bare(self, tmp_path: Path, package: bytes) -> list[str]:
        """The command that runs Python with only the Lambda runtime's packages and the package."""
        venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
        (tmp_path / "package.zip").write_bytes(package)
        subprocess.run(
            [tmp_path / "venv/bin/python", "-m", "zipfile", "-e", tmp_path / "package.zip", tmp_path / "task"],
            check=True,
        )
        runtime = tmp_path / "runtime"
        runtime.mkdir()
        for name in RUNTIME:
            link(name, runtime)
        return [str(tmp_path / "venv/bin/python"), "-I", "-c", DRIVER, str(tmp_path / "task"), str(runtime), HANDLER]

    def test_aggregator_package_counts_a_stream_in_a_bare_environment(
        self, bare: list[str], stack: Stack, clients: Clients, aws: Engine
    ) -> None:
        """The environment has only boto3 and the package."""
        stream = stack.deploy(WITHOUT_AGGREGATOR).state.outputs["StreamArn"]
        with opened(stack, aws.url) as repo:
            take(repo, 3)
            event = {"Records": records_of(clients, stream)}
            environment = {
                "TABLE_NAME": stack.name,
                "AWS_ENDPOINT_URL": aws.url,
                "AWS_DEFAULT_REGION": "us-east-1",
                "AWS_ACCESS_KEY_ID": "engine",
                "AWS_SECRET_ACCESS_KEY": "secret",
            }
            done = subprocess.run(
                bare, input=json.dumps(event), env=environment, capture_output=True, text=True, check=False
            )

            assert 0 == done.returncode, done.stderr
            assert [] == json.loads(done.stdout.splitlines()[-1])["batchItemFailures"]
            assert {"hourly": 6, "daily": 6} == counted(repo)


def link(distribution: str, folder: Path) -> None:
    """Link the installed files of a distribution into a folder."""
    tops = {path.parts[0] for path in metadata.files(distribution) or [] if ".." not in path.parts}
    for top in tops:
        if not top.endswith(".dist-info") and top != "__pycache__":
            (folder / top).symlink_to(Path(str(metadata.distribution(distribution).locate_file(top))))


def records_of(clients: Clients, stream: str) -> list[dict[str, Any]]:
    """Return all records of a stream, as Lambda passes them."""
    client = clients.of("dynamodbstreams")
    found: list[dict[str, Any]] = []
    for shard in client.describe_stream(StreamArn=stream)["StreamDescription"]["Shards"]:
        place = {"StreamArn": stream, "ShardId": shard["ShardId"], "ShardIteratorType": "TRIM_HORIZON"}
        iterator = client.get_shard_iterator(**place)["ShardIterator"]
        found += client.get_records(ShardIterator=iterator, Limit=1000)["Records"]
    for record in found:
        data = record["dynamodb"]
        data["ApproximateCreationDateTime"] = data["ApproximateCreationDateTime"].timestamp()
    return found


def passes(pattern: Any, value: Any) -> bool:
    """Return whether a Lambda filter accepts a record.

    Of each list, one pattern has to match by equality or by prefix.
    """
    if isinstance(pattern, dict):
        return isinstance(value, dict) and all(passes(one, value.get(name)) for name, one in pattern.items())
    return any(
        value.startswith(one["prefix"]) if isinstance(one, dict) else value == one
        for one in pattern
        if isinstance(value, str)
    )


def expired(written: dict[str, Any], **by: Any) -> dict[str, Any]:
    """Return the record of an item's expiry, made from that of its creation."""
    data = {name: value for name, value in written["dynamodb"].items() if name != "NewImage"}
    return {"eventName": "REMOVE", "dynamodb": {**data, "OldImage": written["dynamodb"]["NewImage"]}, **by}


class TestFilter:
    def test_stream_filter_passes_only_records_that_the_aggregator_uses(
        self, stack: Stack, clients: Clients, aws: Engine
    ) -> None:
        """The records are those of all writes of a client and of the aggregator.

        Otherwise its own snapshots would invoke it for ever.
        """
        stream = stack.deploy(WITHOUT_AGGREGATOR).state.outputs["StreamArn"]
        with opened(stack, aws.url) as repo:
            take(repo, 2)
            repo.create_entity("user-2")
            repo.set_limits("user-2", LIMITS)
            repo.delete_entity("user-2")
        prepare(table_of(stack, clients))
        work(table_of(stack, clients))
        records = records_of(clients, stream)
        audit = next(one for one in records if one["dynamodb"]["Keys"]["SK"]["S"].startswith("#AUDIT#"))
        by_the_table = expired(audit, userIdentity={"type": "Service", "principalId": "dynamodb.amazonaws.com"})
        records += [by_the_table, expired(audit)]
        source = Resolved("my-app", template_parameters("my-app", StackOptions())).properties("AggregatorEventSource")
        filters = [json.loads(one["Pattern"]) for one in source["FilterCriteria"]["Filters"]]
        passed = [one for one in records if any(passes(pattern, one) for pattern in filters)]
        telling = [one for one in records if not read_all([one]).ignored]

        assert telling == passed
        assert by_the_table in passed
        assert len(records) > 2 * len(passed) > 10
        assert {"INSERT", "MODIFY", "REMOVE"} == {one["eventName"] for one in passed}


class TestDeployed:
    def test_deployed_aggregator_counts_usage_from_the_stream(
        self, stack: Stack, clients: Clients, aws: Engine, package: bytes
    ) -> None:
        """A stack, its package and a client are enough to count what is taken."""
        options = StackOptions(enable_alarms=False, snapshot_windows="hourly,daily,monthly")
        provided = provide(stack.name, clients, options)
        function = AggregatorFunction(stack.name, clients)
        with opened(stack, aws.url) as repo:
            take(repo, 5)
            expected = {"hourly": 10, "daily": 10, "monthly": 10}

            assert expected == poll_until(expected, lambda: counted(repo))
            assert package_sha256(package) == function.code_sha256()
            assert (True, True) == (provided.stack_changed, provided.code_changed)

    def test_deploying_the_same_aggregator_again_changes_nothing(self, stack: Stack, clients: Clients) -> None:
        options = StackOptions(enable_alarms=False)
        provide(stack.name, clients, options)
        again = provide(stack.name, clients, options)

        assert (False, False) == (again.stack_changed, again.code_changed)

    def test_a_stack_without_an_aggregator_gets_no_code(self, stack: Stack, clients: Clients) -> None:
        provided = provide(stack.name, clients, WITHOUT_AGGREGATOR)

        assert (True, False) == (provided.stack_changed, provided.code_changed)
        assert update_code(stack.name, clients) is None

    def test_deploy_replaces_old_aggregator_code(self, stack: Stack, clients: Clients, package: bytes) -> None:
        """The code may be that of an older installation or of the template alone."""
        stack.deploy(StackOptions(enable_alarms=False))

        assert [True, False] == [update_code(stack.name, clients) for _ in range(2)]
        assert package_sha256(package) == AggregatorFunction(stack.name, clients).code_sha256()
