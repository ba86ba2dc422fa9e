"""Read the events of a stack, each event once. Blocking."""

from collections.abc import Iterator
from typing import Any

from zae_limiter.infra.progress import StackEvent, event_of


class EventLog:
    """The events of a stack, or of the operation that was started with a token."""

    def __init__(self, client: Any, stack_id: str, token: str | None = None) -> None:
        self._client = client
        self._stack_id = stack_id
        self._token = token
        self._heard: dict[str, StackEvent] = {}

    @property
    def heard(self) -> list[StackEvent]:
        """The events read so far, oldest first."""
        return list(self._heard.values())

    def fresh(self) -> list[StackEvent]:
        """Read new events, oldest first."""
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
                    # Earlier events belong to other operations and need not be read on every poll.
                    return
