"""`loadtest deploy`, `push`, `list` and `delete` on a local AWS: what they print, ask and refuse."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.aws import invoke, printed_json
from tests.loadtest.load_stacks import VPC, deployed_limiter, local_clients, local_url, locust_folder
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.lambda_package import zip_of
from zae_limiter.loadtest import load_code
from zae_limiter.loadtest.code_bucket import CodeBucket
from zae_limiter.loadtest.load_stack import LoadStack
from zae_limiter.loadtest.package import LoadPackage

HANDLER = b"def handler(event, context):\n    return event\n"
WORKER = zip_of(
    {"zae_limiter/__init__.py": b"", "zae_limiter/loadtest/__init__.py": b"", "zae_limiter/loadtest/worker.py": HANDLER}
)


@pytest.fixture(scope="module")
def clients() -> Clients:
    return local_clients()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials of the local AWS, and a small package: that of the real one is tested by itself."""
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setattr(load_code, "build_load_package", lambda target, say: LoadPackage(WORKER, 100, None))


@pytest.fixture(scope="module")
def name(clients: Clients) -> Iterator[str]:
    """A limiter, whose load test is deleted at the end."""
    limiter = deployed_limiter(clients)
    yield limiter
    LoadStack(limiter, clients).delete()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return locust_folder(tmp_path / "locust")


def place() -> tuple[str, ...]:
    return ("--region", "us-east-1", "--endpoint-url", local_url())


def test_deploy_push_list_and_delete_of_a_load_test(name: str, folder: Path, clients: Clients) -> None:
    """The way of an operator, from nothing to nothing."""
    deploy = ("loadtest", "deploy", "-n", name, "-C", str(folder), *place(), "--json")
    deployed = printed_json(invoke(*deploy, "--vpc-id", VPC, "--max-workers", "7"))
    again = printed_json(invoke(*deploy))
    (folder / "locustfiles" / "second.py").write_text("# more\n")
    pushed = printed_json(invoke("loadtest", "push", "-n", name, "-C", str(folder), *place(), "--json"))
    listed = printed_json(invoke("loadtest", "list", *place(), "--json"))
    function = clients.of("lambda").invoke(FunctionName=f"{name}-load-worker", Payload=b'{"a": 1}')["Payload"].read()
    deleted = [printed_json(invoke("loadtest", "delete", "-n", name, *place(), "--yes", "--json")) for _ in range(2)]

    assert (7, 300) == (deployed["outputs"]["max_workers"], deployed["outputs"]["lambda_timeout_s"])
    assert ["data/prompts.txt", "locustfiles/simple.py"] == deployed["code"]["locust_files"]
    assert (True, True) == (deployed["code"]["locust_files_changed"], deployed["code"]["worker_changed"])
    assert (7, False) == (again["outputs"]["max_workers"], again["code"]["worker_changed"])
    assert (True, False) == (pushed["locust_files_changed"], pushed["worker_changed"])
    assert (f"{name}-load", 0) in [(one["stack"], one["running_masters"]) for one in listed]
    assert b'{"a": 1}' == function
    assert [{"deleted": True}, {"deleted": False}] == deleted


def test_deploy_without_a_network_asks_with_lists(
    name: str, folder: Path, clients: Clients, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The subnets are chosen by number; the answers are those of the deployed stack."""
    monkeypatch.setattr("zae_limiter.cli.loadtest._choose_network.somebody_is_there", lambda: True)
    done = invoke("loadtest", "deploy", "-n", name, "-C", str(folder), *place(), answers="1\n9\n2,3\n")
    outputs = LoadStack(name, clients).outputs()

    assert 0 == done.exit_code, done.stderr
    assert VPC in done.stderr
    assert "must be a number from 1 to 3" in done.stderr
    assert ("subnet-00000002", "subnet-00000003") == outputs.subnet_ids
    assert f"The load test of {name} is deployed: stack {name}-load." in done.stdout
    assert f"zae-limiter loadtest run --name {name}" in done.stderr
    assert CodeBucket(clients, outputs.bucket_name).exists("code/locustfiles.zip")


@pytest.mark.parametrize(
    ("options", "code", "problem"),
    [
        ((), 2, "cannot ask for the network without a terminal; pass --vpc-id and --subnet-ids"),
        (("--subnet-ids", "subnet-00000001"), 2, "--subnet-ids requires --vpc-id"),
        (("--vpc-id", VPC, "--subnet-ids", "subnet-9"), 2, f"--subnet-ids: 'subnet-9': must be a subnet of {VPC}"),
        (("--vpc-id", VPC, "--lambda-timeout", "16"), 2, "--lambda-timeout: 16: must be at most 15"),
        (("--vpc-id", VPC, "--min-workers", "200"), 2, "must be at most --max-workers (100)"),
        (("--vpc-id", VPC, "--capacity-provider", "EC2"), 2, "must be one of FARGATE_SPOT, FARGATE"),
    ],
)
def test_deploy_with_invalid_options_changes_nothing(
    clients: Clients, folder: Path, options: tuple[str, ...], code: int, problem: str
) -> None:
    limiter = deployed_limiter(clients)
    done = invoke("loadtest", "deploy", "-n", limiter, "-C", str(folder), *place(), *options)

    assert code == done.exit_code
    assert problem in done.stderr
    assert LoadStack(limiter, clients).describe() is None


def test_deploy_with_an_image_but_without_docker_changes_nothing(
    clients: Clients, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The error says that docker is missing, before anything is created."""
    monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")
    limiter = deployed_limiter(clients)
    done = invoke("loadtest", "deploy", "-n", limiter, "-C", str(folder), *place(), "--vpc-id", VPC, "--build-image")

    assert 69 == done.exit_code
    assert "no docker engine answers; start one, or deploy to subnets with a route to the internet" in done.stderr
    assert LoadStack(limiter, clients).describe() is None


def test_folder_without_locust_files_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing")
    done = invoke("loadtest", "push", "-n", "my-app", "-C", str(tmp_path), *place())

    assert 2 == done.exit_code
    assert "must have at least one locust file" in done.stderr


def test_push_without_a_load_test_says_how_to_deploy_it(clients: Clients, folder: Path) -> None:
    limiter = deployed_limiter(clients)
    done = invoke("loadtest", "push", "-n", limiter, "-C", str(folder), *place())

    assert 69 == done.exit_code
    assert f"Deploy it with: zae-limiter loadtest deploy --name {limiter} -C DIR" in done.stderr


def test_delete_asks_first(name: str, folder: Path, clients: Clients) -> None:
    """Without a terminal it needs --yes."""
    invoke("loadtest", "deploy", "-n", name, "-C", str(folder), *place(), "--vpc-id", VPC)
    done = invoke("loadtest", "delete", "-n", name, *place())

    assert (2, True) == (done.exit_code, "pass --yes" in done.stderr)
    assert LoadStack(name, clients).describe() is not None
