"""Define the options of a stack, check them, and convert them to template parameters. Pure."""

import re
from collections.abc import Mapping
from types import MappingProxyType

from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass, field
from zae_limiter.core.names import check_stack_name, check_text, check_whole_number
from zae_limiter.core.usage import check_window_type
from zae_limiter.infra import naming

LOG_RETENTION_DAYS = (
    *(1, 3, 5, 7, 14, 30, 60, 90, 120, 150, 180, 365, 400, 545, 731),
    *(1096, 1827, 2192, 2557, 2922, 3288, 3653),
)
"""The retention periods that CloudWatch Logs accepts, in days."""

_MOST_DAYS = 3650
_MOST_INTERVAL_S = 300
"""The longest batching window of an event source mapping, in seconds."""
_LATE_MS = 60_000
"""How much older than the interval the last record of a batch may be without an alarm, in milliseconds."""
_MOST_TAGS = 40
_BOUNDS = {
    "usage_interval_seconds": (0, _MOST_INTERVAL_S),
    "usage_retention_days": (1, _MOST_DAYS),
    "audit_retention_days": (1, _MOST_DAYS),
    "audit_archive_glacier_days": (1, _MOST_DAYS),
    "pitr_recovery_days": (0, 35),
    "lambda_timeout": (1, 900),
    "lambda_memory": (128, 3008),
    "lambda_duration_threshold_pct": (1, 100),
}
_TOPIC_ARN = r"arn:[^:\s]+:sns:[^:\s]+:[^:\s]+:[A-Za-z0-9_.-]+"
_ROLE_ARN = r"arn:[^:\s]+:iam::[0-9]+:role/[A-Za-z0-9+=,.@_/-]+"
_POLICY_ARN = r"arn:[^:\s]+:iam::[^:\s]+:policy/[A-Za-z0-9+=,.@_/-]+"
_POLICY_NAME = r"[A-Za-z0-9+=,.@_/-]+"
_TAG_TEXT = r"[\w\s.:/=+@-]*"


@dataclass(frozen=True, slots=True, kw_only=True)
class StackOptions:
    """The options of a stack; every option has a default.

    ``usage_interval_seconds`` is how long the aggregator collects changes before it counts them, 0
    for as short as is sensible: 2 seconds. ``pitr_recovery_days`` is 0 to disable point-in-time
    recovery. ``permission_boundary`` is the name or the ARN of a policy. The name formats contain
    ``{}`` where the name goes.

    Raises:
        ValidationError: An option is invalid or conflicts with another; the message says what to do.
    """

    snapshot_windows: str = "hourly,daily"
    usage_interval_seconds: int = 60
    usage_retention_days: int = 90
    audit_retention_days: int = 90
    enable_aggregator: bool = True
    pitr_recovery_days: int = 35
    log_retention_days: int = 30
    lambda_timeout: int = 60
    lambda_memory: int = 256
    enable_alarms: bool = True
    alarm_sns_topic: str | None = None
    lambda_duration_threshold_pct: int = 80
    permission_boundary: str | None = None
    role_name_format: str = "{}"
    policy_name_format: str = "{}"
    enable_audit_archival: bool = True
    audit_archive_glacier_days: int = 90
    enable_tracing: bool = False
    create_iam_roles: bool = False
    create_iam: bool = True
    aggregator_role_arn: str | None = None
    enable_deletion_protection: bool = False
    tags: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        _check_flags(self)
        for name, (least, most) in _BOUNDS.items():
            check_whole_number(name, getattr(self, name), least, most)
        if self.log_retention_days not in LOG_RETENTION_DAYS or type(self.log_retention_days) is not int:
            reason = f"must be one of {', '.join(map(str, LOG_RETENTION_DAYS))}"
            raise ValidationError("log_retention_days", self.log_retention_days, reason)
        _check_windows(self.snapshot_windows)
        _check_arn("alarm_sns_topic", self.alarm_sns_topic, _TOPIC_ARN, "arn:aws:sns:us-east-1:123456789012:alarms")
        _check_arn("aggregator_role_arn", self.aggregator_role_arn, _ROLE_ARN, "arn:aws:iam::123456789012:role/mine")
        _check_boundary(self.permission_boundary)
        naming.split_format("role_name_format", self.role_name_format)
        naming.split_format("policy_name_format", self.policy_name_format)
        if len(self.policy_name_format) > naming.LONGEST_POLICY_FORMAT:
            reason = f"must have at most {naming.LONGEST_POLICY_FORMAT} characters"
            raise ValidationError("policy_name_format", self.policy_name_format, reason)
        _check_tags(self.tags)
        _check_iam(self)


def _by_parameter(kind: type) -> dict[str, str]:
    """Return the options of a type by the template parameters that have their values: their names in camel case."""
    options = [name for name, its_kind in StackOptions.__annotations__.items() if its_kind is kind]
    # The template has the threshold of the alarm in milliseconds, and not as a percentage.
    return {option.title().replace("_", ""): option for option in options if option != "lambda_duration_threshold_pct"}


# The template parameters that have the value of one option.
TEXTS = {
    "SnapshotWindows": "snapshot_windows",
    "AlarmSnsTopicArn": "alarm_sns_topic",
    "AggregatorRoleArn": "aggregator_role_arn",
}
FLAGS = _by_parameter(bool)
NUMBERS = _by_parameter(int)


def template_parameters(name: str, options: StackOptions) -> dict[str, str]:
    """Return the template parameters of a stack with this name.

    Raises:
        InvalidNameError: The name is not a valid stack name.
        ValidationError: A name that is derived from it is too long.
    """
    check_stack_name(name)
    if options.create_iam:
        naming.check_role_names(name, options.role_name_format)
        naming.check_policy_names(name, options.policy_name_format)
    role_prefix, role_suffix = naming.split_format("role_name_format", options.role_name_format)
    policy_prefix, policy_suffix = naming.split_format("policy_name_format", options.policy_name_format)
    boundary = options.permission_boundary or ""
    by_arn = boundary.startswith("arn:")
    return {
        **{parameter: getattr(options, option) or "" for parameter, option in TEXTS.items()},
        **{parameter: "true" if getattr(options, option) else "false" for parameter, option in FLAGS.items()},
        **{parameter: str(getattr(options, option)) for parameter, option in NUMBERS.items()},
        "SnapshotWindows": ",".join(windows(options.snapshot_windows)),
        "DurationAlarmThresholdMs": str(options.lambda_timeout * options.lambda_duration_threshold_pct * 10),
        "IteratorAgeAlarmThresholdMs": str(options.usage_interval_seconds * 1000 + _LATE_MS),
        "RoleNamePrefix": role_prefix,
        "RoleNameSuffix": role_suffix,
        "PolicyNamePrefix": policy_prefix,
        "PolicyNameSuffix": policy_suffix,
        "PermissionBoundaryArn": boundary if by_arn else "",
        "PermissionBoundaryName": "" if by_arn else boundary,
    }


def windows(text: str) -> tuple[str, ...]:
    """Return the window types in a text, without duplicates."""
    return tuple(dict.fromkeys(part.strip() for part in text.split(",")))


def _check_flags(options: StackOptions) -> None:
    for name in FLAGS.values():
        value = getattr(options, name)
        if type(value) is not bool:
            raise ValidationError(name, value, "must be True or False")


def _check_windows(value: object) -> None:
    if type(value) is not str:
        raise ValidationError("snapshot_windows", value, "must be a text such as 'hourly,daily'")
    for window in windows(value):
        check_window_type(window, "snapshot_windows")


def _check_arn(name: str, value: object, rule: str, example: str) -> None:
    if value is not None and not (type(value) is str and re.fullmatch(rule, value)):
        raise ValidationError(name, value, f"must be an ARN such as {example}")


def _check_boundary(value: object) -> None:
    if value is None:
        return
    rule = _POLICY_ARN if isinstance(value, str) and value.startswith("arn:") else _POLICY_NAME
    if type(value) is not str or not re.fullmatch(rule, value):
        example = "arn:aws:iam::aws:policy/PowerUserAccess"
        raise ValidationError("permission_boundary", value, f"must be the name of a policy or an ARN such as {example}")


def _check_tags(tags: object) -> None:
    if not isinstance(tags, Mapping) or len(tags) > _MOST_TAGS:
        raise ValidationError("tags", tags, f"must be a mapping of at most {_MOST_TAGS} keys to values")
    for key, value in tags.items():
        check_text("tag key", key, 128)
        check_text("tag value", value, 256)
        if not key or key.lower().startswith("aws:") or key.startswith(naming.TAG_PREFIX):
            raise ValidationError("tag key", key, f"must not be empty, nor start with aws: or {naming.TAG_PREFIX}")
        for text in (key, value):
            if not re.fullmatch(_TAG_TEXT, text):
                raise ValidationError("tag", text, "must have letters, digits, spaces and _ . : / = + - @ only")


def _check_iam(options: StackOptions) -> None:
    """Reject options that contradict each other."""
    if options.create_iam:
        return
    if options.create_iam_roles:
        reason = "roles need create_iam=True: pass it, or pass create_iam_roles=False"
        raise ValidationError("create_iam_roles", options.create_iam_roles, reason)
    if options.enable_aggregator and options.aggregator_role_arn is None:
        reason = "the aggregator needs a role: pass aggregator_role_arn, create_iam=True or enable_aggregator=False"
        raise ValidationError("create_iam", options.create_iam, reason)
