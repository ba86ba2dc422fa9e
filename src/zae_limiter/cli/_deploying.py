"""Deploy a limiter and show every step."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import metadata

from zae_limiter._sync.deployment import deploy_stack
from zae_limiter._sync.upgrade import inspect
from zae_limiter.cli._output import print_note, working
from zae_limiter.cli._place import StoreLocation
from zae_limiter.core.errors import InfrastructureNotFoundError, StackOperationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.location import DynamoLocation, selecting_options
from zae_limiter.core.version import UPGRADE, check_client
from zae_limiter.infra.given_options import KEEP_ALL, GivenOptions, OptionChange, option_changes
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.progress import StackEvent
from zae_limiter.infra.stack import Stack, StackListener, kept_options
from zae_limiter.infra.stack_state import StackState


@dataclass(frozen=True, slots=True)
class Deployed:
    """A deployed stack, and the options that changed; None if it is new, or if its old options are unknown.

    ``dropped_aggregator`` is True if it has no aggregator only because it has no IAM resources.
    ``is_complete`` is False if the stack is still being created or updated.
    """

    state: StackState
    changes: list[OptionChange] | None
    dropped_aggregator: bool
    is_complete: bool = True


@contextmanager
def steps_shown(title: str) -> Iterator[Callable[[StackEvent | str], None]]:
    """Show the newest event of a long operation in a terminal, or every event as a line elsewhere."""
    with working(title) as say:

        def hear(event: StackEvent | str) -> None:
            if sys.stderr.isatty():
                say(f"{title}: {event}")
            else:
                print_note(f"{title}: {event}")

        yield hear


def deploy_limiter(place: StoreLocation, given: GivenOptions, listener: StackListener) -> Deployed:
    """Provide the stack, the aggregator's code, the version record and the default namespace.

    Raises:
        ValidationError: An option contradicts one of the stack; nothing was changed.
        VersionError: The existing table is incompatible with this client; nothing was changed.
        InfrastructureError: The deployment failed; the message has the reason.
    """
    stack = Stack(place.name, place.region.clients())
    before = stack.own(stack.wait(listener))
    deploy_stack(DynamoLocation(place.name, place.region.name, place.region.endpoint_url), given, listener)
    return _deployed(stack, given, before, is_complete=True)


def begin_deployment(place: StoreLocation, given: GivenOptions, listener: StackListener) -> Deployed:
    """Begin to create or update the stack, without waiting for the end. A stack that is up to date is completed.

    Raises:
        ValidationError: An option contradicts one of the stack; nothing was changed.
        VersionError: The existing table is incompatible with this client; nothing was changed.
        InfrastructureError: The deployment cannot begin now; the message has the reason.
    """
    _check_version(place.url)
    stack = Stack(place.name, place.region.clients())
    before = stack.own(stack.describe())
    if not stack.begin(given).changed:
        return deploy_limiter(place, given, listener)
    return _deployed(stack, given, before, is_complete=False)


def _deployed(stack: Stack, given: GivenOptions, before: StackState | None, *, is_complete: bool) -> Deployed:
    old = _old_options(before)
    changes = None if old is None else option_changes(old, given.over(old))
    return Deployed(stack.require(), changes, given.drops_aggregator(old), is_complete)


def _old_options(before: StackState | None) -> StackOptions | None:
    """Return the options of a stack before its deployment, None if there are none or they cannot be read."""
    try:
        return kept_options(KEEP_ALL, before)
    except StackOperationError:
        # A reset replaces such options without reading them.
        return None


def _check_version(url: str) -> None:
    """Require a table that this client may use, or none."""
    try:
        record = inspect(url).record
    except InfrastructureNotFoundError:
        return
    if record is not None:
        check_client(record, metadata.version("zae-limiter"), f"{UPGRADE}{selecting_options(url)}")
