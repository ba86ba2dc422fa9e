"""Deploy a limiter and show every step."""

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
    """Show the newest event of an operation on a stack in a terminal, or every event as a line elsewhere."""
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
        VersionError: The existing table is incompatible with this client; nothing was changed.
        InfrastructureError: The deployment failed; the message has the reason.
    """
    builder = SyncRepository.builder(place.name, place.region.name, endpoint_url=place.region.endpoint_url)
    builder.stack_options(options).deadline_s(_DEADLINE_S).build(listener).close()
    return Stack(place.name, place.region.clients()).require()
