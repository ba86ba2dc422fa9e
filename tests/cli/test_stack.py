"""``deploy, delete, status, list, cfn-template, lambda-export``: their output and their exit codes."""

import io
import json
import resource
import subprocess
import sys
import zipfile
from importlib import metadata

import pytest

from tests.cli.aws import invoke, printed_json
from tests.dynamodb.engines import EngineAbsentError, free_port, fresh_table_name, running
from zae_limiter import SyncRateLimiter, SyncRepository
from zae_limiter._sync.store.versions import Inspected
from zae_limiter._sync.upgrade import inspect, record_deployed
from zae_limiter.cli._status import health_of, status_of
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.function import AggregatorFunction, package_sha256
from zae_limiter.infra.stack import Stack
from zae_limiter.infra.template import limiter_template

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
            assert ("1.0.0", OWN) == (record.schema_version, record.lambda_version)
        assert (name, "CREATE_COMPLETE") == (made["name"], made["stack_status"])
        assert f"{name}-aggregator" == made["outputs"]["AggregatorFunctionName"]

    def test_deploying_again_applies_and_prints_the_new_options(self, aws, name):
        """The second deployment replaces the options of the first."""
        invoke("deploy", "--name", name, *BARE)
        again = printed_json(invoke("deploy", "--name", name, *BARE, "--usage-retention-days", "7", "--json"))

        assert ("UPDATE_COMPLETE", "7") == (again["stack_status"], again["outputs"]["UsageRetentionDays"])

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
        assert "no region is configured: pass one" in done.stderr


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
        assert {"deleted": False, "archive_kept": None} == printed_json(invoke("delete", "--name", name, "--json"))

    def test_delete_keeps_the_archive_unless_told_otherwise(self, aws, name):
        """The output names the bucket of the archive."""
        kept = []
        for flags in ((), ("--delete-archive",)):
            bucket = printed_json(invoke("deploy", "-n", name, "--no-alarms", "--json"))["outputs"]["ArchiveBucketName"]
            deleted = printed_json(invoke("delete", "-n", name, "--yes", "--json", *flags))
            kept.append(bucket == deleted["archive_kept"])

        assert [True, False] == kept

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
        assert f"aggregator  {OWN}\nschema      1.0.0\n" in plain.stdout
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
        """`create=true` makes such a table."""
        monkeypatch.setattr("zae_limiter.cli.available.QUICK_S", 60.0)
        invoke("available", "user-1", "api", "-l", "rpm:1", "--url", f"dynamodb://{name}?create=true")
        facts = printed_json(invoke("status", "-n", name, "--json"))

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
        assert [name, "CREATE_COMPLETE", OWN, "1.0.0"] == next(
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
        assert f"{name} was deployed without it; add it: zae-limiter deploy --aggregator --name {name}\n" in done.stderr


class TestExport:
    def test_cfn_template_prints_the_template(self, run):
        """It can be deployed by other tools, and needs neither a region nor keys."""
        assert limiter_template() == run("cfn-template").stdout

    def test_lambda_export_writes_a_zip_with_the_handler(self, run, tmp_path):
        place = tmp_path / "lambda.zip"
        done, facts = (
            run("lambda-export", "-o", str(place)),
            printed_json(run("lambda-export", "-o", str(place), "--json")),
        )
        names = zipfile.ZipFile(io.BytesIO(place.read_bytes())).namelist()

        assert f"Wrote {place} (" in done.stdout
        assert (str(place), place.stat().st_size) == (facts["path"], facts["bytes"])
        assert f"{facts['handler'].rpartition('.')[0].replace('.', '/')}.py" in names

    def test_lambda_export_that_fails_midway_leaves_the_old_file(self, tmp_path):
        """A partial package is never left in place."""
        place = tmp_path / "lambda.zip"
        place.write_text("before")
        few = (100_000, 100_000)
        done = subprocess.run(
            [sys.executable, "-m", "zae_limiter", "lambda-export", "-o", str(place)],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, few),
            capture_output=True,
            text=True,
            check=False,
        )

        assert (2, True) == (done.returncode, "cannot write" in done.stderr)
        assert {place: "before"} == {path: path.read_text() for path in tmp_path.iterdir()}

    def test_lambda_export_to_an_unwritable_file_prints_one_line(self, run, tmp_path):
        done = run("lambda-export", "-o", str(tmp_path / "nowhere" / "lambda.zip"))

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "cannot write" in done.stderr
