"""Provide a limiter: deploy its stack with the given options, and the aggregator's code. Blocking."""

from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.function import AggregatorFunction
from zae_limiter.infra.given_options import GivenOptions
from zae_limiter.infra.lambda_package import build_package
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.progress import StackStep, next_step
from zae_limiter.infra.stack import Stack, StackListener, ignore
from zae_limiter.infra.stack_state import StackState


@dataclass(frozen=True, slots=True)
class Provided:
    """A deployed limiter with its options, and what was changed."""

    state: StackState
    options: StackOptions
    stack_changed: bool
    code_changed: bool


def provide(
    name: str,
    clients: Clients,
    options: StackOptions | GivenOptions,
    listener: StackListener = ignore,
    *,
    keep_code: bool = False,
) -> Provided:
    """Create or update the stack, and upload this installation's aggregator code; a repeated call changes nothing.

    With ``keep_code`` the aggregator keeps its current code.

    Raises:
        InvalidNameError: The name is not a valid stack name.
        ValidationError: An option contradicts another one, or a name that is derived from it is too long.
        StorageError: There are no credentials. Nothing was created.
        StackOperationError: AWS refuses the call, or an operation failed; the message has the reason.
    """
    stack = Stack(name, clients)
    after = stack.options_after(options, stack.own(stack.wait(listener)))
    package = build_package() if after.enable_aggregator and not keep_code else None
    done = stack.deploy(options, listener)
    uploaded = package is not None and AggregatorFunction(name, clients).upload(package)
    return Provided(done.state, after, done.changed, uploaded)


def provide_missing(name: str, clients: Clients, listener: StackListener = ignore) -> bool:
    """Create a limiter if it does not exist, and return whether it has an aggregator.

    An existing stack is left as it is, except for the code of its aggregator. An existing table
    without a stack is left as it is. If neither exists, a stack with default options is created.

    Raises:
        InvalidNameError: The name is not a valid stack name.
        StorageError: There are no credentials. Nothing was created.
        StackOperationError: AWS refuses the call, or an operation failed; the message has the reason.
    """
    stack = Stack(name, clients)
    found = stack.own(stack.wait(listener))
    if found is not None and next_step(found.status) is not StackStep.REPLACE:
        # A stack that was deployed by other tools may lack our parameters, so check for the
        # function itself.
        return update_code(name, clients) is not None
    if found is None and stack.table_facts() is not None:
        return False
    provide(name, clients, StackOptions(), listener)
    return True


def update_code(name: str, clients: Clients, *, force: bool = False) -> bool | None:
    """Upload this installation's code to the aggregator; False if it has it already, None if there is no aggregator.

    With ``force`` the code is uploaded even if the aggregator has it already.

    Raises:
        StorageError: There are no credentials.
        StackOperationError: AWS refuses the call, or the function does not start; the message has the reason.
    """
    function = AggregatorFunction(name, clients)
    return None if function.code_sha256() is None else function.upload(build_package(), force=force)
