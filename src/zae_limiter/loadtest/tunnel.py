"""Forward a local port to the web page of a master in a task, through AWS Systems Manager. Blocking."""

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from zae_limiter.infra.clients import FAILURES, Clients, reason_of
from zae_limiter.loadtest.load_test_error import LoadTestError, MissingPluginError
from zae_limiter.loadtest.locust_process import answers

PLUGIN = "session-manager-plugin"
_DOCUMENT = "AWS-StartPortForwardingSession"
# As in the task definition.
_CONTAINER = "master"
_RESPONSE_VARIABLE = "AWS_SSM_START_SESSION_RESPONSE"
# Since this version the plugin reads the token from the environment. Arguments can be seen by all users of a machine.
_READS_ENVIRONMENT = (1, 2, 497, 0)
_VERSION_S = 30.0
_OPEN_S = 60.0
_POLL_S = 0.2
_STOP_S = 5.0


@dataclass(frozen=True, slots=True)
class TunnelCommand:
    """The arguments of the plugin, and its further environment variables."""

    arguments: tuple[str, ...]
    environment: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class PortForwarding:
    """A port of a task, and the port of this machine that reaches it."""

    target: str
    remote_port: int
    local_port: int

    @property
    def request(self) -> dict[str, Any]:
        """The request that starts the session."""
        ports = {"portNumber": [str(self.remote_port)], "localPortNumber": [str(self.local_port)]}
        return {"Target": self.target, "DocumentName": _DOCUMENT, "Parameters": ports}


def target_of(cluster: str, task: Mapping[str, Any]) -> str | None:
    """Return the name of the master's container in Systems Manager; None while it or its agent starts."""
    # AWS may add containers to a task, such as one that monitors it.
    master = next((one for one in task["containers"] if one["name"] == _CONTAINER), None)
    if master is None or "runtimeId" not in master:
        return None
    # A session is refused until the agent runs, which starts after the container.
    if any(agent.get("lastStatus") != "RUNNING" for agent in master.get("managedAgents", [])):
        return None
    return f"ecs:{cluster}_{str(task['taskArn']).rsplit('/', 1)[-1]}_{master['runtimeId']}"


def plugin_command(
    session: Mapping[str, Any], request: Mapping[str, Any], clients: Clients, version: tuple[int, ...]
) -> TunnelCommand:
    """Return how to call the plugin for a session."""
    response = json.dumps({name: session[name] for name in ("SessionId", "TokenValue", "StreamUrl")})
    in_environment = version >= _READS_ENVIRONMENT
    first = _RESPONSE_VARIABLE if in_environment else response
    endpoint_url = str(clients.of("ssm").meta.endpoint_url)
    return TunnelCommand(
        (PLUGIN, first, clients.region, "StartSession", "", json.dumps(request), endpoint_url),
        {_RESPONSE_VARIABLE: response} if in_environment else {},
    )


def version_of(printed: str) -> tuple[int, ...]:
    """Return the version that the plugin printed, () if it printed none."""
    found = re.search(r"\d+(\.\d+)+", printed)
    return () if found is None else tuple(int(number) for number in found.group().split("."))


def require_plugin() -> None:
    """Require that the plugin is installed.

    Raises:
        MissingPluginError: It is not on the path.
    """
    if shutil.which(PLUGIN) is None:
        raise MissingPluginError


@contextmanager
def tunnel(clients: Clients, forwarding: PortForwarding) -> Iterator[None]:
    """Forward a port while the context is open; it begins when the port answers.

    Raises:
        MissingPluginError: The plugin is not installed.
        LoadTestError: The session cannot be started, or the port does not answer.
    """
    require_plugin()
    request = forwarding.request
    try:
        session = clients.of("ssm").start_session(**request)
    except FAILURES as failed:
        raise LoadTestError(f"the tunnel cannot be opened: {reason_of(failed)}") from failed
    command = plugin_command(session, request, clients, _installed_version())
    process = subprocess.Popen(
        command.arguments,
        env={**os.environ, **command.environment},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    try:
        _await_port(process, forwarding.local_port)
        yield
    finally:
        _stop(process)


def _await_port(process: subprocess.Popen[bytes], port: int) -> None:
    until_s = time.monotonic() + _OPEN_S
    while not answers(port):
        if process.poll() is not None:
            assert process.stderr is not None, "it is a pipe"
            lines = process.stderr.read().decode(errors="replace").splitlines()
            raise LoadTestError(f"the tunnel ended with exit code {process.returncode}", lines)
        if time.monotonic() > until_s:
            raise LoadTestError(f"port {port} does not answer through the tunnel")
        time.sleep(_POLL_S)


def _installed_version() -> tuple[int, ...]:
    done = subprocess.run([PLUGIN, "--version"], capture_output=True, text=True, check=False, timeout=_VERSION_S)
    return version_of(done.stdout)


def _stop(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        # The plugin ends its session when it is interrupted.
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
    if process.stderr is not None:
        process.stderr.close()
