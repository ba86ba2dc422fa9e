"""Where a master runs, and at which address."""

import time
from dataclasses import replace

import pytest

from tests.dynamodb.engines import EngineAbsentError, fresh_table_name, running
from tests.dynamodb.trees import session
from tests.loadtest.run_configs import a_run
from zae_limiter.infra.clients import Clients
from zae_limiter.loadtest.aws_run import AwsLoadTest
from zae_limiter.loadtest.load_options import LoadOutputs
from zae_limiter.loadtest.load_test_error import LoadTestError, MissingPluginError
from zae_limiter.loadtest.master import address_of
from zae_limiter.loadtest.master_host import FargateHost, LocalHost, master_host
from zae_limiter.loadtest.run_config import RunMode, RunTarget
from zae_limiter.loadtest.run_objects import RunObjects, current_run_id

REGION = "us-east-1"
TARGET = RunTarget("my-app", REGION)


@pytest.fixture(scope="module")
def clients() -> Clients:
    try:
        return Clients(REGION, running("aws").url, session())
    except EngineAbsentError as absent:
        pytest.skip(str(absent))


@pytest.fixture
def outputs(clients: Clients) -> LoadOutputs:
    """Return a stack that consists of a cluster and a service."""
    name, ecs = fresh_table_name(), clients.of("ecs")
    ecs.create_cluster(clusterName=name)
    container = {"name": "master", "image": "python", "memory": 128}
    task = ecs.register_task_definition(family=name, containerDefinitions=[container])["taskDefinition"]
    ecs.create_service(
        cluster=name, serviceName=f"{name}-master", taskDefinition=task["taskDefinitionArn"], desiredCount=0
    )
    return LoadOutputs(
        limiter_name=name,
        cluster_name=name,
        service_name=f"{name}-master",
        task_definition_arn=task["taskDefinitionArn"],
        function_name="",
        bucket_name="",
        worker_role_arn="",
        log_group_name="",
        master_log_group_name="",
        master_security_group_id="",
        worker_security_group_id="",
        subnet_ids=(),
        max_workers=10,
        min_workers=1,
        users_per_worker=10,
        lambda_timeout_s=60,
        assign_public_ip=False,
        image_uri=None,
    )


def tasks_of(clients: Clients, outputs: LoadOutputs) -> int:
    found = clients.of("ecs").describe_services(cluster=outputs.cluster_name, services=[outputs.service_name])
    return found["services"][0]["desiredCount"]


class TestFargateHost:
    def test_start_and_stop_set_the_service_to_one_and_zero(self, clients, outputs):
        """Nothing runs between tests."""
        host = FargateHost(clients, outputs)

        host.start()
        started = tasks_of(clients, outputs)
        host.stop()

        assert (1, 0) == (started, tasks_of(clients, outputs))

    def test_second_run_at_the_same_time_is_refused(self, clients, outputs):
        """The first run keeps its master, and its configuration is not replaced."""
        FargateHost(clients, outputs).start()
        clients.of("s3").create_bucket(Bucket=outputs.cluster_name)
        first, second = (replace(a_run(RunMode.STANDALONE), run_id=run_id) for run_id in ("first", "second"))
        test = AwsLoadTest(
            clients, replace(outputs, bucket_name=outputs.cluster_name), TARGET, FargateHost(clients, outputs)
        )
        RunObjects(test.bucket, first).begin()

        with pytest.raises(LoadTestError, match="another run uses the master"):
            test.run(second, lambda _: None)
        assert 1 == tasks_of(clients, outputs)
        assert "first" == current_run_id(test.bucket)

    def test_task_that_stopped_in_this_run_is_a_failure_with_its_reason(self, clients, outputs):
        """Tasks of earlier runs are not."""
        host = FargateHost(clients, outputs)
        host.start()
        assert host.failure() is None
        host.stop()

        assert "the task of the master stopped" in str(host.failure())
        host.start()
        assert host.failure() is None

    def test_task_that_stopped_is_reported_with_the_end_of_its_log(self, clients, outputs):
        """Lines of earlier runs are left out."""
        logs, place = clients.of("logs"), {"logGroupName": outputs.cluster_name, "logStreamName": "master"}
        logs.create_log_group(logGroupName=outputs.cluster_name)
        logs.create_log_stream(**place)
        host = FargateHost(clients, replace(outputs, master_log_group_name=outputs.cluster_name))
        host.start()
        now_ms = int(time.time() * 1000)
        events = [(now_ms - 3_600_000, "an earlier run"), (now_ms + 1000, "pip failed\nno wheels")]
        logs.put_log_events(**place, logEvents=[{"timestamp": at_ms, "message": text} for at_ms, text in events])
        host.stop()

        assert ("pip failed", "no wheels") == host.failure().log_lines

    def test_page_without_the_plugin_starts_no_task(self, clients, outputs, monkeypatch, tmp_path):
        """A task costs money, and takes a minute to start."""
        monkeypatch.setenv("PATH", str(tmp_path))
        test = AwsLoadTest(clients, outputs, TARGET, FargateHost(clients, outputs))

        with pytest.raises(MissingPluginError):
            test.begin(RunObjects(test.bucket, a_run(RunMode.UI)))
        assert 0 == tasks_of(clients, outputs)


class TestMasterHost:
    def test_local_aws_has_its_master_on_this_machine(self, clients, outputs):
        """It cannot start containers."""
        assert isinstance(master_host(clients, outputs), LocalHost)

    def test_aws_has_its_master_in_the_service(self, outputs):
        """The endpoint decides."""
        assert isinstance(master_host(Clients(REGION, session=session()), outputs), FargateHost)

    def test_master_that_fails_is_reported_with_the_end_of_its_log(self, clients, outputs):
        """Its bucket does not exist."""
        host = LocalHost(clients, outputs)
        host.start()
        host.wait(60)

        failure = host.failure()
        host.stop()

        assert failure is not None
        assert "the master ended with exit code 1" == failure.reason
        assert failure.log_lines


class TestAddress:
    def test_address_of_a_task_is_the_first_of_its_container(self):
        """Workers are in the same VPC."""
        networks = [{"NetworkMode": "awsvpc", "IPv4Addresses": ["10.0.1.7"]}]

        assert "10.0.1.7" == address_of({"Containers": [{"Networks": networks}]})
