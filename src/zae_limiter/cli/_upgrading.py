"""Upgrade a limiter to this installation: first its stack, then its aggregator, then the table's layout.

The aggregator is upgraded first, so that it knows the new layout when items move.
"""

from importlib import metadata

from zae_limiter._sync.repository import SyncRepository
from zae_limiter._sync.store.versions import Inspected
from zae_limiter._sync.upgrade import allow_kinds, inspect, record_deployed, upgrade
from zae_limiter.cli._place import StoreLocation, Target
from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.core.version import UPGRADE, Migrated, VersionRecord, check_client, compare, parse_version
from zae_limiter.infra.function import AggregatorFunction, package_sha256
from zae_limiter.infra.given_options import has_options
from zae_limiter.infra.lambda_package import build_package
from zae_limiter.infra.provision import update_code
from zae_limiter.infra.stack import Stack, StackListener

_DEADLINE_S = 30.0


@dataclass(frozen=True, slots=True)
class UpgradeScope:
    """What to upgrade: only the aggregator's code with ``lambda_only``, and that code always with ``force``.

    ``allow`` are kinds of items that the table may store afterwards.
    """

    lambda_only: bool = False
    force: bool = False
    allow: tuple[str, ...] = ()


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
    namespace_created: bool | None = None
    allowed: list[str] = field(default_factory=list)


def plan_upgrade(target: Target, scope: UpgradeScope) -> Upgraded:
    """Return what an upgrade would do, without changes.

    Raises:
        VersionError: The table requires a newer client.
        InfrastructureError: The limiter does not exist, is unusable, or did not answer.
    """
    seen = inspect(target.url)
    newer = _kept_function(seen, target, scope)
    differs = None
    if target.place is not None and newer is None:
        runs = AggregatorFunction(target.place.name, target.place.region.clients()).code_sha256()
        differs = None if runs is None else scope.force or runs != package_sha256(build_package())
    if scope.lambda_only:
        return Upgraded(None, differs, newer)
    created = None if target.place is None else not seen.has_default_namespace
    return Upgraded(None, differs, newer, upgrade(target.url, dry_run=True), created, _new_kinds(seen, scope))


def upgrade_limiter(target: Target, principal: str | None, listener: StackListener, scope: UpgradeScope) -> Upgraded:
    """Upgrade a limiter. Call it again to finish an interrupted upgrade.

    Raises:
        VersionError: The table requires a newer client; nothing was changed.
        InfrastructureError: The upgrade failed; the message has the reason.
    """
    seen = inspect(target.url)
    newer = _kept_function(seen, target, scope)
    if scope.lambda_only:
        return Upgraded(None, _update_function(target.place, newer, scope.force), newer)
    # Raise before any change if the table is newer than this installation.
    upgrade(target.url, dry_run=True)
    new_kinds = _new_kinds(seen, scope)
    if target.place is None:
        done = upgrade(target.url, principal=principal)
        allow_kinds(target.url, new_kinds, principal=principal)
        return Upgraded(None, None, newer, done, allowed=new_kinds)
    stack_changed = None if newer is not None else _update_stack(target.place, listener)
    code_changed = None
    if newer is None:
        code_changed = update_code(target.place.name, target.place.region.clients(), force=scope.force)
    done = upgrade(target.url, principal=principal)
    if newer is None:
        # Without a function, remove its old version from the record.
        version = None if code_changed is None else metadata.version("zae-limiter")
        record_deployed(target.place.url, version, _retention_days(target.place))
    _provide_rest(target.place)
    # Last, because the aggregator must know the kinds before the table may store them.
    allow_kinds(target.url, new_kinds, principal=principal)
    return Upgraded(stack_changed, code_changed, newer, done, not seen.has_default_namespace, new_kinds)


def _new_kinds(seen: Inspected, scope: UpgradeScope) -> list[str]:
    """Return the kinds to allow that the table does not allow yet."""
    known = {} if seen.record is None else seen.record.kinds
    return [kind for kind in dict.fromkeys(scope.allow) if kind not in known]


def _kept_function(seen: Inspected, target: Target, scope: UpgradeScope) -> str | None:
    """Return the version of an aggregator that is newer and stays, None if it may be replaced.

    Raises:
        VersionError: The table requires a newer client, or its schema must be upgraded first.
    """
    if seen.record is None:
        return None
    own, command = metadata.version("zae-limiter"), f"{UPGRADE}{target.options}"
    if scope.lambda_only or compare(seen.record, own).client_outdated:
        check_client(seen.record, own, command)
    return None if scope.force else newer_function(seen.record)


def _update_function(place: StoreLocation | None, newer: str | None, force: bool) -> bool | None:
    """Upload the code of this installation to the aggregator and record its version, unless it is newer."""
    if place is None or newer is not None:
        return None
    changed = update_code(place.name, place.region.clients(), force=force)
    if changed is not None:
        record_deployed(place.url, metadata.version("zae-limiter"))
    return changed


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
    if found is None or not has_options(found.parameters):
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
