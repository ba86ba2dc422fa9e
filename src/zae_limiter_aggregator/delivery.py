"""Send warnings to EventBridge and SNS, in calls of at most ten, without retries.

A call whose answer is lost may have been delivered. So nothing is sent twice: a failure is raised, and is logged.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter_aggregator.settings import AggregatorSettings

if TYPE_CHECKING:
    from zae_limiter.core.warnings import LimitWarning

SOURCE = "zae-limiter"
DETAIL_TYPE = "Limit Warning"

_MOST_PER_CALL = 10
"""The limit of both services."""
_LONGEST_SUBJECT = 100
_CONNECT_S = 2
_READ_S = 3

MakeClient = Callable[[str, Config], Any]
"""Make the client of a service."""


class Delivery:
    """The event bus and the topic of warnings. Their clients are made when there is something to send."""

    def __init__(self, settings: AggregatorSettings, make_client: MakeClient) -> None:
        self._table_name = settings.table_name
        self._bus = settings.event_bus
        self._topic_arn = settings.topic_arn
        self._make_client = make_client
        self._clients: dict[str, Any] = {}

    def send(self, warnings: "Sequence[LimitWarning]") -> None:
        """Send each warning to both, once; a call that fails does not stop the others.

        Raises:
            RateLimiterUnavailable: Some were not sent, or their answer was lost.
        """
        failures: list[str] = []
        for start in range(0, len(warnings), _MOST_PER_CALL):
            some = warnings[start : start + _MOST_PER_CALL]
            if self._bus is not None:
                failures += _failures(self._put_events(some))
            if self._topic_arn is not None:
                failures += _failures(self._publish(some))
        if failures:
            raise RateLimiterUnavailable(ConnectionError("; ".join(failures)), self._table_name)

    def _put_events(self, warnings: "Sequence[LimitWarning]") -> Iterator[str]:
        entries = [
            {
                "Source": SOURCE,
                "DetailType": DETAIL_TYPE,
                "Detail": _json(self._detail(one)),
                "EventBusName": self._bus,
                "Time": one.at_ms / 1000,
            }
            for one in warnings
        ]
        answer = self._client("events").put_events(Entries=entries)
        for entry in answer.get("Entries", ()):
            if "ErrorCode" in entry:
                yield f"EventBridge: {entry['ErrorCode']} {entry.get('ErrorMessage', '')}".strip()

    def _publish(self, warnings: "Sequence[LimitWarning]") -> Iterator[str]:
        entries = [
            {
                "Id": str(number),
                "Subject": _subject(one),
                "Message": _message(self._detail(one), one.text),
            }
            for number, one in enumerate(warnings)
        ]
        answer = self._client("sns").publish_batch(TopicArn=self._topic_arn, PublishBatchRequestEntries=entries)
        for entry in answer.get("Failed", ()):
            yield f"SNS: {entry.get('Code')} {entry.get('Message', '')}".strip()

    def _detail(self, warning: "LimitWarning") -> dict[str, Any]:
        return {"table": self._table_name, **warning.as_dict()}

    def _client(self, service: str) -> Any:
        if service not in self._clients:
            # A call that is repeated after a lost answer would send a warning twice.
            config = Config(retries={"total_max_attempts": 1}, connect_timeout=_CONNECT_S, read_timeout=_READ_S)
            self._clients[service] = self._make_client(service, config)
        return self._clients[service]


def _failures(sending: Iterator[str]) -> list[str]:
    """Send, and return what failed."""
    try:
        return list(sending)
    except (BotoCoreError, ClientError) as error:
        return [repr(error)]


def _subject(warning: "LimitWarning") -> str:
    """Return the subject of a mail: ASCII in one line, and not too long."""
    text = f"{warning.limit.name} of {warning.entity_id} has reached {warning.threshold:.1%}"
    return text.encode("ascii", "replace").decode()[:_LONGEST_SUBJECT]


def _message(detail: Mapping[str, Any], text: str) -> str:
    """Return the text of a mail: the sentence, and the JSON for programs in the last line."""
    return f"{text}\n\n{_json(detail)}"


def _json(value: Mapping[str, Any]) -> str:
    return json.dumps(value, separators=(",", ":"))
