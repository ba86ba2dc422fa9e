"""The local AWS in a container: what an engine is asked for, and what is said where there is none."""

import sys

import pytest

from tests.dynamodb.engines import free_port
from tests.infra.docker_engine import Engine, docker_engine
from tests.infra.local_servers import stopped_in_the_end
from zae_limiter.core.errors import LocalAwsError
from zae_limiter.infra.local import LocalAws, Wanted
from zae_limiter.infra.local_container import IMAGE


@pytest.fixture
def engine():
    return Engine(images={IMAGE})


@pytest.fixture
def aws(tmp_path, tmp_path_factory, engine, monkeypatch):
    # The path of a socket has room for about 100 characters.
    with docker_engine(tmp_path_factory.mktemp("d"), engine) as address:
        monkeypatch.setenv("DOCKER_HOST", address)
        with stopped_in_the_end(tmp_path / "local") as aws:
            yield aws


@pytest.fixture
def wanted():
    return Wanted(port=free_port(), in_docker=True)


def test_it_is_started_found_and_stopped(aws, engine, wanted):
    """As a process is, by its record."""
    up = aws.up(wanted)
    found = aws.status()
    stopped = aws.down()

    (container_id,) = [one for one in [up.server.container] if one]
    assert ("container", True, None) == (up.server.kind, up.answers, up.pid)
    assert (up, up.server, None) == (found, stopped, aws.status())
    assert {} == engine.containers
    assert f"DELETE containers {container_id}" in engine.calls


def test_the_engine_is_asked_for_all_it_needs(aws, engine, wanted):
    """A port of this machine only, a place for its state, and the engine's own socket for functions of Lambda."""
    aws.up(wanted)

    ((container,),) = [engine.containers.values()]
    host = container.wanted["HostConfig"]
    assert ("zae-limiter-local", IMAGE) == (container.name, container.wanted["Image"])
    assert {"4566/tcp": [{"HostIp": "127.0.0.1", "HostPort": str(wanted.port)}]} == host["PortBindings"]
    assert f"{aws.directory}/state/container:/var/lib/localstack" in host["Binds"]
    assert any(bind.endswith("docker.sock:/var/run/docker.sock") for bind in host["Binds"])
    assert {"PERSISTENCE=1", "PERSIST_STATE=1", "MINISTACK_REGION=us-east-1"} <= set(container.wanted["Env"])


def test_one_that_runs_is_left_alone(aws, engine, wanted):
    """Whether or not docker is asked for again."""
    assert aws.up(wanted) == aws.up(wanted) == aws.up(Wanted())
    assert 1 == len(engine.containers)


def test_an_image_that_is_not_there_is_pulled(aws, engine, wanted):
    """Any that is compatible will do."""
    engine.images.clear()
    aws.up(Wanted(port=wanted.port, in_docker=True, image="localstack/localstack:4"))

    assert ["tag=4&fromImage=localstack/localstack"] == list(engine.images)


def test_what_an_earlier_run_left_under_the_name_is_removed(aws, engine, wanted):
    """Its name would be taken."""
    aws.up(wanted)
    (aws.directory / "server.json").unlink()
    for container_id in list(engine.containers):
        engine.stop(container_id)
    aws.up(wanted)

    assert 1 == len(engine.containers)


def test_what_the_engine_refuses_is_told(aws, engine, wanted):
    """In its words, and the container is still known."""
    aws.up(wanted)
    engine.refuses_to_stop = True
    with pytest.raises(LocalAwsError, match="the docker engine refuses: the container is stuck"):
        aws.down()
    engine.refuses_to_stop = False

    assert aws.down() is not None


def test_one_that_ends_while_it_starts_has_its_last_words_shown(aws, engine, wanted):
    """And is removed."""
    engine.broken = True
    with pytest.raises(LocalAwsError, match="it ended during startup") as caught:
        aws.up(wanted)

    assert (("starting", "Ready"), {}) == (caught.value.log_lines, engine.containers)


def test_its_log_is_shown_and_followed(aws, wanted):
    """Line by line."""
    aws.up(wanted)

    assert (["starting", "Ready"], ["starting", "Ready"]) == (aws.logs(), list(aws.follow()))


def test_a_container_that_somebody_removed_is_none(aws, engine, wanted):
    """It can be started anew."""
    aws.up(wanted)
    for container_id in list(engine.containers):
        engine.stop(container_id)
        del engine.containers[container_id]

    assert (None, []) == (aws.status(), aws.logs())
    assert aws.up(wanted).answers


class TestWithoutAnEngine:
    def test_it_is_said_so(self, tmp_path, monkeypatch):
        """With the way that needs none."""
        monkeypatch.setenv("DOCKER_HOST", "unix:///nonexistent")

        with pytest.raises(LocalAwsError, match="no docker engine answers; start one, or omit --docker"):
            LocalAws(tmp_path).up(Wanted(in_docker=True))

    def test_nor_over_a_network(self, tmp_path, monkeypatch):
        """Where nobody listens."""
        monkeypatch.setenv("DOCKER_HOST", f"tcp://127.0.0.1:{free_port()}")

        with pytest.raises(LocalAwsError, match="no docker engine answers"):
            LocalAws(tmp_path).up(Wanted(in_docker=True))

    def test_without_the_sdk_it_is_said_how_to_get_it(self, tmp_path, monkeypatch):
        """It is an extra."""
        monkeypatch.setitem(sys.modules, "docker", None)

        with pytest.raises(
            LocalAwsError, match=r'the docker SDK is not installed; .*pip install "zae-limiter\[local\]"'
        ):
            LocalAws(tmp_path).up(Wanted(in_docker=True))
