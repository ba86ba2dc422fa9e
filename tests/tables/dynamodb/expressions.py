"""An evaluator of DynamoDB's expressions, written independently of the renderer under test."""

import re
from collections.abc import Mapping
from typing import Any

from zae_limiter.tables.dynamodb.codec import decode_item

ABSENT = object()
COMPARISONS = {
    "=": lambda left, right: left == right,
    "<>": lambda left, right: left != right,
    ">=": lambda left, right: left >= right,
    "<=": lambda left, right: left <= right,
    ">": lambda left, right: left > right,
    "<": lambda left, right: left < right,
}


class Request:
    """The members of a request, and the item that they are evaluated on."""

    def __init__(self, members: Mapping[str, Any], item: Mapping[str, Any]) -> None:
        self.members = members
        self.item = item
        self.names: dict[str, str] = members.get("ExpressionAttributeNames", {})
        self.values = decode_item(members.get("ExpressionAttributeValues", {}))

    def placeholders(self) -> tuple[set[str], set[str]]:
        """Return the defined and the used placeholders; DynamoDB refuses a request if they differ."""
        text = " ".join(self.members.get(name, "") for name in ("ConditionExpression", "UpdateExpression"))
        return {*self.names, *self.values}, set(re.findall(r"[#:]\d+", text))

    def holds(self) -> bool:
        """Return whether the condition holds for the item."""
        text = self.members.get("ConditionExpression")
        return text is None or all(self._holds(clause) for clause in re.split(r" AND ", text))

    def updated(self) -> dict[str, Any]:
        """Return the item after the update."""
        new = dict(self.item)
        text = self.members.get("UpdateExpression", "")
        for verb, changes in re.findall(r"(ADD|SET|REMOVE) ([^A-Z]+)", text):
            for change in changes.strip().split(", "):
                parts = re.split(r" = | ", change)
                name, value = parts[0], parts[-1]
                if verb == "REMOVE":
                    new.pop(self.names[name], None)
                elif verb == "SET":
                    new[self.names[name]] = self.values[value]
                else:
                    new[self.names[name]] = new.get(self.names[name], 0) + self.values[value]
        return new

    def _holds(self, clause: str) -> bool:
        if clause.startswith("("):
            return any(self._holds(part) for part in clause.strip("()").split(" OR "))
        function = re.match(r"attribute_(not_)?exists\((#\d+)\)?", clause)
        if function:
            return (self.names[function[2]] in self.item) is (function[1] is None)
        name, comparison, value = clause.split(" ")
        left, right = self.item.get(self.names[name], ABSENT), self.values[value]
        if type(left) is not type(right):
            return comparison == "<>"
        return bool(COMPARISONS[comparison](left, right))
