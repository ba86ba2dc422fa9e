"""Deploying a limiter, with every step of it shown."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from zae_limiter._sync.repository import SyncRepository
from zae_limiter.cli._output import print_note, working
from zae_limiter.cli._place import StoreLocation
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.progress import StackEvent
from zae_limiter.infra.stack import Stack, StackListener, StackState

_DEADLINE_S = 30.0


@contextmanager
def steps_shown(title: str) -> Iterator[StackListener]:
    """Show the newest step of work on a stack, or, where nobody is looking, all of them, a line each."""
    with working(title) as say:

        def hear(event: StackEvent) -> None:
            if sys.stderr.isatty():
                say(f"{title}: {event}")
            else:
                print_note(f"{title}: {event}")

        yield hear


def deploy_limiter(place: StoreLocation, options: StackOptions, listener: StackListener) -> StackState:
    """Provide the stack, the aggregator's code, the version record and the default namespace.

    Raises:
        VersionError: The table that stands does not go with this client; nothing was changed.
        InfrastructureError: It cannot be done; the text says why.
    """
    builder = SyncRepository.builder(place.name, place.region.name, endpoint_url=place.region.endpoint_url)
    builder.stack_options(options).deadline_s(_DEADLINE_S).build(listener).close()
    return Stack(place.name, place.region.clients()).require()
