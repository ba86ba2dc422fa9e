"""A load test on a local AWS, as its operator has it: commands, runs, and what they leave behind."""

import json
import os
import signal
import subprocess
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.e2e.deployment import REGION
from tests.loadtest.locust_runs import ROOT, environment, python
from zae_limiter.infra.clients import Clients
from zae_limiter.loadtest.aws_run import AwsLoadTest, RunProgress, RunResult, open_load_test
from zae_limiter.loadtest.run_config import RunMode
from zae_limiter.loadtest.run_objects import RunFailure

# Variables of the processes that a run starts. The local AWS keeps the processes of its functions for a while.
MARKS = ("ZAE_LOADTEST_LIFELINE", "ZAE_LOADTEST_MASTER_PORT")
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "PYTHONDONTWRITEBYTECODE": ""}

# A busy machine must not make the users of a test fail, so their deadline is long.
ENDLESS_FILE = """
import long_deadline
from contextlib import suppress

from locust import constant, task

from zae_limiter import Limit, RateLimitExceeded
from zae_limiter.locust import RateLimiterUser


class EndlessUser(RateLimiterUser):
    wait_time = constant(0.02)

    def on_start(self):
        self.client.set_resource_defaults("gpt-4", [Limit.per_second("rps", 1000)])

    @task
    def call(self):
        with suppress(RateLimitExceeded), self.client.acquire("user-1", "gpt-4", {"rps": 1}):
            pass
"""
# Its second class ends the test after some calls, however fast the machine is.
FEW_CALLS_FILE = """
import gevent
from locust import task
from endless import EndlessUser


class FewCallsUser(EndlessUser):
    calls = 0

    @task
    def call(self):
        super().call()
        FewCallsUser.calls += 1
        if FewCallsUser.calls == 20:
            gevent.spawn(self.environment.runner.quit)
"""
BROKEN_FILE = "import a_module_that_does_not_exist\n"
ENDLESS, FEW_CALLS, BROKEN = (f"locustfiles/{name}.py" for name in ("endless", "few_calls", "broken"))


@dataclass(frozen=True, slots=True)
class LoadTestCommands:
    """The commands of one limiter and its load test."""

    name: str
    aws_url: str
    folder: Path

    @property
    def place(self) -> tuple[str, ...]:
        return ("--name", self.name, "--region", REGION, "--endpoint-url", self.aws_url)

    @property
    def clients(self) -> Clients:
        return Clients(REGION, self.aws_url)

    def command(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command on the limiter."""
        return python("-m", "zae_limiter", *arguments, *self.place, variables=CREDENTIALS)

    def started(self, *arguments: str) -> "subprocess.Popen[str]":
        """Start a command on the limiter, as a shell does."""
        return subprocess.Popen(
            [sys.executable, "-m", "zae_limiter", *arguments, *self.place],
            env=environment(**CREDENTIALS),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def printed(self, *arguments: str) -> Any:
        """Run such a command, require success, and return its JSON."""
        done = self.command(*arguments, "--json")
        assert 0 == done.returncode, done.stderr + done.stdout
        return json.loads(done.stdout)

    def listed(self) -> list[dict[str, Any]]:
        """Return the load tests of the region, as the command prints them."""
        place = ("--region", REGION, "--endpoint-url", self.aws_url)
        done = python("-m", "zae_limiter", "loadtest", "list", "--json", *place, variables=CREDENTIALS)
        return [one for one in json.loads(done.stdout) if one["name"] == self.name]

    def deploy(self) -> Any:
        """Deploy the limiter and its load test into the first subnets of the local AWS."""
        self.printed("deploy", "--no-alarms", "--no-aggregator")
        subnets = self.clients.of("ec2").describe_subnets()["Subnets"][:2]
        network = ("--vpc-id", subnets[0]["VpcId"], "--subnet-ids", ",".join(one["SubnetId"] for one in subnets))
        return self.printed("loadtest", "deploy", "-C", str(self.folder), *network, "--lambda-timeout", "1")

    def opened(self, web_port: int = 0) -> AwsLoadTest:
        return open_load_test(self.name, self.clients, self.aws_url, web_port)

    def service_tasks(self) -> int:
        """Return how many tasks the service is to have."""
        cluster = f"{self.name}-load"
        found = self.clients.of("ecs").describe_services(cluster=cluster, services=[f"{cluster}-master"])
        return int(found["services"][0]["desiredCount"])

    def remains(self) -> dict[str, list[str]]:
        """Return what is left of the load test on AWS and on this machine."""
        functions = self.clients.of("lambda").list_functions()["Functions"]
        buckets = self.clients.of("s3").list_buckets()["Buckets"]
        found = {
            "functions": [one["FunctionName"] for one in functions if self.name in one["FunctionName"]],
            "buckets": [one["Name"] for one in buckets if self.name in one["Name"]],
            "clusters": [arn for arn in self.clients.of("ecs").list_clusters()["clusterArns"] if self.name in arn],
            "processes": [str(pid) for mark in MARKS for pid in processes_with(self.name, mark)],
        }
        return {kind: names for kind, names in found.items() if names}


@dataclass(frozen=True, slots=True)
class LocustPage:
    """The page of a master, as a browser uses it."""

    url: str

    def start_users(self, users: int) -> None:
        """Start a test."""
        form = urllib.parse.urlencode({"user_count": users, "spawn_rate": users}).encode()
        urllib.request.urlopen(f"{self.url}/swarm", form).close()

    def wait_until(self, is_reached: Callable[[dict[str, Any]], bool]) -> None:
        """Wait until the statistics on the page show something."""
        while True:
            with urllib.request.urlopen(f"{self.url}/stats/requests") as answer:
                if is_reached(json.load(answer)):
                    return
            time.sleep(0.2)


def write_locust_files(folder: Path) -> Path:
    """Write the folder that is pushed."""
    (folder / "locustfiles").mkdir()
    for name, text in ((ENDLESS, ENDLESS_FILE), (FEW_CALLS, FEW_CALLS_FILE), (BROKEN, BROKEN_FILE)):
        (folder / name).write_text(text)
    long_deadline = ROOT / "tests" / "long_deadline" / "sitecustomize.py"
    (folder / "locustfiles" / "long_deadline.py").write_text(long_deadline.read_text())
    return folder


class KilledWorker:
    """A distributed run in which the first worker is killed; it is interrupted when another has replaced it."""

    def __init__(self, commands: LoadTestCommands) -> None:
        self._commands = commands
        self._is_killed = False
        self.failures: list[RunFailure] = []

    def run(self) -> RunResult:
        """Run until the replacement is connected."""
        test = self._commands.opened()
        # The machine may be busy, so workers have minutes to connect.
        options: dict[str, Any] = {"users": 4, "duration_s": 600, "connect_within_s": 300}
        return test.run(test.configure(RunMode.DISTRIBUTED, ENDLESS, workers=2, **options), self._hear)

    def _hear(self, event: RunProgress | RunFailure) -> None:
        match event:
            case RunFailure():
                self.failures.append(event)
            case RunProgress(workers=2, measured=measured) if measured is not None and measured.admitted:
                if not self._is_killed:
                    self._is_killed = True
                    self._kill_first()
                elif processes_with(self._commands.name, "ZAE_LOADTEST_WORKER=worker-3") and self.failures:
                    raise KeyboardInterrupt

    def _kill_first(self) -> None:
        for pid in processes_with(self._commands.name, "ZAE_LOADTEST_WORKER=worker-1"):
            os.kill(pid, signal.SIGKILL)


def processes_with(*texts: str) -> list[int]:
    """Return the processes that have all these texts in their environment."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            environment = (entry / "environ").read_bytes() if entry.name.isdigit() else b""
        except OSError:
            # It has ended, or belongs to another user.
            continue
        if environment and all(text.encode() in environment for text in texts):
            found.append(int(entry.name))
    return found
