"""The tunnel to the web page of a master, with a stand-in for the plugin of Systems Manager."""

import json
import os
import sys
import urllib.request
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.dynamodb.engines import free_port
from zae_limiter.loadtest.load_test_error import LoadTestError, MissingPluginError
from zae_limiter.loadtest.locust_process import answers
from zae_limiter.loadtest.tunnel import PortForwarding, target_of, tunnel, version_of

SESSION = {"SessionId": "s-1", "TokenValue": "secret", "StreamUrl": "wss://example"}

# It does what the plugin does: listen at the local port until it is interrupted.
STAND_IN = f"""#!{sys.executable}
import http.server, json, os, sys
if "--version" in sys.argv:
    print(os.environ["STAND_IN_VERSION"])
    sys.exit()
with open(os.environ["STAND_IN_RECORD"], "w") as record:
    json.dump({{"arguments": sys.argv[1:], "response": os.environ.get("AWS_SSM_START_SESSION_RESPONSE")}}, record)
if os.environ.get("STAND_IN_FAILURE"):
    sys.exit(os.environ["STAND_IN_FAILURE"])
port = int(json.loads(sys.argv[5])["Parameters"]["localPortNumber"][0])
http.server.HTTPServer(("127.0.0.1", port), http.server.SimpleHTTPRequestHandler).serve_forever()
"""


class Ssm:
    """Starts sessions, and records their requests."""

    meta = SimpleNamespace(endpoint_url="https://ssm.example")

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    def start_session(self, **request: Any) -> dict[str, Any]:
        self.requests.append(request)
        return {**SESSION, "ResponseMetadata": {}}


class FakeClients:
    """The local AWS has no sessions."""

    region = "eu-west-1"

    def __init__(self) -> None:
        self.ssm = Ssm()

    def of(self, service: str) -> Ssm:
        assert "ssm" == service
        return self.ssm


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put the stand-in on the path, and return the file in which it records its call."""
    program = tmp_path / "session-manager-plugin"
    program.write_text(STAND_IN)
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("STAND_IN_RECORD", str(tmp_path / "record.json"))
    monkeypatch.setenv("STAND_IN_VERSION", "1.2.553.0")
    return tmp_path / "record.json"


class TestTunnel:
    def test_tunnel_forwards_the_local_port_while_it_is_open(self, plugin):
        """The plugin ends with the context."""
        clients, port = FakeClients(), free_port()

        with (
            tunnel(clients, PortForwarding("ecs:c_t_r", 8089, port)),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=10) as answer,
        ):
            status = answer.status

        assert 200 == status
        assert not answers(port)
        assert [
            {
                "Target": "ecs:c_t_r",
                "DocumentName": "AWS-StartPortForwardingSession",
                "Parameters": {"portNumber": ["8089"], "localPortNumber": [str(port)]},
            }
        ] == clients.ssm.requests

    def test_plugin_gets_the_token_in_its_environment(self, plugin):
        """Arguments can be seen by all users of a machine."""
        with tunnel(FakeClients(), PortForwarding("ecs:c_t_r", 8089, free_port())):
            record = json.loads(plugin.read_text())

        assert "AWS_SSM_START_SESSION_RESPONSE" == record["arguments"][0]
        assert ["eu-west-1", "StartSession", ""] == record["arguments"][1:4]
        assert "https://ssm.example" == record["arguments"][5]
        assert SESSION == json.loads(record["response"])

    def test_old_plugin_gets_the_token_as_argument(self, plugin, monkeypatch):
        """It knows no other way."""
        monkeypatch.setenv("STAND_IN_VERSION", "1.2.463.0")

        with tunnel(FakeClients(), PortForwarding("ecs:c_t_r", 8089, free_port())):
            record = json.loads(plugin.read_text())

        assert SESSION == json.loads(record["arguments"][0])
        assert record["response"] is None

    def test_plugin_that_fails_is_reported_with_its_output(self, plugin, monkeypatch):
        """The user sees what it said."""
        monkeypatch.setenv("STAND_IN_FAILURE", "no network")

        with (
            pytest.raises(LoadTestError, match="no network"),
            tunnel(FakeClients(), PortForwarding("ecs:c_t_r", 8089, free_port())),
        ):
            pass

    def test_missing_plugin_is_reported_with_how_to_install_it(self, monkeypatch, tmp_path):
        """Before a session is started."""
        monkeypatch.setenv("PATH", str(tmp_path))
        clients = FakeClients()

        with (
            pytest.raises(MissingPluginError, match=r"https://docs\.aws\.amazon\.com"),
            tunnel(clients, PortForwarding("ecs:c_t_r", 8089, free_port())),
        ):
            pass
        assert [] == clients.ssm.requests


def task_with(*containers: dict[str, Any]) -> dict[str, Any]:
    return {"taskArn": "arn:aws:ecs:eu-west-1:1:task/my-app-load/abc", "containers": list(containers)}


class TestTarget:
    def test_target_names_cluster_task_and_container(self):
        """The form that Systems Manager expects."""
        others = {"name": "aws-guardduty-agent-x", "runtimeId": "abc-2"}
        agents = [{"name": "ExecuteCommandAgent", "lastStatus": "RUNNING"}]
        master = {"name": "master", "runtimeId": "abc-1", "managedAgents": agents}

        found = target_of("my-app-load", task_with(others, master))

        assert "ecs:my-app-load_abc_abc-1" == found

    @pytest.mark.parametrize(
        "containers",
        [
            [],
            [{"name": "master"}],
            [{"name": "master", "runtimeId": "abc-1", "managedAgents": [{"lastStatus": "PENDING"}]}],
        ],
    )
    def test_target_of_a_starting_container_is_unknown(self, containers):
        """It has no runtime id yet, or its agent does not accept sessions yet."""
        assert target_of("my-app-load", task_with(*containers)) is None

    def test_version_is_read_from_the_output_of_the_plugin(self):
        """It prints nothing else."""
        assert (1, 2, 553, 0) == version_of("1.2.553.0\n")
        assert () == version_of("unknown")
