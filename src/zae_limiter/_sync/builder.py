"""The builder that configures, deploys and opens a limiter on DynamoDB."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable, Mapping
from random import Random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from zae_limiter._sync.deployment import DeploymentPlan
from zae_limiter._sync.open import Opening, open_scope
from zae_limiter._sync.store.scope import Scope
from zae_limiter.clock import SystemClock
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import replace
from zae_limiter.core.location import DynamoLocation, dynamo_url, without_credentials
from zae_limiter.core.names import check_namespace, check_stack_name
from zae_limiter.core.namespace import DEFAULT_NAMESPACE
from zae_limiter.core.settings import make_settings
from zae_limiter.core.status import OnUnavailable
from zae_limiter.core.version import chosen_update
from zae_limiter.infra.given_options import KEEP_ALL, GivenOptions, as_given
from zae_limiter.infra.options import StackOptions
from zae_limiter.runtime.threads import Parallel, ParallelMode

if TYPE_CHECKING:
    from zae_limiter.infra.stack import StackListener

R = TypeVar("R")


class SyncRepositoryBuilder(Generic[R]):
    """Collects options; each method returns the builder. ``build`` deploys the limiter and opens it.

    Nothing is checked, and no call to AWS is made, before ``build`` or ``connect``.

    Example:
        ```python
        repo = SyncRepository.builder("my-app", "us-east-1").namespace("default").lambda_memory(512).build()
        ```
    """

    def __init__(
        self, location: DynamoLocation, make: Callable[[Scope], R], parallel_mode: ParallelMode, session: Any = None
    ) -> None:
        self._location = location
        self._make = make
        self._parallel_mode = parallel_mode
        self._session = session
        self._namespace = DEFAULT_NAMESPACE
        self._auto_update: bool | None = None
        self._settings: dict[str, Any] = {}
        self._base: StackOptions | None = None
        self._chosen: dict[str, Any] = {}

    def build(self, listener: "StackListener | None" = None) -> R:
        """Deploy the stack, the version record and the default namespace, then open the table.

        If any stack option was set, the stack is created, or updated to these options; an existing stack keeps the
        options that were not set. If none was set, an existing stack is not changed, and a missing one is created with
        the defaults. ``listener`` is called for every step of the deployment.

        Raises:
            ValidationError: An option is invalid; nothing was deployed.
            NamespaceNotFoundError: The namespace does not exist.
            VersionError: The table has another schema or requires a newer client; nothing was deployed.
            InfrastructureError: The deployment failed; the error says why, and what to do.
        """
        deployment = self._deployment()
        deployment.provide(self._given(), listener)
        return self._make(open_scope(deployment.opening, Parallel(self._parallel_mode), self._namespace))

    def connect(self) -> R:
        """Open an existing limiter; no resources are created.

        Raises:
            ValidationError: An option is invalid.
            InfrastructureNotFoundError: The limiter does not exist.
            NamespaceNotFoundError: The namespace does not exist.
            VersionError: The versions are incompatible.
            InfrastructureError: There are no credentials, or the table does not respond.
        """
        return self._make(self._deployment().connect(Parallel(self._parallel_mode), self._namespace))

    def namespace(self, name: str) -> "SyncRepositoryBuilder[R]":
        """Open this namespace, which must be registered unless it is the default one."""
        self._namespace = name
        return self

    def auto_update(self, update: bool | None) -> "SyncRepositoryBuilder[R]":
        """Control the update of an aggregator that is older than this client.

        If True, it is always updated. If False, an older aggregator is an error. If None, it is updated on AWS if the
        caller has permission.
        """
        self._auto_update = update
        return self

    def config_cache_ttl(self, seconds: float) -> "SyncRepositoryBuilder[R]":
        """Cache stored limits for this many seconds; 0 disables the cache."""
        return self._set(config_cache_ttl_s=seconds)

    def bucket_ttl_multiplier(self, multiplier: int) -> "SyncRepositoryBuilder[R]":
        """Expire a bucket of default limits after this many times the time it takes to fill; 0 disables expiry."""
        return self._set(bucket_ttl_multiplier=multiplier)

    def on_unavailable(self, action: OnUnavailable | str | None) -> "SyncRepositoryBuilder[R]":
        """Allow or block requests while the table is unavailable."""
        return self._set(on_unavailable=action)

    def deadline_s(self, seconds: float) -> "SyncRepositoryBuilder[R]":
        """Wait for the table for at most this many seconds per acquire."""
        return self._set(deadline_s=seconds)

    def remembered_buckets(self, buckets: int) -> "SyncRepositoryBuilder[R]":
        """Cache this many buckets per namespace; the oldest are dropped, and read again at their next use."""
        return self._set(remembered_buckets=buckets)

    def settle_within(self, seconds: float) -> "SyncRepositoryBuilder[R]":
        """Let settlements wait up to this many seconds to share a write; 0 writes each when its lease ends."""
        return self._set(settle_within_s=seconds)

    def stack_options(self, options: StackOptions) -> "SyncRepositoryBuilder[R]":
        """Set all options of the stack; options set by another method take precedence.

        ``StackOptions()`` resets the options of an existing stack to the defaults.
        """
        self._base = options
        return self

    def snapshot_windows(self, windows: str) -> "SyncRepositoryBuilder[R]":
        """Count usage in these windows, such as ``hourly,daily,monthly``."""
        return self._choose(snapshot_windows=windows)

    def usage_interval_seconds(self, seconds: int) -> "SyncRepositoryBuilder[R]":
        """Count usage about once per this many seconds; 0 counts it every 2 seconds."""
        return self._choose(usage_interval_seconds=seconds)

    def usage_retention_days(self, days: int) -> "SyncRepositoryBuilder[R]":
        """Keep usage for this many days."""
        return self._choose(usage_retention_days=days)

    def audit_retention_days(self, days: int) -> "SyncRepositoryBuilder[R]":
        """Keep audit events in the table for this many days."""
        return self._choose(audit_retention_days=days)

    def enable_aggregator(self, enable: bool = True) -> "SyncRepositoryBuilder[R]":
        """Deploy a Lambda function that counts usage, splits hot buckets and archives audit events."""
        return self._choose(enable_aggregator=enable)

    def pitr_recovery_days(self, days: int) -> "SyncRepositoryBuilder[R]":
        """Enable point-in-time recovery of the table for this many days; 0 disables it."""
        return self._choose(pitr_recovery_days=days)

    def log_retention_days(self, days: int) -> "SyncRepositoryBuilder[R]":
        """Keep the aggregator's logs for this many days."""
        return self._choose(log_retention_days=days)

    def lambda_timeout(self, seconds: int) -> "SyncRepositoryBuilder[R]":
        """Set the aggregator's timeout per batch to this many seconds."""
        return self._choose(lambda_timeout=seconds)

    def lambda_memory(self, megabytes: int) -> "SyncRepositoryBuilder[R]":
        """Give the aggregator this many megabytes of memory."""
        return self._choose(lambda_memory=megabytes)

    def enable_alarms(self, enable: bool = True) -> "SyncRepositoryBuilder[R]":
        """Create alarms for the aggregator and for throttling."""
        return self._choose(enable_alarms=enable)

    def alarm_sns_topic(self, arn: str | None) -> "SyncRepositoryBuilder[R]":
        """Send alarms to this SNS topic."""
        return self._choose(alarm_sns_topic=arn)

    def warning_sns_topic(self, arn: str | None) -> "SyncRepositoryBuilder[R]":
        """Send the warnings of limits to this SNS topic, besides EventBridge."""
        return self._choose(warning_sns_topic=arn)

    def lambda_duration_threshold_pct(self, percent: int) -> "SyncRepositoryBuilder[R]":
        """Raise an alarm if the aggregator uses this percentage of its timeout."""
        return self._choose(lambda_duration_threshold_pct=percent)

    def permission_boundary(self, policy: str | None) -> "SyncRepositoryBuilder[R]":
        """Set this policy, given by name or ARN, as the permissions boundary of all roles."""
        return self._choose(permission_boundary=policy)

    def role_name_format(self, name_format: str) -> "SyncRepositoryBuilder[R]":
        """Set the format of role names; ``{}`` is replaced by the name."""
        return self._choose(role_name_format=name_format)

    def policy_name_format(self, name_format: str) -> "SyncRepositoryBuilder[R]":
        """Set the format of policy names; ``{}`` is replaced by the name."""
        return self._choose(policy_name_format=name_format)

    def enable_audit_archival(self, enable: bool = True) -> "SyncRepositoryBuilder[R]":
        """Archive audit events when they expire."""
        return self._choose(enable_audit_archival=enable)

    def audit_archive_glacier_days(self, days: int) -> "SyncRepositoryBuilder[R]":
        """Move archived events to Glacier after this many days."""
        return self._choose(audit_archive_glacier_days=days)

    def enable_tracing(self, enable: bool = True) -> "SyncRepositoryBuilder[R]":
        """Trace the aggregator with X-Ray."""
        return self._choose(enable_tracing=enable)

    def create_iam_roles(self, create: bool = True) -> "SyncRepositoryBuilder[R]":
        """Create roles for applications, operators and readers."""
        return self._choose(create_iam_roles=create)

    def create_iam(self, create: bool = True) -> "SyncRepositoryBuilder[R]":
        """Create policies and the aggregator's role; if False, no IAM resources are created.

        An aggregator then needs ``aggregator_role_arn``. Without that role, no aggregator is created.
        """
        return self._choose(create_iam=create)

    def aggregator_role_arn(self, arn: str | None) -> "SyncRepositoryBuilder[R]":
        """Run the aggregator with this existing role."""
        return self._choose(aggregator_role_arn=arn)

    def enable_deletion_protection(self, enable: bool = True) -> "SyncRepositoryBuilder[R]":
        """Protect the table from deletion."""
        return self._choose(enable_deletion_protection=enable)

    def tags(self, tags: Mapping[str, str]) -> "SyncRepositoryBuilder[R]":
        """Set these tags on the stack and its resources."""
        return self._choose(tags=tags)

    def _set(self, **settings: Any) -> "SyncRepositoryBuilder[R]":
        self._settings.update(settings)
        return self

    def _choose(self, **options: Any) -> "SyncRepositoryBuilder[R]":
        self._chosen.update(options)
        return self

    def _given(self) -> GivenOptions | None:
        """Return the options of the stack that were set, None if none was set."""
        if self._base is not None and not isinstance(self._base, StackOptions):
            raise ValidationError("stack_options", self._base, "must be StackOptions")
        if self._base is None:
            return GivenOptions(self._chosen) if self._chosen else None
        return GivenOptions({**as_given(self._base).chosen, **self._chosen}, reset=True)

    def _deployment(self) -> DeploymentPlan:
        """Check every option, and return what to deploy and open."""
        check_stack_name(self._location.name)
        check_namespace(self._namespace)
        given = self._given() or KEEP_ALL
        given.check()
        settings = make_settings(**self._settings)
        if "audit_retention_days" in given.chosen:
            settings = replace(settings, audit_retention_days=given.chosen["audit_retention_days"])
        opening = Opening(self._location, settings, SystemClock(), Random(), self._session, given)
        return DeploymentPlan(opening, self._location, chosen_update(self._auto_update))

    def __repr__(self) -> str:
        # Options may have account numbers and tags, so only their names are shown.
        chosen = sorted({*self._settings, *self._chosen} | ({"stack_options"} if self._base is not None else set()))
        options = f", options={chosen}" if chosen else ""
        url = without_credentials(dynamo_url(self._location))
        return f"{type(self).__name__}({url!r}, namespace={self._namespace!r}{options})"
