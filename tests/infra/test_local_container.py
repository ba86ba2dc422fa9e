"""The local AWS in a container: the requests to the engine, and the errors without one."""

import sys

import pytest

from tests.dynamodb.engines import free_port
from tests.infra.docker_engine import Engine, docker_engine
from tests.infra.local_servers import always_stopped
from zae_limiter.core.errors import LocalAwsError
from zae_limiter.infra.local import LocalAws, Wanted
from zae_limiter.infra.local_container import IMAGE
from zae_limiter.installation import extra_command


@pytest.fixture
def engine():
    return Engine(images={IMAGE})


@pytest.fixture
def aws(tmp_path, tmp_path_factory, engine, monkeypatch):
    # The path of a socket has room for about 100 characters.
    with docker_engine(tmp_path_factory.mktemp("d"), engine) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        with always_stopped(tmp_path / "local") as aws:
            yield aws


@pytest.fixture
def wanted():
    return Wanted(port=free_port(), in_docker=True)


def test_a_local_aws_container_is_started_found_and_stopped(aws, engine, wanted):
    """It is found by its record, as a process is."""
    up = aws.up(wanted)
    found = aws.status()
    stopped = aws.down()

    (container_id,) = [one for one in [up.server.container] if one]
    assert ("container", True, None) == (up.server.kind, up.answers, up.pid)
    assert (up, up.server, None) == (found, stopped, aws.status())
    assert {} == engine.containers
    assert f"DELETE containers {container_id}" in engine.calls


def test_a_local_aws_container_is_created_with_all_it_needs(aws, engine, wanted):
    """It gets a port on this machine only, a directory for its state, and the engine's socket for Lambda functions."""
    aws.up(wanted)

    ((container,),) = [engine.containers.values()]
    host = container.wanted["HostConfig"]
    assert ("zae-limiter-local", IMAGE) == (container.name, container.wanted["Image"])
    assert {"4566/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(wanted.port)}]} == host["PortBindings"]
    assert f"{aws.directory}/state/container:/var/lib/localstack" in host["Binds"]
    assert any(bind.endswith("docker.sock:/var/run/docker.sock") for bind in host["Binds"])
    assert {"PERSISTENCE=1", "PERSIST_STATE=1", "MINISTACK_REGION=us-east-1"} <= set(container.wanted["Env"])


def test_local_up_keeps_a_running_container(aws, engine, wanted):
    """This applies with and without the docker option."""
    assert aws.up(wanted) == aws.up(wanted) == aws.up(Wanted())
    assert 1 == len(engine.containers)


def test_local_up_pulls_a_missing_image(aws, engine, wanted):
    """Any compatible image may be used."""
    engine.images.clear()
    aws.up(Wanted(port=wanted.port, in_docker=True, image="localstack/localstack:4"))

    assert ["tag=4&fromImage=localstack/localstack"] == list(engine.images)


def test_local_up_removes_a_stale_container_of_the_same_name(aws, engine, wanted):
    """The name would be in use."""
    aws.up(wanted)
    (aws.directory / "server.json").unlink()
    for container_id in list(engine.containers):
        engine.stop(container_id)
    aws.up(wanted)

    assert 1 == len(engine.containers)


def test_an_error_of_the_engine_is_shown(aws, engine, wanted):
    """The text is that of the engine, and the container is still recorded."""
    aws.up(wanted)
    engine.refuses_to_stop = True
    with pytest.raises(LocalAwsError, match="the docker engine refuses: the container is stuck"):
        aws.down()
    engine.refuses_to_stop = False

    assert aws.down() is not None


def test_local_up_of_a_container_that_ends_during_the_start_shows_its_log(aws, engine, wanted):
    """The container is removed."""
    engine.broken = True
    with pytest.raises(LocalAwsError, match="it ended during startup") as caught:
        aws.up(wanted)

    assert (("starting", "Ready"), {}) == (caught.value.log_lines, engine.containers)


def test_the_log_of_a_container_is_shown_and_followed(aws, wanted):
    """It is followed line by line."""
    aws.up(wanted)

    assert (["starting", "Ready"], ["starting", "Ready"]) == (aws.logs(), list(aws.follow()))


def test_a_container_removed_by_the_user_can_be_started_again(aws, engine, wanted):
    """It is not reported as running."""
    aws.up(wanted)
    for container_id in list(engine.containers):
        engine.stop(container_id)
        del engine.containers[container_id]

    assert (None, []) == (aws.status(), aws.logs())
    assert aws.up(wanted).answers


class TestWithoutAnEngine:
    def test_local_up_without_an_engine_suggests_the_process(self, tmp_path, monkeypatch):
        """The error names the way that needs no engine."""
        monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")

        with pytest.raises(LocalAwsError, match="no docker engine answers; start one, or omit --docker"):
            LocalAws(tmp_path).up(Wanted(in_docker=True))

    def test_local_up_with_an_unreachable_network_engine_is_refused(self, tmp_path, monkeypatch):
        """No server listens at the address."""
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{free_port()}")

        with pytest.raises(LocalAwsError, match="no docker engine answers"):
            LocalAws(tmp_path).up(Wanted(in_docker=True))

    def test_local_up_without_the_docker_sdk_says_what_to_install(self, tmp_path, monkeypatch):
        """The SDK is an extra."""
        monkeypatch.setitem(sys.modules, "docker", None)

        monkeypatch.delitem(sys.modules, "docker.errors", raising=False)

        with pytest.raises(LocalAwsError) as caught:
            LocalAws(tmp_path).up(Wanted(in_docker=True))

        expected = f"the docker SDK is not installed; install it: {extra_command('local', 'docker')}"
        assert expected in str(caught.value)
