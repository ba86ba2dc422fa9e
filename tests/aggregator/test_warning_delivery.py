"""Warnings reach EventBridge and SNS of a local AWS, and a destination that fails stops nothing."""

import json
import time
from collections.abc import Iterator
from typing import Any

import botocore.session
import pytest
from botocore.config import Config
from botocore.stub import Stubber

from tests.aggregator.test_handler import Function, client, repo, stream_of, table_name
from zae_limiter import Limit, SyncRateLimiter, SyncRepository, usd
from zae_limiter.core.calendar import schedule_of
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.warnings import LimitWarning
from zae_limiter_aggregator.delivery import Delivery
from zae_limiter_aggregator.plan import Rules
from zae_limiter_aggregator.settings import AggregatorSettings

__all__ = ["repo", "table_name"]

SPEND = Limit.quota("spend", usd("100"), every="month", unit="USD", warn_at=(0.8, 1.0))
TOPIC = "arn:aws:sns:us-east-1:123456789012:warnings"
SETTINGS = AggregatorSettings("limiter", Rules(), None, "default", TOPIC)
FULL_S = 60


class Subscriber:
    """A queue that gets what a rule of the default event bus and a topic deliver."""

    def __init__(self, name: str) -> None:
        sqs, sns, events = client("sqs"), client("sns"), client("events")
        self._url = sqs.create_queue(QueueName=name)["QueueUrl"]
        arn = sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
        self.topic_arn = sns.create_topic(Name=name)["TopicArn"]
        sns.subscribe(TopicArn=self.topic_arn, Protocol="sqs", Endpoint=arn, Attributes={"RawMessageDelivery": "true"})
        events.put_rule(Name=name, EventPattern=json.dumps({"source": ["zae-limiter"], "detail": {"table": [name]}}))
        events.put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])

    def received(self, count: int) -> list[str]:
        """Return messages; wait until there are this many."""
        found: list[str] = []
        for _ in range(FULL_S):
            answer = client("sqs").receive_message(QueueUrl=self._url, MaxNumberOfMessages=10)
            for message in answer.get("Messages", []):
                found.append(message["Body"])
                client("sqs").delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
            if len(found) >= count:
                break
            time.sleep(0.1)
        return found


@pytest.fixture
def subscriber(table_name: str) -> Subscriber:
    return Subscriber(table_name)


@pytest.fixture
def function(table_name: str, subscriber: Subscriber) -> Iterator[Function]:
    made = Function(table_name, "", WARNING_EVENT_BUS="default", WARNING_TOPIC_ARN=subscriber.topic_arn)
    yield made
    made.stop()


def test_handler_sends_a_warning_once_to_event_bus_and_topic(
    repo: SyncRepository, table_name: str, function: Function, subscriber: Subscriber
):
    """The stream is delivered twice, and usage shows the threshold too."""
    repo.set_system_defaults([SPEND])
    with SyncRateLimiter(repo).acquire("user-1", "gpt-4", {"spend": usd("85")}):
        pass
    records = stream_of(table_name)
    answers = [function.handle(records) for _ in range(2)]
    bodies = subscriber.received(2)
    event = next(json.loads(body) for body in bodies if body.startswith("{"))
    mail = next(body for body in bodies if not body.startswith("{"))

    assert [1, None] == [answer.get("warnings") for answer in answers]
    assert [0, 0] == [answer["troubles"] for answer in answers]
    assert 2 == len(bodies)
    assert ("zae-limiter", "Limit Warning") == (event["source"], event["detail-type"])
    assert (table_name, "user-1", "gpt-4", "spend", 0.8, 85_000_000, "USD") == tuple(
        event["detail"][name] for name in ("table", "entity_id", "resource", "limit_name", "threshold", "used", "unit")
    )
    assert mail.startswith("user-1 has used 85.00 of 100.00 USD of limit spend for gpt-4.")
    assert event["detail"] == json.loads(mail.splitlines()[-1])
    assert [{"spend": 0.8}] * 2 == [one.warnings for one in repo.get_usage_snapshots("user-1")[0]]
    assert ["WARNING"] == [line["level"] for line in function.said if line.get("threshold")]


def warning(number: int = 0) -> LimitWarning:
    """Return a warning about an entity with this number."""
    limit = Limit.quota("spend", 100, unit="USD", warn_at=(0.8,))
    assert limit.schedule == schedule_of("month")
    return LimitWarning("default", f"user-{number}", "gpt-4", limit, 0.8, 80, 1_700_000_000_000, (0, 1))


class Stubs:
    """Clients of both services whose answers are given."""

    def __init__(self) -> None:
        session = botocore.session.Session()
        keys = {"region_name": "us-east-1", "aws_access_key_id": "k", "aws_secret_access_key": "s"}
        self.clients = {name: session.create_client(name, **keys) for name in ("events", "sns")}
        self.events, self.sns = (Stubber(self.clients[name]) for name in ("events", "sns"))
        self.configs: list[Config] = []

    def make(self, service: str, config: Config) -> Any:
        self.configs.append(config)
        return self.clients[service]


@pytest.fixture
def stubs() -> Iterator[Stubs]:
    made = Stubs()
    with made.events, made.sns:
        yield made
        made.events.assert_no_pending_responses()
        made.sns.assert_no_pending_responses()


def test_a_rejected_entry_is_named_and_not_sent_again(stubs: Stubs):
    """EventBridge answers a call with a code for each entry."""
    stubs.events.add_response("put_events", {"Entries": [{"EventId": "1"}, {"ErrorCode": "InternalFailure"}]})
    stubs.sns.add_response("publish_batch", {"Successful": [], "Failed": []})

    with pytest.raises(RateLimiterUnavailable, match="EventBridge: InternalFailure"):
        Delivery(SETTINGS, stubs.make).send([warning(0), warning(1)])


def test_a_refused_call_does_not_stop_the_other_destination(stubs: Stubs):
    """A role may lack the permission of one of them."""
    stubs.events.add_client_error("put_events", "AccessDeniedException")
    stubs.sns.add_response("publish_batch", {"Failed": [{"Id": "0", "Code": "Throttled", "SenderFault": False}]})

    with pytest.raises(RateLimiterUnavailable) as caught:
        Delivery(SETTINGS, stubs.make).send([warning()])

    assert all(text in str(caught.value.cause) for text in ("AccessDeniedException", "SNS: Throttled"))


def test_calls_have_at_most_ten_warnings_and_no_retries(stubs: Stubs):
    """A call that is repeated after a lost answer would send a warning twice."""
    for _ in range(2):
        stubs.events.add_response("put_events", {"Entries": []})
        stubs.sns.add_response("publish_batch", {"Successful": [], "Failed": []})
    Delivery(SETTINGS, stubs.make).send([warning(number) for number in range(11)])

    assert [1, 1] == [config.retries["total_max_attempts"] for config in stubs.configs]  # type: ignore[attr-defined] # botocore has no types


def test_a_stack_without_destinations_sends_nothing():
    """A new function may run in a stack that was deployed before warnings existed."""
    Delivery(AggregatorSettings("limiter", Rules(), None), lambda *_: pytest.fail("a client was made")).send(
        [warning()]
    )


def test_a_subject_is_ascii_and_not_too_long(stubs: Stubs):
    """SNS refuses others."""
    long = LimitWarning("default", "ü" * 200, "gpt-4", Limit.per_minute("rpm", 1, warn_at=(0.8,)), 0.8, 1, 0)
    sent: list[dict[str, Any]] = []
    stubs.clients["sns"].meta.events.register(
        "before-parameter-build.sns.PublishBatch", lambda params, **_: sent.append(params)
    )
    stubs.events.add_response("put_events", {"Entries": []})
    stubs.sns.add_response("publish_batch", {"Successful": [], "Failed": []})
    Delivery(SETTINGS, stubs.make).send([long])
    subject = sent[0]["PublishBatchRequestEntries"][0]["Subject"]

    assert subject.isascii()
    assert len(subject) <= 100
