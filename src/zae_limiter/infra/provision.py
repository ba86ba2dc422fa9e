"""Provides a limiter: its stack as the options say, and the aggregator's code in it. Blocking."""

from dataclasses import dataclass

from zae_limiter.infra.clients import Clients
from zae_limiter.infra.function import AggregatorFunction
from zae_limiter.infra.lambda_package import build_package
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.progress import StackStep, next_step
from zae_limiter.infra.stack import Stack, StackListener, StackState, ignore


@dataclass(frozen=True, slots=True)
class Provided:
    """A limiter that stands, and what was changed for that."""

    state: StackState
    stack_changed: bool
    code_changed: bool


def provide(
    name: str, clients: Clients, options: StackOptions, listener: StackListener = ignore, *, keep_code: bool = False
) -> Provided:
    """Create or update the stack, and have its aggregator run from the code of this installation; again does nothing.

    ``keep_code``: the aggregator goes on with the code it has.

    Raises:
        InvalidNameError: No stack can have the name.
        ValidationError: A name that the stack would make is too long.
        StorageError: The aggregator's package cannot be made, or there are no credentials. Nothing was made then.
        StackOperationError: AWS refuses, or something failed; the text says what, and why.
    """
    stack = Stack(name, clients)
    package = build_package() if options.enable_aggregator and not keep_code else None
    done = stack.deploy(options, listener)
    uploaded = package is not None and AggregatorFunction(name, clients).upload(package)
    return Provided(done.state, done.changed, uploaded)


def provide_missing(name: str, clients: Clients, listener: StackListener = ignore) -> bool:
    """See that a limiter stands, and return whether it has an aggregator.

    A stack that stands is left as it is, but for the code of its aggregator, and so is a table without a stack. Where
    there is neither, all is made by default.

    Raises:
        InvalidNameError: No stack can have the name.
        StorageError: The aggregator's package cannot be made, or there are no credentials. Nothing was made then.
        StackOperationError: AWS refuses, or something failed; the text says what, and why.
    """
    stack = Stack(name, clients)
    found = stack.own(stack.wait(listener))
    if found is not None and next_step(found.status) is not StackStep.REPLACE:
        # A stack of other means may lack our parameters, so it is the function itself that is looked for.
        return update_code(name, clients) is not None
    if found is None and stack.table_facts() is not None:
        return False
    provide(name, clients, StackOptions(), listener)
    return True


def update_code(name: str, clients: Clients) -> bool | None:
    """Have the aggregator of a stack run from the code of this installation; False if it did, None if there is none.

    Raises:
        StorageError: The aggregator's package cannot be made, or there are no credentials.
        StackOperationError: AWS refuses, or the function does not come up with it; the text says why.
    """
    function = AggregatorFunction(name, clients)
    return None if function.code_sha256() is None else function.upload(build_package())
