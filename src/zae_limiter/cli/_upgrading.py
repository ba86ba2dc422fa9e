"""Upgrade a limiter to this installation: first its stack, then its aggregator, then the table's layout.

The aggregator is upgraded first, so that it knows the new layout when items move.
"""

from dataclasses import dataclass, field
from importlib import metadata

from zae_limiter._sync.repository import SyncRepository
from zae_limiter._sync.upgrade import inspect, record_deployed, upgrade
from zae_limiter.cli._place import StoreLocation, Target
from zae_limiter.core.version import Migrated, VersionRecord, parse_version
from zae_limiter.infra.function import AggregatorFunction, package_sha256
from zae_limiter.infra.lambda_package import build_package
from zae_limiter.infra.options import StackOptions, template_parameters
from zae_limiter.infra.provision import update_code
from zae_limiter.infra.stack import Stack, StackListener

_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class Upgraded:
    """What was changed, or would be in a dry run; None if it does not apply or cannot be predicted.

    ``newer_function`` is the version of an aggregator that is newer than this installation and
    stays.
    """

    stack_changed: bool | None = None
    code_changed: bool | None = None
    newer_function: str | None = None
    migrations: list[Migrated] = field(default_factory=list)


def plan_upgrade(target: Target) -> Upgraded:
    """Return what an upgrade would do, without changes.

    Raises:
        IncompatibleSchemaError: The table's schema is newer than this installation's.
        InfrastructureError: The limiter does not exist, is unusable, or did not answer.
    """
    newer = newer_function(inspect(target.url).record)
    differs = None
    if target.place is not None and newer is None:
        runs = AggregatorFunction(target.place.name, target.place.region.clients()).code_sha256()
        differs = None if runs is None else runs != package_sha256(build_package())
    return Upgraded(None, differs, newer, upgrade(target.url, dry_run=True))


def upgrade_limiter(target: Target, principal: str | None, listener: StackListener) -> Upgraded:
    """Upgrade a limiter. Call it again to finish an interrupted upgrade.

    Raises:
        IncompatibleSchemaError: The table's schema is newer than this installation's; nothing was changed.
        InfrastructureError: The upgrade failed; the message has the reason.
    """
    newer = newer_function(inspect(target.url).record)
    # Raise before any change if the table is newer than this installation.
    upgrade(target.url, dry_run=True)
    stack_changed, code_changed = None, None
    if target.place is not None and newer is None:
        stack_changed = _update_stack(target.place, listener)
        code_changed = update_code(target.place.name, target.place.region.clients())
    done = upgrade(target.url, principal=principal)
    if target.place is not None:
        if newer is None:
            # Without a function, remove its old version from the record.
            version = None if code_changed is None else metadata.version("zae-limiter")
            record_deployed(target.place.url, version, _retention_days(target.place))
        _provide_rest(target.place)
    return Upgraded(stack_changed, code_changed, newer, done)


def newer_function(record: VersionRecord | None) -> str | None:
    """Return the version of the aggregator if it is newer than this installation, else None."""
    if record is None or record.lambda_version is None:
        return None
    own = parse_version(metadata.version("zae-limiter"))
    return record.lambda_version if parse_version(record.lambda_version) > own else None


def _update_stack(place: StoreLocation, listener: StackListener) -> bool | None:
    """Update the stack to the newest template with its current options; None if it is not ours to update.

    A table may have no stack. A stack without our parameters was made by the CDK, which keeps its
    options.
    """
    stack = Stack(place.name, place.region.clients())
    found = stack.describe()
    if found is None or not template_parameters(place.name, StackOptions()).keys() & found.parameters.keys():
        return None
    return stack.update(listener=listener).changed


def _retention_days(place: StoreLocation) -> int | None:
    """Return how many days the stack keeps audit events; None without a stack, or for one of an older version."""
    found = Stack(place.name, place.region.clients()).describe()
    days = "" if found is None else found.outputs.get("AuditRetentionDays", "")
    return int(days) if days.isdecimal() else None


def _provide_rest(place: StoreLocation) -> None:
    """Create the default namespace, which a stack that other tools deployed does not have."""
    region = place.region
    builder = SyncRepository.builder(place.name, region.name, endpoint_url=region.endpoint_url)
    builder.deadline_s(_DEADLINE_S).build().close()
