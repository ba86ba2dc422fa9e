"""``version, check, upgrade``: compatible versions, and the upgrade to them."""

import json
from importlib import metadata

import pytest

from tests.cli.aws import invoke, printed_json
from tests.dynamodb.engines import EngineAbsentError, free_port, fresh_table_name, running
from tests.old_buckets import OldLimit, old_bucket
from zae_limiter import SyncRepository
from zae_limiter._sync.upgrade import inspect
from zae_limiter.core.version import SCHEMA_VERSION, VersionRecord
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.function import AggregatorFunction, package_sha256
from zae_limiter.infra.lambda_package import build_package
from zae_limiter.infra.options import StackOptions
from zae_limiter.infra.stack import Stack
from zae_limiter.infra.template import limiter_template
from zae_limiter.installation import this_installation
from zae_limiter.schema import version_item
from zae_limiter.schema.operations import Put

OWN = metadata.version("zae-limiter")
OLD, NEWER = "0.0.0", "999.0.0"
UPGRADE_IT = "upgrade it: zae-limiter upgrade"
INSTALL = this_installation().upgrade_advice()
LEAN = StackOptions(enable_alarms=False, enable_audit_archival=False)
BARE = StackOptions(enable_alarms=False, enable_aggregator=False)


@pytest.fixture
def file_url(tmp_path, monkeypatch):
    """A file of this version, named by the environment."""
    url = f"sqlite:///{tmp_path}/limiter.db"
    monkeypatch.setenv("ZAE_LIMITER_URL", url)
    with SyncRepository.open(url):
        pass
    return url


@pytest.fixture
def limiter(monkeypatch):
    """The name of a limiter that was deployed without code, as by the template alone."""
    try:
        engine = running("aws")
    except EngineAbsentError as absent:
        pytest.skip(str(absent))
    known = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_DEFAULT_REGION": "us-east-1"}
    for variable, value in {**known, "AWS_ENDPOINT_URL": engine.url}.items():
        monkeypatch.setenv(variable, value)
    name = fresh_table_name()
    Stack(name, Clients()).deploy(LEAN)
    with SyncRepository.open(f"dynamodb://{name}?create=true", deadline_s=30):
        pass
    return name


def put(url, *items):
    """Put items as another version would have written them."""
    with SyncRepository.open(url, deadline_s=30) as repo:
        for item in items:
            repo.scope.table.write(Put(item))


def set_record(url, record):
    put(url, version_item.to_item(record))


class TestVersion:
    def test_version_without_a_name_prints_this_installation_only(self, monkeypatch):
        """No store is opened."""
        monkeypatch.delenv("ZAE_LIMITER_URL", raising=False)
        facts = printed_json(invoke("version", "--json"))

        assert (OWN, SCHEMA_VERSION, False) == (
            facts["client_version"],
            facts["client_schema_version"],
            "limiter" in facts,
        )
        assert f"PART        INSTALLED\nclient      {OWN}\n" in invoke("version").stdout

    def test_version_of_a_limiter_prints_its_versions_too(self, file_url):
        set_record(file_url, VersionRecord(SCHEMA_VERSION, lambda_version=OLD))
        plain, facts = invoke("version"), printed_json(invoke("version", "--json"))

        assert ["aggregator", OWN, OLD] == plain.stdout.splitlines()[2].split()
        assert ["schema", SCHEMA_VERSION, SCHEMA_VERSION] == plain.stdout.splitlines()[3].split()
        assert (SCHEMA_VERSION, OLD) == (facts["limiter"]["schema_version"], facts["limiter"]["lambda_version"])


class TestCheck:
    @pytest.mark.parametrize(
        ("record", "advice"),
        [
            (VersionRecord("0.9.0"), f"the table has an older schema; {UPGRADE_IT}"),
            (VersionRecord("3.0.0"), f"the limiter requires a newer client; {INSTALL}"),
            (VersionRecord("2.0.0", client_min_version=NEWER), f"the limiter requires a newer client; {INSTALL}"),
            (VersionRecord("2.0.0", lambda_version=OLD), f"the aggregator is older than this client; {UPGRADE_IT}"),
        ],
    )
    def test_check_of_incompatible_versions_exits_with_1_and_says_what_to_do(self, file_url, record, advice):
        set_record(file_url, record)
        plain, as_json = invoke("check", "--url", file_url), invoke("check", "--json")

        assert (1, "", 1) == (plain.exit_code, plain.stdout, plain.stderr.count("\n"))
        assert plain.stderr.startswith(f"Error: {advice}")
        assert (1, False) == (as_json.exit_code, json.loads(as_json.stdout)["compatible"])

    @pytest.mark.parametrize("lambda_version", [None, OWN, NEWER])
    def test_check_of_compatible_versions_exits_with_0(self, file_url, lambda_version):
        """A newer aggregator works with older clients."""
        set_record(file_url, VersionRecord("2.0.0", lambda_version=lambda_version))

        assert (0, "Compatible.\n") == (invoke("check").exit_code, invoke("check").stdout)

    def test_check_advice_names_the_limiter(self, limiter):
        """The advice is a command that can be copied."""
        set_record(f"dynamodb://{limiter}", VersionRecord("2.0.0", lambda_version=OLD))
        done = invoke("check", "-n", limiter, "--region", "us-east-1")

        assert done.stderr.endswith(f"zae-limiter upgrade --name {limiter} --region us-east-1\n")

    def test_check_of_an_unreachable_limiter_exits_with_69(self, limiter):
        done = invoke("check", "-n", limiter, "--endpoint-url", f"http://127.0.0.1:{free_port()}")

        assert (69, 1) == (done.exit_code, done.stderr.count("\n"))

    def test_check_without_a_name_uses_the_default_file_and_says_so(self, tmp_path, monkeypatch):
        monkeypatch.delenv("ZAE_LIMITER_URL", raising=False)
        monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
        monkeypatch.setenv("HOME", str(tmp_path))
        invoke("system", "set-defaults", "-l", "rpm:1")
        done = invoke("check")

        assert 0 == done.exit_code
        assert done.stderr.startswith(f"Using {tmp_path}")

    def test_check_of_a_limiter_without_the_default_namespace_names_upgrade_which_creates_it(self, limiter):
        """Without it, clients cannot connect. Other tools deploy such limiters."""
        limiter = fresh_table_name()
        Stack(limiter, Clients()).deploy(BARE)
        before, facts = invoke("check", "-n", limiter), invoke("check", "-n", limiter, "--json")
        dry = invoke("upgrade", "-n", limiter, "--dry-run")
        refused = invoke("system", "get-defaults", "-n", limiter)
        done, after = invoke("upgrade", "-n", limiter), invoke("check", "-n", limiter)

        command = f"create it: zae-limiter upgrade --name {limiter}\n"
        assert (1, f"Error: the limiter has no namespace 'default'; {command}") == (before.exit_code, before.stderr)
        assert (1, True) == (facts.exit_code, json.loads(facts.stdout)["lacks_namespace"])
        assert refused.stderr.endswith(command)
        assert "The namespace 'default' would be created.\n" in dry.stdout
        assert "The namespace 'default' was created.\n" in done.stdout
        assert (0, 0) == (done.exit_code, after.exit_code), after.stderr
        with SyncRepository.connect(limiter, deadline_s=30) as repo:
            assert ([], None) == repo.get_system_defaults()


class TestUpgrade:
    def test_upgrade_migrates_an_old_table(self, file_url):
        """A dry run reports the migration without applying it. A second upgrade has nothing to do."""
        limits = {"rpm": OldLimit(40_000, 60, 90, 1)}
        with SyncRepository.open(file_url) as repo:
            items = [old_bucket(repo.scope.namespace_id, f"user-{number}", "gpt-4", limits) for number in range(3)]
        put(file_url, *items)
        set_record(file_url, VersionRecord("0.9.0"))
        dry, done, again = [
            invoke("upgrade", *flags) for flags in (("--dry-run",), ("--principal", "ops"), ("--json",))
        ]

        assert (0, 0, 0) == (dry.exit_code, done.exit_code, again.exit_code)
        assert "3 would be moved.\n" in dry.stdout
        assert "3 were moved.\n" in done.stdout
        assert [] == printed_json(again)["migrations"]
        record = inspect(file_url).record
        assert ("2.0.0", "ops") == (record.schema_version, record.updated_by)

    def test_upgrade_refuses_a_newer_table(self, file_url):
        set_record(file_url, VersionRecord("3.0.0"))
        done = invoke("upgrade")

        assert (1, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "The table has schema 3.0.0" in done.stderr
        assert VersionRecord("3.0.0") == inspect(file_url).record

    def test_upgrade_replaces_an_old_aggregator_and_records_its_version(self, limiter):
        """The options of the stack stay the same."""
        set_record(f"dynamodb://{limiter}", VersionRecord("2.0.0", lambda_version=OLD))
        function = AggregatorFunction(limiter, Clients())
        before = function.code_sha256()
        dry, unchanged = printed_json(invoke("upgrade", "-n", limiter, "--dry-run", "--json")), function.code_sha256()
        done, again = invoke("upgrade", "-n", limiter), invoke("upgrade", "-n", limiter)

        assert (True, before) == (dry["code_changed"], unchanged)
        assert "The aggregator's code was replaced.\n" in done.stdout
        assert "Everything is up to date.\n" == again.stdout
        assert package_sha256(build_package()) == function.code_sha256()
        assert OWN == inspect(f"dynamodb://{limiter}").record.lambda_version
        assert "false" == Stack(limiter, Clients()).require().parameters["EnableAlarms"]

    def test_upgrade_completes_a_stack_that_was_deployed_by_the_template(self, limiter):
        """Such a stack lacks the code, the version record and the namespace; its options stay."""
        name = fresh_table_name()
        client = Clients().of("cloudformation")
        bare = {"EnableAlarms": "false", "LambdaMemory": "512", "AuditRetentionDays": "30"}
        client.create_stack(
            StackName=name,
            TemplateBody=limiter_template(),
            Parameters=[{"ParameterKey": key, "ParameterValue": value} for key, value in bare.items()],
            Capabilities=["CAPABILITY_NAMED_IAM"],
        )
        client.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
        done = printed_json(invoke("upgrade", "-n", name, "--json"))
        with SyncRepository.connect(name, deadline_s=30) as repo:
            record = repo.get_version_record()

        assert (True, OWN, 30) == (done["code_changed"], record.lambda_version, record.audit_retention_days)
        assert bare.items() <= Stack(name, Clients()).require().parameters.items()

    def test_upgrade_leaves_a_stack_without_our_parameters_unchanged(self, limiter):
        """The CDK makes such stacks, with fixed values in place of parameters."""
        name = fresh_table_name()
        client = Clients().of("cloudformation")
        template = json.dumps({"Description": "zae-limiter: mine", "Resources": {"Q": {"Type": "AWS::SQS::Queue"}}})
        client.create_stack(StackName=name, TemplateBody=template)
        client.get_waiter("stack_create_complete").wait(StackName=name, WaiterConfig={"Delay": 1, "MaxAttempts": 120})
        with SyncRepository.open(f"dynamodb://{name}?create=true", deadline_s=30):
            pass
        done = printed_json(invoke("upgrade", "-n", name, "--json"))

        assert done["stack_changed"] is None
        assert "CREATE_COMPLETE" == Stack(name, Clients()).require().status

    def test_upgrade_clears_the_recorded_version_of_a_removed_aggregator(self, limiter):
        """Otherwise `check` would report an old aggregator that no upgrade can replace."""
        Stack(limiter, Clients()).deploy(BARE)
        set_record(f"dynamodb://{limiter}", VersionRecord("2.0.0", lambda_version=OLD))
        before, done, after = [invoke(*words, "-n", limiter) for words in (("check",), ("upgrade",), ("check",))]

        assert UPGRADE_IT in before.stderr
        assert (1, 0, 0) == (before.exit_code, done.exit_code, after.exit_code)
        assert inspect(f"dynamodb://{limiter}").record.lambda_version is None

    def test_upgrade_of_a_client_that_is_too_old_changes_nothing(self, limiter):
        """The error says to update it. Its older template would replace that of the stack."""
        set_record(f"dynamodb://{limiter}", VersionRecord("2.0.0", client_min_version=NEWER))
        before = Stack(limiter, Clients()).require()
        for flags in ((), ("--dry-run",), ("--force",)):
            done = invoke("upgrade", "-n", limiter, *flags)

            assert (1, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
            assert "Install a newer version of this client: update " in done.stderr
        assert before == Stack(limiter, Clients()).require()

    def test_upgrade_of_the_code_only_leaves_the_rest(self, limiter):
        """Neither the template of the stack nor the table's layout changes."""
        url = f"dynamodb://{limiter}"
        set_record(url, VersionRecord("2.0.0", lambda_version=OLD))
        before = Stack(limiter, Clients()).require()
        dry = printed_json(invoke("upgrade", "-n", limiter, "--lambda-only", "--dry-run", "--json"))
        done = printed_json(invoke("upgrade", "-n", limiter, "--lambda-only", "--json"))
        again = printed_json(invoke("upgrade", "-n", limiter, "--lambda-only", "--json"))
        function = AggregatorFunction(limiter, Clients())

        assert [True, True, False] == [one["code_changed"] for one in (dry, done, again)]
        assert (None, None, []) == (done["stack_changed"], done["namespace_created"], done["migrations"])
        assert package_sha256(build_package()) == function.code_sha256()
        assert OWN == inspect(url).record.lambda_version
        assert before == Stack(limiter, Clients()).require()

    def test_upgrade_with_force_uploads_code_that_is_the_same_or_newer(self, limiter):
        """A plain upgrade keeps both."""
        url = f"dynamodb://{limiter}"
        invoke("upgrade", "-n", limiter)
        same = printed_json(invoke("upgrade", "-n", limiter, "--lambda-only", "--force", "--json"))
        set_record(url, VersionRecord("2.0.0", lambda_version=NEWER))
        dry = printed_json(invoke("upgrade", "-n", limiter, "--force", "--dry-run", "--json"))
        newer = printed_json(invoke("upgrade", "-n", limiter, "--force", "--json"))

        assert (True, True, True) == (same["code_changed"], dry["code_changed"], newer["code_changed"])
        assert newer["newer_function"] is None
        assert OWN == inspect(url).record.lambda_version

    def test_upgrade_of_the_code_without_an_aggregator_names_the_command_that_adds_it(self, limiter):
        """With ``--force`` alone, the rest is upgraded."""
        Stack(limiter, Clients()).deploy(BARE)
        only, forced = invoke("upgrade", "-n", limiter, "--lambda-only"), invoke("upgrade", "-n", limiter, "--force")

        assert (2, 0) == (only.exit_code, forced.exit_code)
        assert f"add it: zae-limiter deploy --enable-aggregator --name {limiter}" in only.stderr
        assert "--force had no effect: the limiter has no aggregator" in forced.stderr

    def test_upgrade_of_the_code_requires_a_table_of_this_schema(self, limiter):
        set_record(f"dynamodb://{limiter}", VersionRecord("0.9.0"))
        done = invoke("upgrade", "-n", limiter, "--lambda-only")

        assert (1, 1) == (done.exit_code, done.stderr.count("\n"))
        assert done.stderr.endswith(f"Upgrade the limiter: zae-limiter upgrade --name {limiter}\n")

    @pytest.mark.parametrize(
        ("flags", "words"),
        [
            (("--lambda-only",), "need a limiter on AWS; pass --name"),
            (("--force",), "need a limiter on AWS; pass --name"),
            (("-n", "my-app", "--lambda-only", "--principal", "ops"), "--principal has no effect with --lambda-only"),
        ],
    )
    def test_upgrade_refuses_options_without_an_effect(self, file_url, flags, words):
        done = invoke("upgrade", *flags)

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert words in done.stderr

    def test_commands_on_an_older_table_print_the_command_that_upgrades_it(self, limiter, file_url):
        """With the options that select the limiter."""
        set_record(f"dynamodb://{limiter}", VersionRecord("0.9.0"))
        set_record(file_url, VersionRecord("0.9.0"))
        named = invoke("system", "get-defaults", "-n", limiter, "--region", "us-east-1")
        by_url = invoke("system", "get-defaults", "--url", file_url)

        assert named.stderr.endswith(f"Upgrade the limiter: zae-limiter upgrade --name {limiter} --region us-east-1\n")
        assert by_url.stderr.endswith(f"Upgrade the limiter: zae-limiter upgrade --url {file_url}\n")

    def test_upgrade_keeps_a_newer_aggregator(self, limiter):
        """An older installation does not downgrade the code."""
        set_record(f"dynamodb://{limiter}", VersionRecord("2.0.0", lambda_version=NEWER))
        before = AggregatorFunction(limiter, Clients()).code_sha256()
        done = invoke("upgrade", "-n", limiter)

        assert (0, before) == (done.exit_code, AggregatorFunction(limiter, Clients()).code_sha256())
        assert f"The aggregator ({NEWER}) is newer than this installation and was not changed." in done.stderr


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--name", "my-app", "--url", "memory://"), "pass --name or --url, not both"),
        (("--region", "us-east-1"), "--region and --endpoint-url require --name"),
        (("--name", "my_app"), "a stack name starts with a letter"),
        (("--url", "file.db"), "must be one of memory://"),
    ],
)
@pytest.mark.parametrize("command", ["version", "check", "upgrade", "status"])
def test_version_commands_with_conflicting_arguments_print_one_line(command, arguments, words):
    done = invoke(command, *arguments)

    assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
    assert words in done.stderr
