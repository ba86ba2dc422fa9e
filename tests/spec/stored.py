"""Read the items of a table as they are stored, for the examples of records."""

from typing import Any

import botocore.session


def items(table: str, sort_key: str) -> list[dict[str, Any]]:
    """Return the items of a table that have a sort key, with plain values."""
    client = botocore.session.get_session().create_client("dynamodb", region_name="us-east-1")
    found = client.scan(TableName=table)["Items"]
    return [_plain({"M": item}) for item in found if item["SK"]["S"] == sort_key]


def _plain(value: dict[str, Any]) -> Any:
    ((kind, content),) = value.items()
    match kind:
        case "M":
            return {name: _plain(one) for name, one in content.items()}
        case "N":
            return int(content)
        case "NULL":
            return None
        case _:
            return content
