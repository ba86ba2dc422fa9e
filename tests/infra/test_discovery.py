"""Stacks of limiters are found among other stacks."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from tests.dynamodb.engines import Engine
from tests.infra.conftest import clients_at
from zae_limiter import RateLimiter, SyncRateLimiter
from zae_limiter.core.errors import RateLimiterUnavailable
from zae_limiter.core.version import SCHEMA_VERSION
from zae_limiter.infra import tags
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.discovery import LimiterInfo, info_of, list_limiters
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.stack import Stack

AT = datetime(2024, 1, 1, 12, tzinfo=UTC)
NEXT_TO_NOTHING = json.dumps({"Resources": {"Nothing": {"Type": "AWS::CloudFormation::WaitConditionHandle"}}})
STACKS_OF_A_PAGE = 100


def stack_description(name: str, status: str = "CREATE_COMPLETE", **more: Any) -> dict[str, Any]:
    return {"StackName": name, "StackStatus": status, "CreationTime": AT, **more}


def known(name: str, status: str = "CREATE_COMPLETE") -> LimiterInfo:
    found = info_of(stack_description(name, status, Tags=[{"Key": tags.TYPE, "Value": "limiter"}]), "us-east-1")
    assert found is not None
    return found


class TestOnAws:
    def test_list_limiters_finds_limiters_on_every_page(self, aws: Engine) -> None:
        """They are listed by name, in the requested region, among other stacks."""
        clients = clients_at(aws.url, "eu-west-1")
        for number in range(STACKS_OF_A_PAGE):
            clients.of("cloudformation").create_stack(StackName=f"other-{number}", TemplateBody=NEXT_TO_NOTHING)
        for name in ("second", "first"):
            Stack(name, clients).deploy(StackOptions(enable_aggregator=False, create_iam=False))
        found = list_limiters(clients)

        assert [("first", "eu-west-1"), ("second", "eu-west-1")] == [(one.user_name, one.region) for one in found]
        assert {SCHEMA_VERSION} == {one.schema_version for one in found}
        assert all(one.is_healthy and one.version and one.lambda_version for one in found)
        assert list_limiters(clients_at(aws.url, "eu-west-2")) == []

    async def test_async_and_sync_list_deployed_return_the_same_limiters(
        self, aws: Engine, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Without a session, the configured keys are used."""
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        Stack("my-app", clients_at(aws.url, "ap-south-1")).deploy(
            StackOptions(enable_aggregator=False, create_iam=False)
        )
        found = await RateLimiter.list_deployed("ap-south-1", aws.url)

        assert ["my-app"] == [one.user_name for one in found]
        assert found == SyncRateLimiter.list_deployed("ap-south-1", aws.url)

    def test_list_limiters_of_an_unavailable_aws_raises_unavailable(self) -> None:
        with pytest.raises(RateLimiterUnavailable, match=r"127\.0\.0\.1"):
            list_limiters(clients_at("http://127.0.0.1:9"))


class TestRecognizing:
    def test_a_stack_of_another_application_is_not_a_limiter(self) -> None:
        assert info_of(stack_description("shop", Description="A shop"), "us-east-1") is None

    def test_a_stack_with_the_old_prefix_is_a_limiter(self) -> None:
        """The prefix is not part of the user's name."""
        found = info_of(stack_description("ZAEL-my-app"), "us-east-1")

        assert found is not None
        assert ("ZAEL-my-app", "my-app", None) == (found.stack_name, found.user_name, found.version)

    def test_a_stack_deployed_from_the_template_without_tags_is_a_limiter(self) -> None:
        found = info_of(stack_description("my-app", Description="zae-limiter: a table of rate limits"), "us-east-1")

        assert found is not None
        assert ("my-app", "limiter") == (found.user_name, found.stack_type)

    def test_limiter_info_is_read_from_the_tags(self) -> None:
        said = tags.to_list(tags.limiter_tags("my-app", "1.2.3", {"team": "a"}))
        found = info_of(stack_description("my-app", Tags=said, LastUpdatedTime=AT), "us-east-1")

        assert found == LimiterInfo(
            stack_name="my-app",
            user_name="my-app",
            region="us-east-1",
            stack_status="CREATE_COMPLETE",
            creation_time="2024-01-01T12:00:00+00:00",
            last_updated_time="2024-01-01T12:00:00+00:00",
            version="1.2.3",
            lambda_version="1.2.3",
            schema_version=SCHEMA_VERSION,
            stack_type="limiter",
        )

    def test_a_stack_of_another_type_is_listed_only_on_request(self, aws: Engine) -> None:
        """Load tests have stacks too."""
        clients: Clients = clients_at(aws.url, "eu-west-3")
        said = [{"Key": tags.TYPE, "Value": "loadtest"}, {"Key": tags.NAME, "Value": "my-app"}]
        clients.of("cloudformation").create_stack(StackName="my-load", TemplateBody=NEXT_TO_NOTHING, Tags=said)

        assert list_limiters(clients) == []
        assert ["my-load"] == [one.stack_name for one in list_limiters(clients, "loadtest")]
        assert ["my-load"] == [one.stack_name for one in list_limiters(clients, None)]


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        ("CREATE_COMPLETE", "healthy"),
        ("UPDATE_COMPLETE", "healthy"),
        ("UPDATE_IN_PROGRESS", "in progress"),
        ("ROLLBACK_IN_PROGRESS", "in progress"),
        ("UPDATE_ROLLBACK_COMPLETE", "failed"),
        ("ROLLBACK_COMPLETE", "failed"),
        ("DELETE_FAILED", "failed"),
        ("REVIEW_IN_PROGRESS", ""),
    ],
)
def test_a_limiter_status_is_healthy_in_progress_or_failed(status: str, expected: str) -> None:
    """A stack that waits for review is none of them."""
    found = known("my-app", status)
    said = {"healthy": found.is_healthy, "in progress": found.is_in_progress, "failed": found.is_failed}

    assert expected == "".join(name for name, holds in said.items() if holds)
