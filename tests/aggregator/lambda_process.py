"""Runs the handler as Lambda does: a process that reads one event per line and answers each.

Modules that a deployed function lacks cannot be imported here. Only the standard library, botocore,
its dependencies and the modules of the deployed package can.
"""

import json
import sys
from importlib.abc import MetaPathFinder
from pathlib import Path

ABSENT = ("orjson", "httptools", "click", "rich", "platformdirs", "gevent", "boto3", "docker", "ministack", "pytest")
ABSENT += ("aws_lambda_powertools", "typing_extensions")
UNDEPLOYED = ("_async", "_sync", "aws", "cli", "infra", "clock", "bucket")
RESPONSE = "RESPONSE "


class Absent(MetaPathFinder):
    """Hide the modules that a deployed function lacks."""

    def find_spec(self, name, path=None, target=None):
        parts = name.split(".")
        undeployed = parts[0] == "zae_limiter" and len(parts) > 1 and parts[1] in UNDEPLOYED
        if parts[0] in ABSENT or undeployed:
            raise ModuleNotFoundError(f"{name} is not deployed", name=name)
        return


class Context:
    """The context that Lambda passes to the handler."""

    aws_request_id = "request-1"

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def main() -> None:
    sys.meta_path.insert(0, Absent())
    sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "src"))
    from zae_limiter_aggregator.handler import handler

    for line in sys.stdin:
        response = handler(json.loads(line), Context())
        print(RESPONSE + json.dumps(response), flush=True)  # noqa: T201 - it is how the process answers


if __name__ == "__main__":
    main()
