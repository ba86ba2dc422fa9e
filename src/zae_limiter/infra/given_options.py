"""Apply the options that a caller gives to those that a stack has, and compare them. Pure.

A deployment reads the stored options, applies the given ones, and sends only what differs.
"""

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

from zae_limiter.core.errors import StackOperationError, ValidationError
from zae_limiter.core.lazy_dataclass import dataclass, field, fields, replace
from zae_limiter.infra.naming import TAG_PREFIX
from zae_limiter.infra.options import FLAGS, NUMBERS, TEXTS, StackOptions, template_parameters

_ANY_NAME = "any"
_NONE: Mapping[str, Any] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class GivenOptions:
    """The options of a stack that a caller gives, by field of ``StackOptions``.

    The other options keep the value that the stack has. If ``reset``, or without a stack, they have
    their default.
    """

    chosen: Mapping[str, Any] = field(default_factory=lambda: _NONE)
    reset: bool = False

    def check(self) -> None:
        """Require options that are valid on some stack.

        Raises:
            ValidationError: An option is invalid, or contradicts another given one.
        """
        # Every set of given options that is valid on some stack is valid on one with a role.
        self.over(StackOptions(aggregator_role_arn="arn:aws:iam::123456789012:role/any"))

    def over(self, stored: StackOptions | None) -> StackOptions:
        """Return all options after a deployment on a stack with the stored ones; None if there is no stack.

        Without IAM resources, the aggregator has no role and roles cannot exist. So
        ``create_iam=False`` alone also turns them off.

        Raises:
            ValidationError: An option is invalid, or contradicts another given or stored one.
        """
        base = StackOptions() if self.reset or stored is None else stored
        chosen = dict(self.chosen)
        if chosen.get("create_iam") is False:
            chosen.setdefault("create_iam_roles", False)
            if chosen.get("aggregator_role_arn", base.aggregator_role_arn) is None:
                chosen.setdefault("enable_aggregator", False)
        return replace(base, **chosen)

    def drops_aggregator(self, stored: StackOptions | None) -> bool:
        """Return whether ``create_iam=False`` alone turns the aggregator off."""
        base = StackOptions() if self.reset or stored is None else stored
        given = "enable_aggregator" in self.chosen
        return base.enable_aggregator and not given and not self.over(stored).enable_aggregator


KEEP_ALL = GivenOptions()
"""Change no option of an existing stack."""


@dataclass(frozen=True, slots=True)
class OptionChange:
    """An option that a deployment changed, by field of ``StackOptions``."""

    option: str
    old: Any
    new: Any


def as_given(options: StackOptions | GivenOptions) -> GivenOptions:
    """Return the given options; ``StackOptions`` gives all."""
    if isinstance(options, GivenOptions):
        return options
    return GivenOptions({one.name: getattr(options, one.name) for one in fields(options)}, reset=True)


def has_options(parameters: Mapping[str, str]) -> bool:
    """Return whether a stack has parameters of the template. A stack of the AWS CDK has fixed values instead."""
    return not parameters.keys().isdisjoint(template_parameters(_ANY_NAME, StackOptions()))


def stored_options(name: str, parameters: Mapping[str, str], tags: Mapping[str, str]) -> StackOptions:
    """Return the options of a stack from its parameters and tags; a missing parameter has its default.

    Raises:
        StackOperationError: The stack has no options, or one that is invalid.
    """
    if not has_options(parameters):
        reason = (
            "its options are unknown, because another tool deployed it, such as the AWS CDK. Deploy it with that "
            "tool, or replace all its options: stack_options(StackOptions())"
        )
        raise StackOperationError(name, reason)
    # A parameter that a newer version of the template added is not stored yet.
    known = {**template_parameters(_ANY_NAME, StackOptions()), **parameters}
    try:
        return StackOptions(**dict(_read(known)), tags=own_tags(tags))
    except (ValidationError, ValueError) as error:
        reason = f"an option cannot be kept: {error}. Replace all its options: stack_options(StackOptions())"
        raise StackOperationError(name, reason) from error


def own_tags(tags: Mapping[str, str]) -> dict[str, str]:
    """Return the tags that the operator chose, without those of AWS and of this package."""
    return {key: value for key, value in tags.items() if not key.lower().startswith(("aws:", TAG_PREFIX))}


def kept_parameters(
    name: str, before: StackOptions | None, after: StackOptions, parameters: Mapping[str, str]
) -> frozenset[str]:
    """Return the parameters of a stack that a change of its options leaves as they are; none if ``before`` is None.

    They keep the stored text, even if the options would result in another text with the same
    meaning.
    """
    if before is None:
        return frozenset()
    old, new = template_parameters(name, before), template_parameters(name, after)
    return frozenset(key for key in parameters.keys() & new.keys() if old[key] == new[key])


def option_changes(before: StackOptions, after: StackOptions) -> list[OptionChange]:
    """Return the options that differ, in the order of ``StackOptions``."""
    pairs = ((one.name, getattr(before, one.name), getattr(after, one.name)) for one in fields(StackOptions))
    return [OptionChange(name, old, new) for name, old, new in pairs if old != new]


def _read(known: Mapping[str, str]) -> Iterator[tuple[str, Any]]:
    """Yield the options that parameters stand for."""
    for parameter, option in TEXTS.items():
        yield option, known[parameter] or None
    for parameter, option in FLAGS.items():
        yield option, known[parameter] == "true"
    for parameter, option in NUMBERS.items():
        yield option, int(known[parameter])
    yield "role_name_format", f"{known['RoleNamePrefix']}{{}}{known['RoleNameSuffix']}"
    yield "policy_name_format", f"{known['PolicyNamePrefix']}{{}}{known['PolicyNameSuffix']}"
    yield "permission_boundary", known["PermissionBoundaryArn"] or known["PermissionBoundaryName"] or None
    yield "lambda_duration_threshold_pct", _percent(known)


def _percent(known: Mapping[str, str]) -> int:
    """Return the alarm's threshold as a percentage of the timeout; another tool may have set any threshold."""
    percent = round(int(known["DurationAlarmThresholdMs"]) / (int(known["LambdaTimeout"]) * 10))
    return min(100, max(1, percent))
