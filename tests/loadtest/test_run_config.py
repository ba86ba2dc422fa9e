"""The configuration of a run on AWS, its checks, and what it may cost."""

import json
from dataclasses import replace

import pytest

from tests.loadtest.memory_bucket import MemoryBucket
from tests.loadtest.run_configs import a_run
from zae_limiter.core.errors import ValidationError
from zae_limiter.loadtest.costs import Ceiling
from zae_limiter.loadtest.node_process import locust_arguments, target_environment
from zae_limiter.loadtest.run_config import (
    LONGEST_UI_S,
    RunConfig,
    RunMode,
    RunTarget,
    check_classes,
    check_duration,
    check_file,
)
from zae_limiter.loadtest.run_objects import RunObjects, current_run_id

CONFIG = a_run(RunMode.HEADLESS, classes=("SimpleUser",))


class TestRunConfig:
    def test_configuration_is_the_same_after_json(self):
        """The worker and the master read what the command wrote."""
        assert CONFIG == RunConfig.from_dict(json.loads(json.dumps(CONFIG.to_dict())))

    def test_field_of_a_newer_client_is_ignored(self):
        """A pushed worker may be older than the command."""
        assert CONFIG == RunConfig.from_dict(CONFIG.to_dict() | {"weather": "sunny"})

    def test_classes_follow_the_options_of_locust(self):
        """They are its positional arguments."""
        assert ["--headless", "SimpleUser"] == locust_arguments(CONFIG, "--headless")[-2:]

    def test_locust_file_gets_the_limiter_by_name_and_by_url(self):
        """The URL takes precedence over what the file says."""
        assert {
            "TARGET_STACK_NAME": "my-app",
            "TARGET_REGION": "eu-west-1",
            "ZAE_LOADTEST_URL": "dynamodb://my-app?region=eu-west-1",
        } == target_environment(CONFIG, None)

    def test_endpoint_of_the_sandbox_replaces_that_of_the_command(self):
        """A container reaches the local AWS at another address."""
        local = replace(CONFIG, target=RunTarget("my-app", "eu-west-1", "http://localhost:4566"))

        found = target_environment(local, "http://aws:4566")["ZAE_LOADTEST_URL"]

        assert "dynamodb://my-app?region=eu-west-1&endpoint_url=http://aws:4566" == found


class TestRunObjects:
    @pytest.mark.parametrize(("mode", "current"), [(RunMode.HEADLESS, None), (RunMode.STANDALONE, CONFIG.run_id)])
    def test_run_without_a_master_is_not_the_one_that_a_master_executes(self, mode, current):
        """A master of another run may be starting."""
        bucket = MemoryBucket()

        RunObjects(bucket, replace(CONFIG, mode=mode)).begin()

        assert current == current_run_id(bucket)


class TestChecks:
    def test_headless_duration_of_90_percent_of_the_function_is_accepted(self):
        """The rest is for the report."""
        check_duration(270, 300, RunMode.HEADLESS)

    def test_headless_duration_above_90_percent_requires_workers(self):
        """The function would end before the test."""
        with pytest.raises(ValidationError, match=r"at most 270 s .* pass --workers N"):
            check_duration(271, 300, RunMode.HEADLESS)

    @pytest.mark.parametrize("mode", [RunMode.DISTRIBUTED, RunMode.STANDALONE])
    def test_duration_with_a_master_is_not_limited_by_the_function(self, mode):
        """Its workers are replaced, or there are none."""
        check_duration(7200, 300, mode)

    def test_unknown_class_lists_those_that_exist(self):
        """The user sees what to type."""
        with pytest.raises(ValidationError, match=r"simple.py has: SimpleCascadeUser, SimpleUser"):
            check_classes(["SimplUser"], ["SimpleUser", "SimpleCascadeUser"], "simple.py")

    def test_file_that_was_not_pushed_lists_those_that_were(self):
        """The folder of the last push may be another one."""
        with pytest.raises(ValidationError, match=r"the bucket has: locustfiles/simple.py\. Push with"):
            check_file("simple.py", ["locustfiles/simple.py", "README.md"])


class TestCeiling:
    def test_run_without_a_maximum_is_bounded_by_its_cost(self):
        """Locust ends it after its duration."""
        assert Ceiling(5.0, None) == CONFIG.ceiling

    def test_maximum_duration_bounds_every_run(self):
        """Also its start counts."""
        assert Ceiling(5.0, 30) == replace(CONFIG, max_duration_s=30).ceiling

    def test_run_with_a_page_ends_after_an_hour(self):
        """A page that is left open does not cost money for days."""
        page = replace(CONFIG, mode=RunMode.UI)

        assert Ceiling(5.0, LONGEST_UI_S) == page.ceiling
        assert Ceiling(5.0, 60) == replace(page, max_duration_s=60).ceiling
