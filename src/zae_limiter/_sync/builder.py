"""SyncRepositoryBuilder: chooses, step by step, what a limiter on DynamoDB is to be, then provides and opens it."""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable, Mapping
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from zae_limiter._sync.deployment import DeploymentPlan
from zae_limiter._sync.open import Opening, open_scope
from zae_limiter._sync.store.scope import Scope
from zae_limiter.clock import SystemClock
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.location import DynamoLocation
from zae_limiter.core.names import check_namespace, check_stack_name
from zae_limiter.core.namespace import DEFAULT_NAMESPACE
from zae_limiter.core.settings import make_settings
from zae_limiter.core.status import OnUnavailable
from zae_limiter.core.version import chosen_update
from zae_limiter.infra.options import StackOptions
from zae_limiter.runtime.threads import Parallel, ParallelMode

if TYPE_CHECKING:
    from zae_limiter.infra.stack import StackListener

R = TypeVar("R")


class SyncRepositoryBuilder(Generic[R]):
    """Collects choices and returns itself from each; ``build`` provides what is missing, then opens it.

    Nothing is checked or asked of AWS before ``build`` or ``connect``.

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
        """See that the stack stands with its aggregator, its version and its default namespace, then open it.

        With any option of the stack chosen, the stack is made as all of them say. With none, one that stands is left
        as it is, and where there is none it is made by default. ``listener`` is told every step of work on the stack.

        Raises:
            ValidationError: A choice is not what it must be; nothing was made.
            NamespaceNotFoundError: There is no such namespace.
            VersionError: The table is of another schema or asks for a newer client; nothing was made.
            InfrastructureError: It cannot be done; the text says why, and what to do.
        """
        deployment = self._deployment()
        deployment.provide(self._options(), listener)
        return self._make(open_scope(deployment.opening, Parallel(self._parallel_mode), self._namespace))

    def connect(self) -> R:
        """Open what stands, and make nothing.

        Raises:
            ValidationError: A choice is not what it must be.
            InfrastructureNotFoundError: There is no such limiter.
            NamespaceNotFoundError: There is no such namespace.
            VersionError: The versions do not go together.
            InfrastructureError: There are no credentials, or nobody answers.
        """
        return self._make(self._deployment().connect(Parallel(self._parallel_mode), self._namespace))

    def namespace(self, name: str) -> "SyncRepositoryBuilder[R]":
        """See the table through this namespace, which must be registered unless it is the default one."""
        self._namespace = name
        return self

    def auto_update(self, update: bool | None) -> "SyncRepositoryBuilder[R]":
        """Bring an aggregator that is older than this client to its version.

        True: everywhere. False: nowhere, and an older one is an error. None: on AWS, where that is allowed.
        """
        self._auto_update = update
        return self

    def config_cache_ttl(self, seconds: float) -> "SyncRepositoryBuilder[R]":
        """Remember stored limits for so long; 0 reads them every time."""
        return self._set(config_cache_ttl_s=seconds)

    def bucket_ttl_multiplier(self, multiplier: int) -> "SyncRepositoryBuilder[R]":
        """Let buckets of default limits expire after so many times what they take to fill; 0: never."""
        return self._set(bucket_ttl_multiplier=multiplier)

    def on_unavailable(self, action: OnUnavailable | str | None) -> "SyncRepositoryBuilder[R]":
        """Allow or block calls while the table is away."""
        return self._set(on_unavailable=action)

    def deadline_s(self, seconds: float) -> "SyncRepositoryBuilder[R]":
        """Wait for the table for so long."""
        return self._set(deadline_s=seconds)

    def remembered_buckets(self, buckets: int) -> "SyncRepositoryBuilder[R]":
        """Cache this many buckets per namespace; the oldest are forgotten and read again when they are next used."""
        return self._set(remembered_buckets=buckets)

    def stack_options(self, options: StackOptions) -> "SyncRepositoryBuilder[R]":
        """Choose all options of the stack at once; those chosen one by one count more."""
        self._base = options
        return self

    def snapshot_windows(self, windows: str) -> "SyncRepositoryBuilder[R]":
        """Count usage by these windows, as in ``hourly,daily,monthly``."""
        return self._choose(snapshot_windows=windows)

    def usage_retention_days(self, days: int) -> "SyncRepositoryBuilder[R]":
        """Keep usage for so long."""
        return self._choose(usage_retention_days=days)

    def audit_retention_days(self, days: int) -> "SyncRepositoryBuilder[R]":
        """Keep audit events in the table for so long."""
        return self._choose(audit_retention_days=days)

    def enable_aggregator(self, enable: bool = True) -> "SyncRepositoryBuilder[R]":
        """Have a function that counts usage, splits hot buckets and archives audit events."""
        return self._choose(enable_aggregator=enable)

    def pitr_recovery_days(self, days: int) -> "SyncRepositoryBuilder[R]":
        """Be able to restore the table to any moment of so many days; 0: not at all."""
        return self._choose(pitr_recovery_days=days)

    def log_retention_days(self, days: int) -> "SyncRepositoryBuilder[R]":
        """Keep the aggregator's logs for so long."""
        return self._choose(log_retention_days=days)

    def lambda_timeout(self, seconds: int) -> "SyncRepositoryBuilder[R]":
        """Give the aggregator so long for a batch."""
        return self._choose(lambda_timeout=seconds)

    def lambda_memory(self, megabytes: int) -> "SyncRepositoryBuilder[R]":
        """Give the aggregator so much memory."""
        return self._choose(lambda_memory=megabytes)

    def enable_alarms(self, enable: bool = True) -> "SyncRepositoryBuilder[R]":
        """Have alarms on the aggregator and on throttles."""
        return self._choose(enable_alarms=enable)

    def alarm_sns_topic(self, arn: str | None) -> "SyncRepositoryBuilder[R]":
        """Send alarms to this topic."""
        return self._choose(alarm_sns_topic=arn)

    def lambda_duration_threshold_pct(self, percent: int) -> "SyncRepositoryBuilder[R]":
        """Alarm when the aggregator takes so much of its timeout."""
        return self._choose(lambda_duration_threshold_pct=percent)

    def permission_boundary(self, policy: str | None) -> "SyncRepositoryBuilder[R]":
        """Bound all roles by this policy, named or by its ARN."""
        return self._choose(permission_boundary=policy)

    def role_name_format(self, name_format: str) -> "SyncRepositoryBuilder[R]":
        """Name roles so, with ``{}`` in the place of the name."""
        return self._choose(role_name_format=name_format)

    def policy_name_format(self, name_format: str) -> "SyncRepositoryBuilder[R]":
        """Name policies so, with ``{}`` in the place of the name."""
        return self._choose(policy_name_format=name_format)

    def enable_audit_archival(self, enable: bool = True) -> "SyncRepositoryBuilder[R]":
        """Archive audit events that expire."""
        return self._choose(enable_audit_archival=enable)

    def audit_archive_glacier_days(self, days: int) -> "SyncRepositoryBuilder[R]":
        """Move archived events to Glacier after so long."""
        return self._choose(audit_archive_glacier_days=days)

    def enable_tracing(self, enable: bool = True) -> "SyncRepositoryBuilder[R]":
        """Trace the aggregator with X-Ray."""
        return self._choose(enable_tracing=enable)

    def create_iam_roles(self, create: bool = True) -> "SyncRepositoryBuilder[R]":
        """Make roles for applications, operators and readers."""
        return self._choose(create_iam_roles=create)

    def create_iam(self, create: bool = True) -> "SyncRepositoryBuilder[R]":
        """Make policies and the aggregator's role; without, nothing of IAM is made."""
        return self._choose(create_iam=create)

    def aggregator_role_arn(self, arn: str | None) -> "SyncRepositoryBuilder[R]":
        """Run the aggregator in a role that is there already."""
        return self._choose(aggregator_role_arn=arn)

    def enable_deletion_protection(self, enable: bool = True) -> "SyncRepositoryBuilder[R]":
        """Protect the table from deletion."""
        return self._choose(enable_deletion_protection=enable)

    def tags(self, tags: Mapping[str, str]) -> "SyncRepositoryBuilder[R]":
        """Tag the stack and what is in it."""
        return self._choose(tags=tags)

    def _set(self, **settings: Any) -> "SyncRepositoryBuilder[R]":
        self._settings.update(settings)
        return self

    def _choose(self, **options: Any) -> "SyncRepositoryBuilder[R]":
        self._chosen.update(options)
        return self

    def _options(self) -> StackOptions | None:
        """Return the options of the stack, None where none was chosen."""
        if self._base is not None and not isinstance(self._base, StackOptions):
            raise ValidationError("stack_options", self._base, "must be StackOptions")
        if self._base is None and not self._chosen:
            return None
        return replace(self._base or StackOptions(), **self._chosen)

    def _deployment(self) -> DeploymentPlan:
        """Return what is to be opened, with every choice checked."""
        check_stack_name(self._location.name)
        check_namespace(self._namespace)
        options = self._options()
        settings = make_settings(**self._settings)
        if options is not None:
            settings = replace(settings, audit_retention_days=options.audit_retention_days)
        opening = Opening(self._location, settings, SystemClock(), Random(), self._session)
        return DeploymentPlan(opening, self._location, chosen_update(self._auto_update))
