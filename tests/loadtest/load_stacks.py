"""Load tests on a local AWS, and the options that they need."""

from pathlib import Path
from typing import Any

import pytest

from tests.dynamodb.engines import EngineAbsentError, fresh_table_name, running
from tests.infra.conftest import clients_at
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.stack import Stack
from zae_limiter.loadtest.load_options import LoadOptions
from zae_limiter.loadtest.load_stack import LoadStack

VPC = "vpc-00000001"
SUBNETS = ("subnet-00000001", "subnet-00000002")
SMALL = StackOptions(enable_aggregator=False, enable_alarms=False)


def local_url() -> str:
    try:
        return running("aws").url
    except EngineAbsentError as absent:
        pytest.skip(str(absent))


def local_clients() -> Clients:
    return clients_at(local_url())


def deployed_limiter(clients: Clients, options: StackOptions = SMALL) -> str:
    """Deploy a limiter and return its name."""
    name = fresh_table_name()
    Stack(name, clients).deploy(options)
    return name


def load_options(**chosen: Any) -> LoadOptions:
    return LoadOptions(**{"vpc_id": VPC, "subnet_ids": SUBNETS, **chosen})


def new_load_stack(clients: Clients, options: StackOptions = SMALL) -> LoadStack:
    """Return the load test of a new limiter, which is not deployed yet."""
    return LoadStack(deployed_limiter(clients, options), clients)


def locust_folder(folder: Path) -> Path:
    """Write a folder of locust files, with files beside them that are not uploaded."""
    for name in ("locustfiles/simple.py", "data/prompts.txt", "__pycache__/old.pyc", ".git/config"):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("# nothing\n")
    return folder
