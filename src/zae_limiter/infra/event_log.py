"""EventLog: the events of a stack, each read once. Blocking."""

from collections.abc import Iterator
from typing import Any

from zae_limiter.infra.progress import StackEvent, event_of


class EventLog:
    """The events of a stack, or of that work on it which was begun with a token."""

    def __init__(self, client: Any, stack_id: str, token: str | None = None) -> None:
        self._client = client
        self._stack_id = stack_id
        self._token = token
        self._heard: dict[str, StackEvent] = {}

    @property
    def heard(self) -> list[StackEvent]:
        """What was read so far, oldest first."""
        return list(self._heard.values())

    def fresh(self) -> list[StackEvent]:
        """Read what is new, oldest first."""
        fresh: list[StackEvent] = []
        for event in self._newest_first():
            if event.event_id in self._heard:
                break
            fresh.append(event)
        fresh.reverse()
        self._heard.update((event.event_id, event) for event in fresh)
        return fresh

    def _newest_first(self) -> Iterator[StackEvent]:
        begun = False
        for page in self._client.get_paginator("describe_stack_events").paginate(StackName=self._stack_id):
            for told in page["StackEvents"]:
                if self._token is None or told.get("ClientRequestToken") == self._token:
                    begun = True
                    yield event_of(told)
                elif begun:
                    # What came before is other work; it is not read again at every look.
                    return
