"""Report failures to the shell: one line on stderr with advice, and an exit code."""

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import NamedTuple, NoReturn

import click

from zae_limiter.cli._endpoint import stopped_endpoint_line
from zae_limiter.cli._hints import PLACE, calling, is_named
from zae_limiter.core.errors import (
    AmountExceedsCapacityError,
    EntityBlockedError,
    EntityError,
    EntityExistsError,
    EntityHasChildrenError,
    EntityNotFoundError,
    InfrastructureError,
    InfrastructureNotFoundError,
    NamespaceNotFoundError,
    NamespaceStateError,
    RateLimiterUnavailable,
    RateLimitExceeded,
    UnsupportedByBackendError,
    ValidationError,
    ZAELimiterError,
)
from zae_limiter.core.limit_text import left_text, requested_text
from zae_limiter.core.money import format_with_unit
from zae_limiter.core.names import ALL_RESOURCES
from zae_limiter.core.namespace import DEFAULT_NAMESPACE
from zae_limiter.core.status import LimitStatus
from zae_limiter.core.version_errors import KindNotAllowedError, VersionError

FAILED = 1
MISUSED = 2
UNAVAILABLE = 69
"""The store is unavailable or unusable: EX_UNAVAILABLE of sysexits.h."""
TRY_LATER = 75
"""A limit lacks the tokens: EX_TEMPFAIL of sysexits.h."""
BLOCKED = 77
"""An operator has blocked the entity: EX_NOPERM of sysexits.h."""
INTERRUPTED = 130

# The options for arguments that have another name in the library.
_OPTIONS = {
    **dict.fromkeys(("start_event_id", "cursor", "next_key"), "--cursor"),
    "cascade_resources": "--cascade-resource",
    "parent_id": "--parent",
    "principal": "--principal",
    "reason": "--reason",
    "until": "--until",
}


class CommandFailure(NamedTuple):
    """The line for the user, and the exit code."""

    line: str
    exit_code: int


@contextmanager
def told_in_one_line() -> Iterator[None]:
    """Report every expected failure in one line; unexpected ones keep their traceback."""
    try:
        yield
    except click.exceptions.NoArgsIsHelpError:
        raise
    except click.UsageError as error:
        _tell(CommandFailure(f"Error: {_usage(error)}", MISUSED))
    except ZAELimiterError as error:
        _tell(_about_endpoint(failure_of(error)))
    except KeyboardInterrupt:
        tell_interrupted()
        raise click.exceptions.Exit(INTERRUPTED) from None


def tell_interrupted() -> None:
    """Report an interrupt. In a terminal, first end the line with the echo of Ctrl-C."""
    # Ctrl-C also ends a program that reads stderr through a pipe.
    with suppress(OSError):
        click.echo("\nInterrupted." if sys.stderr.isatty() else "Interrupted.", err=True)


def failure_of(error: ZAELimiterError) -> CommandFailure:
    """Return the line and the exit code of an error."""
    match error:
        case AmountExceedsCapacityError():
            return CommandFailure(f"Error: {never_line(error)}", MISUSED)
        case RateLimitExceeded():
            return CommandFailure(exceeded_line(error), TRY_LATER)
        case EntityBlockedError():
            return CommandFailure(blocked_line(error), BLOCKED)
        case RateLimiterUnavailable():
            why = "it did not answer" if error.cause is None else str(error.cause)
            return CommandFailure(f"Error: the store is unavailable: {why}. Retry later.", UNAVAILABLE)
        case ValidationError():
            return CommandFailure(f"Error: {validation_line(error)}", MISUSED)
        case NamespaceNotFoundError() | UnsupportedByBackendError():
            return CommandFailure(f"Error: {helpful_line(error)}", MISUSED)
        case InfrastructureError() if not isinstance(error, NamespaceStateError):
            return CommandFailure(f"Error: {helpful_line(error)}", UNAVAILABLE)
        case _:
            return CommandFailure(f"Error: {helpful_line(error)}", FAILED)


def _about_endpoint(failure: CommandFailure) -> CommandFailure:
    """Replace the line of an unavailable store by how to start or leave the local AWS, if that is the cause."""
    line = stopped_endpoint_line() if failure.exit_code == UNAVAILABLE else None
    return failure if line is None else CommandFailure(f"Error: {line}", UNAVAILABLE)


def validation_line(error: ValidationError) -> str:
    """Describe an invalid value with the option names of the command line."""
    if error.field == "limits" and error.value is None:
        store = calling("system set-defaults -l rpm:100")
        # Names may contain colons, but no spaces.
        return f"{error.reason.partition(': ')[0]}; pass -l rpm:100, or set defaults with: {store}"
    if error.field == "region" and error.value is None:
        return error.reason
    return str(ValidationError(_OPTIONS.get(error.field, error.field), error.value, error.reason))


def helpful_line(error: ZAELimiterError) -> str:
    """Describe a problem, and the command that helps."""
    match error:
        case EntityError():
            return entity_line(error)
        case NamespaceNotFoundError():
            return namespace_line(error)
        case NamespaceStateError():
            return state_line(error)
        case KindNotAllowedError():
            allow = calling(f"upgrade --allow {error.kind}", PLACE)
            return (
                f"the table does not allow items of the kind {error.kind!r} yet; update all clients, then run: {allow}"
            )
        case VersionError() if error.client_outdated:
            # Imported here, because it reads the metadata of the package.
            from zae_limiter.installation import this_installation

            return f"{str(error).removesuffix('.')}: {this_installation().upgrade_advice()}"
        # Its subclasses are about other stacks than that of a limiter.
        case InfrastructureNotFoundError() if is_named() and type(error) is InfrastructureNotFoundError:
            where = "" if error.region is None else f" in {error.region}"
            return f"There is no limiter {error.name!r}{where}. Deploy it with: {calling('deploy', PLACE)}"
        case _:
            return str(error)


def entity_line(error: EntityError) -> str:
    """Describe a problem with an entity, and the command that helps."""
    named = shlex.quote(error.entity_id)
    match error:
        case EntityNotFoundError():
            return f"there is no entity {error.entity_id!r}; create it: {calling(f'entity create {named}')}"
        case EntityExistsError():
            return f"entity {error.entity_id!r} exists already; show it: {calling(f'entity show {named}')}"
        case EntityHasChildrenError():
            children = calling(f"entity children {named}")
            return f"entity {error.entity_id!r} has children, which must be deleted first; list them: {children}"
        case _:
            return str(error)


def namespace_line(error: NamespaceNotFoundError) -> str:
    """Report that a namespace does not exist, and the commands that help."""
    if error.namespace == DEFAULT_NAMESPACE:
        return f"the limiter has no namespace {error.namespace!r}; create it: {calling('upgrade', PLACE)}"
    register = calling(f"namespace register {shlex.quote(error.namespace)}", PLACE)
    return (
        f"there is no namespace {error.namespace!r}; register it: {register}, "
        f"or list deleted namespaces: {calling('namespace orphans', PLACE)}"
    )


def state_line(error: NamespaceStateError) -> str:
    """Report the state of a namespace, and the command that helps."""
    if (error.operation, error.status) == ("purge", "active"):
        delete = calling(f"namespace delete {shlex.quote(error.namespace)}", PLACE)
        return f"namespace {error.namespace!r} is active; delete it first: {delete}"
    return str(error)


def exceeded_line(error: RateLimitExceeded) -> str:
    """Report which limits lack tokens, and when a retry would be admitted.

    Example: ``rate limit exceeded: rpm of user-1 for gpt-4: 0 of 100 available, 1 requested; retry
    after 0.6 s``.
    """
    short = [
        f"{status.limit_name} of {bucket_words(status.entity_id, status.resource)}: "
        f"{left_words(status)}, {requested_text(status)}"
        for status in error.violations
    ]
    line = f"rate limit exceeded: {'; '.join(short)}; retry after {in_seconds(error.next_try_seconds)}"
    return line if error.exact else f"{line}, as slots are returned at any time"


def left_words(status: LimitStatus) -> str:
    """Describe what is left of a limit: ``0 of 100 available``, or of slots ``12 of 20 in use, 8 free``."""
    limit = status.limit
    if status.in_use is None:
        return f"{left_text(limit, status.available)} available"
    return f"{left_text(limit, status.in_use)} in use, {status.available} free"


def never_line(error: AmountExceedsCapacityError) -> str:
    """Report which amounts exceed a capacity, so that no wait helps.

    Example: ``never admitted: 600 requested, but the capacity of rpm of user-1 for gpt-4 is 500``.
    """
    above = [status for status in error.statuses if status.requested > status.limit.capacity]
    named = [
        f"{format_with_unit(one.requested, one.limit.unit)} requested, but the capacity of {one.limit_name} of "
        f"{bucket_words(one.entity_id, one.resource)} is {format_with_unit(one.limit.capacity, one.limit.unit)}"
        for one in above
    ]
    return f"never admitted: {'; '.join(named)}" if named else str(error)


def blocked_line(error: EntityBlockedError) -> str:
    """Report which entity is blocked, for what, until when and why, and the command that helps.

    Example: ``blocked: project-1 for all resources: unpaid invoice; unblock it: zae-limiter entity
    unblock project-1``.
    """
    # Imported here, because few commands describe a block.
    from zae_limiter.cli._entity_facts import block_words
    from zae_limiter.core.entity import EntityBlock

    words = block_words(EntityBlock(error.resource, error.reason, error.until))
    option = "" if error.resource is None else f" --resource {shlex.quote(error.resource)}"
    unblock = calling(f"entity unblock {shlex.quote(error.entity_id)}{option}")
    return f"blocked: {error.entity_id} for {words}; unblock it: {unblock}"


def bucket_words(entity_id: str, resource: str) -> str:
    """Describe a bucket: ``user-1 for gpt-4``, ``user-1 across resources``."""
    return f"{entity_id} across resources" if resource == ALL_RESOURCES else f"{entity_id} for {resource}"


def in_seconds(seconds: float) -> str:
    """Format a duration to the millisecond, without trailing zeros: ``0.6 s``."""
    return f"{seconds:.3f}".rstrip("0").rstrip(".") + " s"


def _tell(failure: CommandFailure) -> NoReturn:
    click.echo(failure.line, err=True)
    raise click.exceptions.Exit(failure.exit_code)


def _usage(error: click.UsageError) -> str:
    message = error.format_message()
    # A message that contains a command needs no further hint.
    if error.ctx is None or "zae-limiter " in message:
        return message
    ending = "" if message.endswith((".", "?", "!")) else "."
    return f"{message}{ending} See: {error.ctx.command_path} --help"
