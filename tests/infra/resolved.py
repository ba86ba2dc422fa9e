"""The template as CloudFormation evaluates it: conditions and functions are resolved with the parameters.

Attributes that are known only after deployment stay as ``Logical.Attribute``.
"""

import re
from typing import Any

import yaml

from zae_limiter.infra.template import limiter_template

ABSENT = object()
PSEUDO = {
    "AWS::Partition": "aws-cn",
    "AWS::Region": "cn-north-1",
    "AWS::AccountId": "123456789012",
    "AWS::NoValue": ABSENT,
}


class Loader(yaml.SafeLoader):
    """Load the short forms of functions."""


def _function(loader: Loader, suffix: str, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        value: Any = loader.construct_scalar(node)
    else:
        assert isinstance(node, yaml.SequenceNode)
        value = loader.construct_sequence(node, deep=True)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


Loader.add_multi_constructor("!", _function)


def parsed(text: str | None = None) -> dict[str, Any]:
    """Return a template as written; that of a limiter if none is given."""
    return dict(yaml.load(limiter_template() if text is None else text, Loader))


class Resolved:
    """The resources and outputs that a stack would have."""

    def __init__(self, stack_name: str, parameters: dict[str, str], template: dict[str, Any] | None = None) -> None:
        self._template = parsed() if template is None else template
        self._known = {**PSEUDO, "AWS::StackName": stack_name, **self._typed(parameters)}
        self.resources = self._chosen("Resources")
        self.outputs = {name: output["Value"] for name, output in self._chosen("Outputs").items()}

    def properties(self, logical_id: str) -> dict[str, Any]:
        """Return the properties of a resource."""
        return dict(self.resources[logical_id]["Properties"])

    def of_type(self, kind: str) -> dict[str, dict[str, Any]]:
        """Return the properties of all resources of a type."""
        return {name: one["Properties"] for name, one in self.resources.items() if one["Type"] == kind}

    def _typed(self, parameters: dict[str, str]) -> dict[str, Any]:
        kinds = {name: body["Type"] for name, body in self._template["Parameters"].items()}
        return {
            name: value.split(",") if kinds.get(name) == "CommaDelimitedList" else value
            for name, value in parameters.items()
        }

    def _chosen(self, section: str) -> dict[str, Any]:
        return {
            name: self._resolve(body)
            for name, body in self._template[section].items()
            if "Condition" not in body or self._holds({"Condition": body["Condition"]})
        }

    def _holds(self, condition: Any) -> bool:
        ((function, value),) = condition.items()
        match function:
            case "Condition":
                return self._holds(self._template["Conditions"][value])
            case "Fn::Equals":
                return self._resolve(value[0]) == self._resolve(value[1])
            case "Fn::Not":
                return not self._holds(value[0])
            case "Fn::And":
                return all(self._holds(one) for one in value)
        raise AssertionError(f"{function} in a condition")

    def _resolve(self, value: Any) -> Any:
        if isinstance(value, list):
            return [one for one in map(self._resolve, value) if one is not ABSENT]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((function, argument),) = value.items()
            if function == "Ref" or function.startswith("Fn::"):
                return self._carried_out(function, argument)
        resolved = {name: self._resolve(one) for name, one in value.items()}
        return {name: one for name, one in resolved.items() if one is not ABSENT}

    def _carried_out(self, function: str, argument: Any) -> Any:
        match function:
            case "Ref":
                return self._known.get(argument, argument)
            case "Fn::GetAtt":
                return argument if isinstance(argument, str) else ".".join(argument)
            case "Fn::If":
                condition, yes, no = argument
                return self._resolve(yes if self._holds({"Condition": condition}) else no)
            case "Fn::Join":
                separator, parts = argument
                return separator.join(self._resolve(parts))
            case "Fn::Sub":
                return re.sub(r"\$\{([^}]+)\}", lambda found: str(self._known.get(found[1], found[1])), argument)
        raise AssertionError(f"{function} in a resource")
