"""Deploying a limiter, with every step of it shown."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata

from zae_limiter._sync.repository import SyncRepository
from zae_limiter._sync.upgrade import inspect, record_function
from zae_limiter.cli._output import print_note, working
from zae_limiter.cli._place import Place
from zae_limiter.core.errors import InfrastructureNotFoundError
from zae_limiter.core.version import check_client
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.progress import StackEvent
from zae_limiter.infra.provision import provide
from zae_limiter.infra.stack import Listener, StackState

_DEADLINE_S = 30.0


@contextmanager
def steps_shown(title: str) -> Iterator[Listener]:
    """Show the newest step of work on a stack, or, where nobody is looking, all of them, a line each."""
    with working(title) as say:

        def hear(event: StackEvent) -> None:
            if sys.stderr.isatty():
                say(f"{title}: {event}")
            else:
                print_note(f"{title}: {event}")

        yield hear


def deploy_limiter(place: Place, options: StackOptions, listener: Listener) -> StackState:
    """Provide the stack, the aggregator's code, the version record and the default namespace.

    Raises:
        VersionError: The table that stands does not go with this client; nothing was changed.
        InfrastructureError: It cannot be done; the text says why.
    """
    own = metadata.version("zae-limiter")
    _require_usable(place, own)
    provided = provide(place.name, place.region.clients(), options, listener)
    with SyncRepository.open(f"{place.url}{'&' if '?' in place.url else '?'}create=true", deadline_s=_DEADLINE_S):
        pass
    record_function(place.url, own if options.enable_aggregator else None)
    return provided.state


def _require_usable(place: Place, own: str) -> None:
    try:
        seen = inspect(place.url).record
    except InfrastructureNotFoundError:
        return
    if seen is not None:
        check_client(seen, own)
