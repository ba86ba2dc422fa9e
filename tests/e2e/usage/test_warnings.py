"""The deployed aggregator sends warnings to EventBridge and to the topic of the stack, once."""

import json
from typing import Any

import pytest

from tests.e2e.deployment import Deployment, comes_to, new_deployment, records_of
from zae_limiter import Limit, SyncRateLimiter, usd

SPEND = Limit.quota("spend", usd("100"), every="month", unit="USD", warn_at=(0.8, 1.0))


class Queue:
    """A queue that gets the warnings of a limiter from the default event bus and from a topic."""

    def __init__(self, deployment: Deployment) -> None:
        name, of = deployment.name, deployment.clients.of
        self._sqs = of("sqs")
        self._url = self._sqs.create_queue(QueueName=name)["QueueUrl"]
        found = self._sqs.get_queue_attributes(QueueUrl=self._url, AttributeNames=["QueueArn"])
        arn = found["Attributes"]["QueueArn"]
        self.topic_arn = of("sns").create_topic(Name=name)["TopicArn"]
        raw = {"RawMessageDelivery": "true"}
        of("sns").subscribe(TopicArn=self.topic_arn, Protocol="sqs", Endpoint=arn, Attributes=raw)
        pattern = {"source": ["zae-limiter"], "detail-type": ["Limit Warning"], "detail": {"table": [name]}}
        of("events").put_rule(Name=name, EventPattern=json.dumps(pattern))
        of("events").put_targets(Rule=name, Targets=[{"Id": "queue", "Arn": arn}])
        self.received: list[str] = []

    def look(self) -> int:
        """Receive what has arrived, and return the number of all messages so far."""
        answer = self._sqs.receive_message(QueueUrl=self._url, MaxNumberOfMessages=10)
        for message in answer.get("Messages", []):
            self.received.append(message["Body"])
            self._sqs.delete_message(QueueUrl=self._url, ReceiptHandle=message["ReceiptHandle"])
        return len(self.received)


@pytest.fixture(scope="module")
def deployed(aws_url: str) -> tuple[Deployment, Queue]:
    made = new_deployment(aws_url)
    queue = Queue(made)
    options = ("--no-alarms", "--usage-interval-seconds", "0", "--warning-sns-topic", queue.topic_arn)
    made.printed("deploy", *options)
    return made, queue


def test_warning_through_the_stream_is_sent_once(deployed: tuple[Deployment, Queue]) -> None:
    """A batch that is delivered again sends nothing; the command shows the threshold."""
    deployment, queue = deployed
    with deployment.opened() as repo:
        repo.set_system_defaults([SPEND])
        for dollars in ("50", "35"):
            with SyncRateLimiter(repo).acquire("user-1", "gpt-4", {"spend": usd(dollars)}):
                pass
        arrived = comes_to(2, queue.look)
        again: Any = deployment.hand_to_function(records_of(deployment))
        shown = deployment.printed("usage", "list", "--entity", "user-1", "-w", "daily")["snapshots"]
        events = [json.loads(body) for body in queue.received if body.startswith("{")]

        assert (2, 2) == (arrived, queue.look())
        assert "warnings" not in again
        assert [("spend", 0.8, 85_000_000)] == [
            (one["detail"]["limit_name"], one["detail"]["threshold"], one["detail"]["used"]) for one in events
        ]
        assert [{"spend": 0.8}] == [one["warnings"] for one in shown]
