"""Upgrading a limiter to this installation: its stack, its aggregator, the layout of its table, in that order.

The aggregator goes first, so that what moves in the table is counted by one that knows the new layout.
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
    """What was changed, or in a dry run would be; None is what there is not, or nobody can say beforehand.

    ``newer_function`` is the version of an aggregator that is newer than this installation, and stays.
    """

    stack_changed: bool | None = None
    code_changed: bool | None = None
    newer_function: str | None = None
    migrations: list[Migrated] = field(default_factory=list)


def plan_upgrade(target: Target) -> Upgraded:
    """Say what an upgrade would do, and change nothing.

    Raises:
        IncompatibleSchemaError: The table's schema is newer than this installation's.
        InfrastructureError: The limiter is not there, cannot be used, or did not answer.
    """
    newer = newer_function(inspect(target.url).record)
    differs = None
    if target.place is not None and newer is None:
        runs = AggregatorFunction(target.place.name, target.place.region.clients()).code_sha256()
        differs = None if runs is None else runs != package_sha256(build_package())
    return Upgraded(None, differs, newer, upgrade(target.url, dry_run=True))


def upgrade_limiter(target: Target, principal: str | None, listener: StackListener) -> Upgraded:
    """Upgrade a limiter; one that was interrupted is finished by calling it again.

    Raises:
        IncompatibleSchemaError: The table's schema is newer than this installation's; nothing was changed.
        InfrastructureError: It cannot be done; the text says why.
    """
    newer = newer_function(inspect(target.url).record)
    # A table that is newer than this installation is found out before anything is changed.
    upgrade(target.url, dry_run=True)
    stack_changed, code_changed = None, None
    if target.place is not None and newer is None:
        stack_changed = _update_stack(target.place, listener)
        code_changed = update_code(target.place.name, target.place.region.clients())
    done = upgrade(target.url, principal=principal)
    if target.place is not None:
        if newer is None:
            # One that is gone is no longer told to be old.
            version = None if code_changed is None else metadata.version("zae-limiter")
            record_deployed(target.place.url, version, _retention_days(target.place))
        _provide_rest(target.place)
    return Upgraded(stack_changed, code_changed, newer, done)


def newer_function(record: VersionRecord | None) -> str | None:
    """Return the version of the aggregator if it is newer than this installation."""
    if record is None or record.lambda_version is None:
        return None
    own = parse_version(metadata.version("zae-limiter"))
    return record.lambda_version if parse_version(record.lambda_version) > own else None


def _update_stack(place: StoreLocation, listener: StackListener) -> bool | None:
    """Bring the stack to the newest template, with the options it has; None where that is nothing to us.

    A table may have no stack, and a stack without our parameters was made by the CDK, which has its options.
    """
    stack = Stack(place.name, place.region.clients())
    found = stack.describe()
    if found is None or not template_parameters(place.name, StackOptions()).keys() & found.parameters.keys():
        return None
    return stack.update(listener=listener).changed


def _retention_days(place: StoreLocation) -> int | None:
    """Return for how long the stack wants audit events to be kept, None where there is no stack, or one of old."""
    found = Stack(place.name, place.region.clients()).describe()
    days = "" if found is None else found.outputs.get("AuditRetentionDays", "")
    return int(days) if days.isdecimal() else None


def _provide_rest(place: StoreLocation) -> None:
    """See that the default namespace is there, which a stack that was made by other means does not have."""
    region = place.region
    builder = SyncRepository.builder(place.name, region.name, endpoint_url=region.endpoint_url)
    builder.deadline_s(_DEADLINE_S).build().close()
