"""``deploy, delete, status, list``: their output and their exit codes."""

import io
import json
import zipfile
from importlib import metadata

import pytest

from tests.cli.aws import invoke, printed_json
from tests.dynamodb.engines import EngineAbsentError, free_port, fresh_table_name, running
from zae_limiter import SyncRateLimiter, SyncRepository
from zae_limiter._sync.store.versions import Inspected
from zae_limiter._sync.upgrade import inspect, record_deployed
from zae_limiter.cli._status import health_of, status_of
from zae_limiter.core.version import VersionRecord
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.function import AggregatorFunction, package_sha256
from zae_limiter.infra.stack import Stack
from zae_limiter.infra.template import limiter_template
from zae_limiter.schema import version_item
from zae_limiter.schema.operations import Put

OWN = metadata.version("zae-limiter")
BROKEN_PART = """
  Broken:
    Type: AWS::Logs::LogStream
    DependsOn: Table
    Properties:
      LogGroupName: a-group-that-does-not-exist
Outputs:
"""
BARE = ("--no-aggregator", "--no-alarms", "--no-iam")
LEAN = ("--no-alarms", "--no-audit-archival")


def newer_code():
    """A package that differs from that of this installation."""
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as package:
        package.writestr("code.py", "newer = True")
    return written.getvalue()


NEWER_CODE = newer_code()


@pytest.fixture
def aws(monkeypatch):
    """A local AWS, named by the environment."""
    try:
        url = running("aws").url
    except EngineAbsentError as absent:
        pytest.skip(str(absent))
    known = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    for variable, value in {**known, "AWS_ENDPOINT_URL": url}.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.delenv("ZAE_LIMITER_URL", raising=False)
    return url


@pytest.fixture
def name():
    return fresh_table_name()


class TestDeploy:
    def test_deploy_prints_every_step_and_the_resulting_resources(self, aws, name):
        """In a pipe, each step is a line on stderr; the resources are on stdout."""
        done = invoke("deploy", "--name", name, *BARE)

        assert 0 == done.exit_code
        assert f"Deploying {name}: CREATE_COMPLETE Table (AWS::DynamoDB::Table)\n" in done.stderr
        assert f"export ZAE_LIMITER_URL='dynamodb://{name}?region=us-east-1'\n" in done.stderr
        assert ["TableName", name] == next(line.split() for line in done.stdout.splitlines() if "TableName" in line)

    def test_a_deployed_limiter_can_be_used_immediately(self, aws, name):
        """The default namespace is registered, and the versions are recorded."""
        made = printed_json(invoke("deploy", "--name", name, *LEAN, "--json"))
        with SyncRepository.open(made["url"], deadline_s=30) as repo:
            record = repo.get_version_record()

            assert [] == SyncRateLimiter(repo).get_audit_events("nobody")
            assert ("2.0.0", OWN) == (record.schema_version, record.lambda_version)
        assert (name, "CREATE_COMPLETE") == (made["name"], made["stack_status"])
        assert f"{name}-aggregator" == made["outputs"]["AggregatorFunctionName"]

    def test_deploying_again_without_options_changes_nothing(self, aws, name):
        """The stack stays as it was, and its table stays protected from deletion."""
        invoke("deploy", "--name", name, *BARE, "--enable-deletion-protection", "--tag", "team=search")
        stack = Stack(name, Clients())
        before, table = stack.require(), Clients().of("dynamodb").describe_table(TableName=name)["Table"]
        again = invoke("deploy", "--name", name)

        assert 0 == again.exit_code
        assert "No option was changed.\n" in again.stderr
        assert "Changed" not in again.stdout
        assert before == stack.require()
        assert table == Clients().of("dynamodb").describe_table(TableName=name)["Table"]
        assert table["DeletionProtectionEnabled"]

    def test_deploying_again_changes_only_the_given_options_and_prints_them(self, aws, name):
        """Each change has the old and the new value, with the names of the flags."""
        invoke("deploy", "--name", name, *BARE, "--pitr-recovery-days", "9", "--tag", "team=search")
        before = Stack(name, Clients()).require().parameters
        flags = ("--usage-retention-days", "7", "--enable-deletion-protection", "--no-tags")
        again = invoke("deploy", "--name", name, *flags)
        after = Stack(name, Clients()).require()

        assert [
            "Changed --usage-retention-days: 90 -> 7",
            "Changed --enable-deletion-protection: off -> on",
            "Changed --tag: team=search -> none",
        ] == [line for line in again.stdout.splitlines() if line.startswith("Changed ")]
        assert {"UsageRetentionDays": "7", "EnableDeletionProtection": "true"} == dict(
            after.parameters.items() - before.items()
        )
        assert "team" not in after.tags

    def test_reset_options_restores_the_defaults_of_omitted_options(self, aws, name):
        """The changes are printed, also as JSON."""
        invoke("deploy", "--name", name, *BARE, "--pitr-recovery-days", "9", "--usage-retention-days", "7")
        again = printed_json(
            invoke("deploy", "--name", name, *BARE, "--reset-options", "--usage-retention-days", "8", "--json")
        )

        assert [("usage_retention_days", 7, 8), ("pitr_recovery_days", 9, 35)] == [
            (one["option"], one["old"], one["new"]) for one in again["changes"]
        ]
        assert ("UPDATE_COMPLETE", "8") == (again["stack_status"], again["outputs"]["UsageRetentionDays"])

    def test_deploy_with_a_flag_that_contradicts_the_stack_changes_nothing(self, aws, name):
        """The error says which flags would work."""
        invoke("deploy", "--name", name, *BARE)
        before = Stack(name, Clients()).require()
        done = invoke("deploy", "--name", name, "--enable-aggregator")

        assert (2, "") == (done.exit_code, done.stdout)
        assert "pass --aggregator-role-arn, --iam or --no-aggregator" in done.stderr
        assert before == Stack(name, Clients()).require()

    def test_deploy_refuses_a_stack_whose_options_are_unknown(self, aws, name):
        """The CDK makes such stacks. Its options would be lost without notice."""
        resources = {"Nothing": {"Type": "AWS::CloudFormation::WaitConditionHandle"}}
        template = json.dumps({"Description": "zae-limiter: mine", "Resources": resources})
        Clients().of("cloudformation").create_stack(StackName=name, TemplateBody=template)
        Stack(name, Clients()).wait()
        refused = invoke("deploy", "--name", name, *BARE)
        replaced = invoke("deploy", "--name", name, *BARE, "--reset-options")

        assert (69, 0) == (refused.exit_code, replaced.exit_code)
        assert "its options are unknown" in refused.stderr
        assert "replace all its options: --reset-options" in refused.stderr

    def test_no_iam_alone_deploys_no_aggregator_and_says_so(self, aws, name):
        """The function would have no role. With a role of your own it stays."""
        role = "arn:aws:iam::000000000000:role/mine"
        without = invoke("deploy", "--name", name, "--no-iam", "--no-alarms")
        roleless = Stack(name, Clients()).require().outputs
        within = invoke("deploy", "-n", f"{name}b", "--no-iam", "--no-alarms", "--aggregator-role-arn", role)

        assert (0, 0) == (without.exit_code, within.exit_code), within.stderr
        assert "The aggregator is off, because --no-iam leaves it without a role" in without.stderr
        assert "AggregatorFunctionName" not in roleless
        assert "AggregatorFunctionName" in within.stdout
        assert "The aggregator is off" not in within.stderr

    def test_deploy_without_waiting_prints_how_to_finish(self, aws, name):
        """The stack is begun. ``upgrade`` adds the rest once it is complete."""
        begun = invoke("deploy", "--name", name, *BARE, "--no-wait")
        Stack(name, Clients()).wait()
        before = invoke("check", "--name", name)
        finished, after = invoke("upgrade", "--name", name), invoke("check", "--name", name)

        assert (0, 1, 0, 0) == (begun.exit_code, before.exit_code, finished.exit_code, after.exit_code)
        assert f"zae-limiter upgrade --name {name} --region us-east-1\n" in begun.stderr
        assert "Deploying" not in begun.stderr

    def test_deploy_without_waiting_completes_a_stack_that_needs_no_change(self, aws, name):
        """There is nothing to wait for."""
        invoke("deploy", "--name", name, *BARE)
        done = printed_json(invoke("deploy", "--name", name, "--no-wait", "--json"))
        changed = printed_json(invoke("deploy", "--name", name, "--no-wait", "--pitr-recovery-days", "9", "--json"))

        assert (True, []) == (done["is_complete"], done["changes"])
        assert (False, [{"option": "pitr_recovery_days", "old": 35, "new": 9}]) == (
            changed["is_complete"],
            changed["changes"],
        )

    def test_deploy_without_waiting_refuses_a_table_that_requires_a_newer_client(self, aws, name):
        """Nothing is changed, and the client is to be updated."""
        made = printed_json(invoke("deploy", "--name", name, *BARE, "--json"))
        with SyncRepository.open(made["url"], deadline_s=30) as repo:
            repo.scope.table.write(Put(version_item.to_item(VersionRecord("3.0.0"))))
        before = Stack(name, Clients()).require()
        done = [invoke("deploy", "--name", name, "--pitr-recovery-days", "9", *flags) for flags in ((), ("--no-wait",))]

        assert [1, 1] == [one.exit_code for one in done]
        assert all("Install a newer version of this client: update " in one.stderr for one in done)
        assert before == Stack(name, Clients()).require()

    def test_deploy_keeps_a_newer_aggregator(self, aws, name):
        """An older installation does not downgrade the code."""
        made = printed_json(invoke("deploy", "--name", name, *LEAN, "--json"))
        function = AggregatorFunction(name, Clients())
        record_deployed(made["url"], "999.0.0")
        function.upload(NEWER_CODE)
        invoke("deploy", "--name", name, *LEAN, "--usage-retention-days", "7")

        assert "999.0.0" == inspect(made["url"]).record.lambda_version
        assert package_sha256(NEWER_CODE) == function.code_sha256()

    def test_a_failed_deploy_prints_the_first_failed_resource_and_the_reason(self, aws, name, monkeypatch):
        """Other messages of AWS follow the error. Afterwards `status` shows the state of the stack."""
        broken = limiter_template().replace("Outputs:\n", BROKEN_PART)
        monkeypatch.setattr("zae_limiter.infra.stack.limiter_template", lambda: broken)
        done, status = invoke("deploy", "--name", name, *BARE), invoke("status", "--name", name, "--json")
        error, *below = done.stderr.partition("Error: ")[2].splitlines()

        assert (69, "") == (done.exit_code, done.stdout)
        assert error.startswith(f"Could not create stack '{name}': Broken (AWS::Logs::LogStream): ")
        assert ["  CREATE_FAILED Broken"] == [line[:22] for line in below]
        assert (69, "ROLLBACK_COMPLETE", "not answering") == (
            status.exit_code,
            json.loads(status.stdout)["stack_status"],
            json.loads(status.stdout)["health"],
        )

    def test_deploy_refuses_a_stack_of_another_application(self, aws, name):
        client = Clients().of("cloudformation")
        template = json.dumps({"Resources": {"Queue": {"Type": "AWS::SQS::Queue"}}})
        client.create_stack(StackName=name, TemplateBody=template)
        done = invoke("deploy", "--name", name, *BARE)

        assert (69, "") == (done.exit_code, done.stdout)
        assert f"Error: Could not change stack '{name}': it exists, but it is not a limiter" in done.stderr

    def test_deploy_refuses_an_invalid_name_before_calling_aws(self, aws):
        done = invoke("deploy", "--name", "my_app", *BARE)

        assert (2, 1) == (done.exit_code, done.stderr.count("\n"))
        assert "a stack name starts with a letter" in done.stderr

    def test_deploy_without_a_region_says_how_to_set_one(self, aws, name, monkeypatch):
        monkeypatch.delenv("AWS_DEFAULT_REGION")
        monkeypatch.delenv("AWS_REGION", raising=False)
        done = invoke("deploy", "--name", name, *BARE)

        assert (2, 1) == (done.exit_code, done.stderr.count("\n"))
        assert done.stderr.startswith("Error: no region is configured: pass one")


class TestDelete:
    def test_delete_with_yes_removes_the_stack(self, aws, name):
        invoke("deploy", "--name", name, *BARE)
        done = invoke("delete", "--name", name, "--yes")

        assert (0, f"Deleted {name}.\n") == (done.exit_code, done.stdout)
        assert Stack(name, Clients()).describe() is None

    def test_delete_without_a_terminal_requires_yes(self, aws, name):
        """A script that does not confirm deletes nothing."""
        invoke("deploy", "--name", name, *BARE)
        done = invoke("delete", "--name", name)

        assert (2, 1) == (done.exit_code, done.stderr.count("\n"))
        assert "pass --yes" in done.stderr
        assert "CREATE_COMPLETE" == Stack(name, Clients()).require().status

    @pytest.mark.parametrize("answer", ["n", "", "y"])
    def test_delete_in_a_terminal_asks_for_confirmation(self, aws, name, monkeypatch, answer):
        """An empty answer means no. The question names what would be lost."""
        invoke("deploy", "--name", name, *BARE)
        monkeypatch.setattr("zae_limiter.cli._confirm.somebody_is_there", lambda: True)
        done = invoke("delete", "--name", name, answers=f"{answer}\n")
        exists = Stack(name, Clients()).describe() is not None

        assert f"Delete {name} in us-east-1 and the " in done.stderr
        assert ((0, False) if answer == "y" else (1, True)) == (done.exit_code, exists)

    def test_delete_of_a_missing_stack_asks_nothing_and_succeeds(self, aws, name):
        """Deleting twice is not an error."""
        done = invoke("delete", "--name", name)

        assert (0, f"There is no limiter {name!r}; nothing was deleted.\n") == (done.exit_code, done.stdout)
        assert {"deleted": False, "archive_kept": None, "is_complete": True} == printed_json(
            invoke("delete", "--name", name, "--json")
        )

    def test_delete_keeps_the_archive_unless_told_otherwise(self, aws, name):
        """The output names the bucket of the archive."""
        kept = []
        for flags in ((), ("--delete-archive",)):
            bucket = printed_json(invoke("deploy", "-n", name, "--no-alarms", "--json"))["outputs"]["ArchiveBucketName"]
            deleted = printed_json(invoke("delete", "-n", name, "--yes", "--json", *flags))
            kept.append(bucket == deleted["archive_kept"])

        assert [True, False] == kept

    def test_delete_without_waiting_begins_the_deletion(self, aws, name):
        invoke("deploy", "--name", name, *BARE)
        done = invoke("delete", "--name", name, "--yes", "--no-wait")

        assert (0, f"{name} is being deleted.\n") == (done.exit_code, done.stdout)
        assert Stack(name, Clients()).wait() is None

    def test_delete_of_the_archive_without_waiting_is_refused(self, aws, name):
        """The archive is deleted after the stack, so the option would have no effect."""
        done = invoke("delete", "--name", name, "--yes", "--no-wait", "--delete-archive")

        assert (2, 1) == (done.exit_code, done.stderr.count("\n"))
        assert "--delete-archive needs --wait" in done.stderr

    def test_delete_of_a_protected_stack_prints_the_reason(self, aws, name):
        invoke("deploy", "-n", name, *BARE, "--enable-deletion-protection")
        done = invoke("delete", "-n", name, "--yes")

        assert 69 == done.exit_code
        assert "it is protected from deletion; deploy it with --no-deletion-protection first" in done.stderr


class TestStatus:
    def test_status_prints_health_versions_items_latency_and_resources(self, aws, name):
        invoke("deploy", "-n", name, *LEAN)
        plain, facts = invoke("status", "-n", name), printed_json(invoke("status", "-n", name, "--json"))

        assert 0 == plain.exit_code
        assert f"name        {name}\nhealth      healthy\nregion      us-east-1\nlatency     " in plain.stdout
        assert f"aggregator  {OWN}\nschema      2.0.0\n" in plain.stdout
        assert ("healthy", True, "CREATE_COMPLETE", "ACTIVE", True) == (
            facts["health"],
            facts["available"],
            facts["stack_status"],
            facts["table_status"],
            facts["aggregator_enabled"],
        )
        assert facts["latency_ms"] > 0
        assert facts["table_item_count"] > 0
        assert name == facts["outputs"]["TableName"]

    def test_status_of_a_missing_limiter_exits_with_69(self, aws, name):
        done = invoke("status", "-n", name)

        assert (69, "") == (done.exit_code, done.stdout)
        assert f"Error: There is no limiter {name!r}. Deploy it with: zae-limiter deploy --name {name}\n" == done.stderr

    def test_status_of_an_unavailable_aws_exits_with_69(self, aws, name):
        done = invoke("status", "-n", name, "--endpoint-url", f"http://127.0.0.1:{free_port()}")

        assert (69, 1) == (done.exit_code, done.stderr.count("\n"))
        assert "the store is unavailable" in done.stderr

    def test_status_of_a_stack_without_its_table_exits_with_69(self, aws, name):
        """The stack is shown nevertheless."""
        invoke("deploy", "-n", name, *BARE)
        Clients().of("dynamodb").delete_table(TableName=name)
        done = invoke("status", "-n", name, "--json")

        assert 69 == done.exit_code
        assert ("not answering", None) == (json.loads(done.stdout)["health"], json.loads(done.stdout)["table_status"])

    def test_status_works_for_a_table_without_a_stack(self, aws, name, monkeypatch):
        """`create=true` makes such a table when a command writes; reading it finds none before."""
        monkeypatch.setattr("zae_limiter.cli.acquire.QUICK_S", 60.0)
        url = ("--url", f"dynamodb://{name}?create=true")
        before = invoke("available", "user-1", "api", "-l", "rpm:1", *url)
        invoke("acquire", "user-1", "api", "-c", "rpm:1", "-l", "rpm:1", *url)
        facts = printed_json(invoke("status", "-n", name, "--json"))

        assert (69, True) == (before.exit_code, f"no limiter '{name}'" in before.stderr)
        assert ("healthy", None, {}) == (facts["health"], facts["stack_status"], facts["outputs"])

    def test_status_works_for_a_sqlite_file(self, aws, tmp_path):
        """It shows the path, health, latency, items and their bytes, and versions."""
        url = f"sqlite:///{tmp_path}/limiter.db"
        invoke("acquire", "user-1", "gpt-4", "-c", "rpm:1", "-l", "rpm:100", "--url", url)
        facts, plain = printed_json(invoke("status", "--url", url, "--json")), invoke("status", "--url", url).stdout

        assert ("healthy", None, None) == (facts["health"], facts["name"], facts["table_status"])
        assert f"{tmp_path}/limiter.db" == facts["store"]
        assert facts["table_item_count"] >= 1
        assert facts["table_size_bytes"] >= 4096
        assert f"items    {facts['table_item_count']}, " in plain
        assert ["LIMITER", "store", "health", "latency", "items", "log", "client", "schema"] == [
            line.split()[0] for line in plain.splitlines()
        ]

    @pytest.mark.parametrize(
        ("available", "stack_status", "expected"),
        [
            (True, None, "healthy"),
            (True, "UPDATE_COMPLETE", "healthy"),
            (True, "UPDATE_IN_PROGRESS", "being changed"),
            (False, "CREATE_IN_PROGRESS", "being changed"),
            (True, "UPDATE_ROLLBACK_COMPLETE", "answering, but its last change failed"),
            (False, "ROLLBACK_COMPLETE", "not answering"),
        ],
    )
    def test_health_is_derived_from_the_table_and_the_stack(self, available, stack_status, expected):
        """A table that answers can be used, whatever the state of its stack."""
        inspected = Inspected(None, 1.0) if available else None

        assert expected == health_of(status_of(inspected, stack_status=stack_status))


class TestList:
    def test_list_prints_one_line_per_limiter(self, aws, name):
        invoke("deploy", "-n", name, *BARE)
        plain, (facts,) = (
            invoke("list", "--region", "us-east-1"),
            [one for one in printed_json(invoke("list", "--json")) if one["stack_name"] == name],
        )

        assert plain.stdout.startswith("NAME ")
        assert [name, "CREATE_COMPLETE", OWN, "2.0.0"] == next(
            line.split()[:4] for line in plain.stdout.splitlines() if line.startswith(name)
        )
        assert (True, "limiter", "us-east-1") == (facts["is_healthy"], facts["stack_type"], facts["region"])

    def test_list_of_a_region_without_limiters_says_how_to_deploy_one(self, aws):
        done = invoke("list", "--region", "eu-north-1")

        assert (0, "") == (done.exit_code, done.stdout)
        assert "There is no limiter in eu-north-1. Deploy one: zae-limiter deploy" in done.stderr
        assert [] == printed_json(invoke("list", "--region", "eu-north-1", "--json"))

    def test_list_on_an_unavailable_aws_exits_with_69(self, aws):
        done = invoke("list", "--endpoint-url", f"http://127.0.0.1:{free_port()}")

        assert (69, 1) == (done.exit_code, done.stderr.count("\n"))


class TestUsage:
    def test_usage_without_the_aggregator_says_how_to_add_it(self, aws, name):
        """On DynamoDB, usage is counted by the Lambda function of the stack only."""
        invoke("deploy", "-n", name, *BARE)
        done = invoke("usage", "summary", "-n", name, "--entity", "user-1")

        assert (0, "") == (done.exit_code, done.stdout)
        assert (
            f"{name} was deployed without it; add it: zae-limiter deploy --enable-aggregator --name {name}\n"
            in done.stderr
        )

    def test_usage_of_a_url_without_the_aggregator_names_the_stack_to_deploy(self, aws, name):
        """The suggested command runs: `deploy` takes a name and no URL."""
        invoke("deploy", "-n", name, *BARE)
        done = invoke("usage", "list", "--url", f"dynamodb://{name}?region=us-east-1")

        assert f"add it: zae-limiter deploy --enable-aggregator --name {name} --region us-east-1\n" in done.stderr

    def test_usage_in_windows_that_are_not_counted_says_how_to_count_them(self, aws, name):
        """A stack counts hours and days unless it is deployed with months."""
        invoke("deploy", "-n", name, *LEAN)
        monthly = invoke("usage", "list", "-n", name, "-w", "monthly")
        by_url = invoke("usage", "list", "--url", f"dynamodb://{name}?region=us-east-1", "-w", "monthly")
        daily = invoke("usage", "list", "-n", name, "-w", "daily")
        invoke("deploy", "-n", name, *LEAN, "--snapshot-windows", "hourly,daily,monthly")
        counted = invoke("usage", "top", "-n", name, "-w", "monthly")

        expected = (
            "There is no usage in monthly windows. The aggregator does not count monthly windows, only hourly and "
            "daily ones. Count them from now on: "
            f"zae-limiter deploy --snapshot-windows hourly,daily,monthly --name {name}\n"
        )
        assert (0, "", expected) == (monthly.exit_code, monthly.stdout, monthly.stderr)
        assert by_url.stderr.endswith(f"monthly --name {name} --region us-east-1\n")
        for done in (daily, counted):
            assert "The aggregator counts within a minute or two" in done.stderr
