"""The builder before its first request to AWS, and the warnings and errors of the deprecated constructors."""  # generated from _async by tools/mirror.py; do not edit

from dataclasses import fields

import pytest

from zae_limiter import (
    InvalidNameError,
    OnUnavailable,
    SyncRateLimiter,
    RateLimiterUnavailable,
    SyncRepository,
    RepositoryClosedError,
    StackOptions,
    StorageError,
    UnsupportedByBackendError,
    ValidationError,
)
from zae_limiter._sync.admin import ADMIN_VERBS
from zae_limiter._sync.deprecated import LateRepository
from zae_limiter.infra.given_options import GivenOptions

NOWHERE = "http://127.0.0.1:9"

CHOICES = {
    "snapshot_windows": "monthly",
    "usage_interval_seconds": 10,
    "usage_retention_days": 30,
    "audit_retention_days": 31,
    "enable_aggregator": False,
    "pitr_recovery_days": 0,
    "log_retention_days": 7,
    "lambda_timeout": 30,
    "lambda_memory": 512,
    "enable_alarms": False,
    "alarm_sns_topic": "arn:aws:sns:us-east-1:123456789012:alarms",
    "warning_sns_topic": "arn:aws:sns:us-east-1:123456789012:warnings",
    "lambda_duration_threshold_pct": 50,
    "permission_boundary": "Boundary",
    "role_name_format": "pb-{}",
    "policy_name_format": "pp-{}",
    "enable_audit_archival": False,
    "audit_archive_glacier_days": 10,
    "enable_tracing": True,
    "create_iam_roles": True,
    "create_iam": False,
    "aggregator_role_arn": "arn:aws:iam::123456789012:role/mine",
    "enable_deletion_protection": True,
    "tags": {"team": "limits"},
}


def builder(name="my-app"):
    return SyncRepository.builder(name, "us-east-1", endpoint_url=NOWHERE)


class TestOptions:
    def test_test_options_cover_every_stack_option(self):
        """A new stack option must be added to these tests."""
        assert {one.name for one in fields(StackOptions)} == CHOICES.keys()

    @pytest.mark.parametrize("name", sorted(CHOICES.keys() - {"create_iam"}))
    def test_each_stack_option_has_a_builder_method(self, name):
        """The method has the option's name and returns the builder."""
        begun = builder()
        chosen = getattr(begun, name)(CHOICES[name])

        assert begun is chosen
        assert GivenOptions({name: CHOICES[name]}) == chosen._given()

    def test_builder_without_stack_options_has_none(self):
        """None is not the same as all defaults: an existing stack is left unchanged."""
        assert builder().namespace("tenant").config_cache_ttl(5).auto_update(True)._given() is None

    def test_single_option_takes_precedence_over_stack_options(self):
        """The order of the calls makes no difference."""
        options = StackOptions(lambda_memory=128, lambda_timeout=30)
        chosen = builder().lambda_memory(512).stack_options(options)._given()

        assert StackOptions(lambda_memory=512, lambda_timeout=30) == chosen.over(None)

    def test_builder_sets_the_settings_of_the_client(self):
        """The builder also sets the options that concern only the client."""
        chosen = builder().config_cache_ttl(5).bucket_ttl_multiplier(0).on_unavailable("allow").deadline_s(3)
        settings = chosen.audit_retention_days(31)._deployment().opening.settings

        assert (5_000, 0, OnUnavailable.ALLOW, 3, 31) == (
            settings.config_cache_ttl_ms,
            settings.bucket_ttl_multiplier,
            settings.on_unavailable,
            settings.deadline_s,
            settings.audit_retention_days,
        )


class TestInvalidOptions:
    """Invalid options are refused before any request is sent; the endpoint refuses connections."""

    @pytest.mark.parametrize("name", ["", "my_app", "1app", "memory://", "a" * 56, None])
    def test_build_with_an_invalid_stack_name_raises(self, name):
        """The name must be valid for CloudFormation."""
        with pytest.raises(InvalidNameError):
            builder(name).build()

    @pytest.mark.parametrize(
        ("chosen", "field"),
        [
            (builder().lambda_memory(64), "lambda_memory"),
            (builder().create_iam(False).enable_aggregator().aggregator_role_arn(None), "create_iam"),
            (builder().stack_options(StackOptions()).create_iam(False), "create_iam"),
            (builder().create_iam(False).create_iam_roles(), "create_iam_roles"),
            (builder().stack_options({"lambda_memory": 512}), "stack_options"),
            (builder().namespace("no spaces"), "namespace"),
            (builder().auto_update("yes"), "auto_update"),
            (builder().auto_update(1), "auto_update"),
            (builder().on_unavailable("maybe"), "on_unavailable"),
            (builder().bucket_ttl_multiplier(1), "bucket_ttl_multiplier"),
            (builder().config_cache_ttl(-1), "config_cache_ttl"),
            (builder().deadline_s(0), "deadline_s"),
        ],
    )
    def test_build_with_an_invalid_option_raises_with_its_field(self, chosen, field):
        """The error names the option."""
        with pytest.raises(ValidationError) as refused:
            chosen.build()

        assert field == refused.value.field

    def test_connect_with_an_invalid_option_raises(self):
        """``connect`` checks its options like the builder."""
        with pytest.raises(ValidationError, match="auto_update"):
            SyncRepository.connect("my-app", "us-east-1", endpoint_url=NOWHERE, auto_update="yes")


class TestEmbeddedStores:
    """A memory or SQLite store has no stack, and raises an error that says so."""

    @pytest.mark.parametrize("name", ["stack_name", "table_name"])
    def test_embedded_store_has_no_stack_or_table_name(self, repo, limiter, name):
        """The error names the backend."""
        for one in (repo, limiter):
            with pytest.raises(
                UnsupportedByBackendError, match=rf"{name} is not supported by the (memory|sqlite) backe"
            ):
                getattr(one, name)

    def test_ensure_infrastructure_of_an_embedded_store_raises(self, repo, limiter):
        """Embedded stores have no infrastructure to deploy."""
        assert not repo.capabilities.supports_infrastructure_management
        for one in (repo, limiter):
            with pytest.raises(UnsupportedByBackendError, match="ensure_infrastructure"):
                one.ensure_infrastructure()

    @pytest.mark.parametrize("verb", ["create_stack", "delete_stack"])
    def test_stack_methods_of_an_embedded_store_raise_with_a_hint(self, repo, verb):
        """An embedded store has no stack; it stays open."""
        with pytest.raises(UnsupportedByBackendError, match=verb) as refused:
            getattr(repo, verb)()

        assert "opening it creates it" in str(refused.value) or "delete its file" in str(refused.value)
        assert repo.ping()

    @pytest.mark.parametrize("verb", ["create_stack", "delete_stack"])
    def test_stack_methods_of_a_closed_repository_raise(self, repo, verb):
        """As every method does after ``close()``."""
        repo.close()

        with pytest.raises(RepositoryClosedError):
            getattr(repo, verb)()


class TestDeprecatedConstructors:
    @pytest.mark.parametrize("kind", [SyncRepository, SyncRateLimiter])
    def test_deprecated_constructor_warns_once_with_the_replacement(self, kind):
        """The warning points to the line of the call."""
        with pytest.warns(DeprecationWarning, match="is deprecated") as warned:
            kind(name="my-app", region="us-east-1", endpoint_url=NOWHERE)

        (warning,) = warned
        instead = SyncRepository.__name__
        assert __file__ == warning.filename
        assert str(warning.message).startswith(f"{kind.__name__}(name=...) is deprecated")
        assert f"{instead}.connect(name, region)" in str(warning.message)
        assert f"{instead}.builder(name, region).build()" in str(warning.message)

    def test_deprecated_limiter_has_its_names_before_it_is_opened(self):
        """Names need no request to AWS."""
        with pytest.warns(DeprecationWarning, match="is deprecated"):
            limiter = SyncRateLimiter(name="my-app", region="us-east-1")

        assert ("my-app", "my-app") == (limiter.stack_name, limiter.table_name)
        assert "my-app" == limiter.name == limiter.repository.name

    def test_use_of_an_unopened_deprecated_repository_raises_with_the_fix(self):
        """The error says which call opens the repository."""
        with pytest.warns(DeprecationWarning, match="is deprecated"):
            repo = SyncRepository(name="my-app", region="us-east-1", endpoint_url=NOWHERE)

        for look in (lambda: repo.scope, lambda: repo.capabilities, repo.get_cache_stats):
            with pytest.raises(StorageError, match=r"my-app.*not open yet; call ensure_infrastructure"):
                look()
        repo.close()

    def test_unknown_attribute_of_an_unopened_repository_raises_attribute_error(self):
        """A misspelt name fails as on any object."""
        with pytest.warns(DeprecationWarning, match="is deprecated"):
            repo = SyncRepository(name="my-app", region="us-east-1")

        with pytest.raises(AttributeError, match="no_such_verb"):
            _ = repo.no_such_verb

    def test_constructor_without_repository_or_name_or_with_both_raises(self, repo):
        """Options belong to the call that opens the store."""
        with pytest.raises(ValidationError, match=r"Write .*Repository.open\(\.\.\.\)"):
            SyncRateLimiter()
        with pytest.raises(ValidationError, match=r"Write .*Repository.open\(\.\.\.\)"):
            SyncRepository()
        with pytest.raises(ValidationError, match="choose these where it is opened"):
            SyncRateLimiter(repo, auto_update=True)
        with pytest.raises(ValidationError, match="pass these where you open it"):
            SyncRepository(repo.scope, name="my-app")

    @pytest.mark.parametrize("kind", [SyncRepository, SyncRateLimiter])
    def test_deprecated_constructor_with_an_invalid_name_or_argument_raises(self, kind):
        """Arguments are checked before the store is opened."""
        with pytest.raises(InvalidNameError):
            kind(name="my_app")
        with pytest.raises(TypeError, match="regoin"):
            kind(name="my-app", regoin="us-east-1")

    def test_deprecated_constructor_sets_the_same_options_as_the_builder(self):
        """``bucket_ttl_refill_multiplier`` is the builder's ``bucket_ttl_multiplier``."""
        chosen = {"on_unavailable": "allow", "auto_update": False, "bucket_ttl_refill_multiplier": 14}
        late = LateRepository({"name": "my-app", "region": "us-east-1", "config_cache_ttl": 5, **chosen})
        built = builder().on_unavailable("allow").bucket_ttl_multiplier(14).config_cache_ttl(5).auto_update(False)
        deployment, expected = late._builder._deployment(), built._deployment()

        assert expected.opening.settings == deployment.opening.settings
        assert expected.update == deployment.update

    def test_every_async_method_opens_a_deprecated_limiter(self):
        """Each call tries to open the store and raises the error of the invalid session."""
        with pytest.warns(DeprecationWarning, match="is deprecated"):
            limiter = SyncRateLimiter(name="my-app", region="us-east-1", session=object())

        assert {"set_limits", "get_version_record", "register_namespace", "get_usage_summary"} < set(ADMIN_VERBS)
        for verb in (*ADMIN_VERBS, "available", "time_until_available"):
            with pytest.raises(ValidationError, match="session"):
                getattr(limiter, verb)()
        with pytest.raises(ValidationError, match="session"):
            with limiter.acquire("user-1", "gpt-4", {"rpm": 1}):
                pass
        with pytest.raises(ValidationError, match="session"):
            with limiter:
                pass

    def test_overridden_method_of_a_deprecated_subclass_opens_the_repository(self):
        """The object stays an instance of the subclass."""

        class Own(SyncRepository):
            def get_limits(self, *_):
                return "its own"

        with pytest.warns(DeprecationWarning, match=r"Own\(name=...\) is deprecated"):
            repo = Own(name="my-app", region="us-east-1", session=object())

        assert isinstance(repo, Own)
        with pytest.raises(ValidationError, match="session"):
            repo.get_limits("user-1")

    def test_subclass_constructor_may_take_a_name_argument(self, repo):
        """Its arguments are not those of the deprecated form."""

        class Own(SyncRateLimiter):
            def __init__(self, tenant, *, name):
                super().__init__(repo)
                self.own = tenant, name

        assert ("tenant", "gpt-4") == Own("tenant", name="gpt-4").own


class TestUnreachable:
    """A deprecated limiter whose store cannot be opened before the deadline."""

    @pytest.fixture(autouse=True)
    def _credentials(self, monkeypatch):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")

    def unreachable_limiter(self, **chosen):
        """Return a limiter whose endpoint refuses connections."""
        with pytest.warns(DeprecationWarning, match="is deprecated"):
            return SyncRateLimiter(name="my-app", region="us-east-1", endpoint_url=NOWHERE, **chosen)

    @pytest.mark.parametrize(("chosen", "asked"), [({}, "allow"), ({"on_unavailable": "allow"}, None)])
    def test_acquire_on_an_unopened_store_with_allow_yields_a_degraded_lease(self, chosen, asked):
        """The choice of the call or of the constructor applies, and the lease has all its methods."""
        limiter = self.unreachable_limiter(**chosen)

        with limiter.acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable=asked) as lease:
            lease.consume(rpm=2)
            lease.adjust(rpm=4)
            lease.release(rpm=1)
            assert lease.degraded
            assert {"rpm": 6} == lease.consumed
            assert [] == lease.entries

    def test_acquire_on_an_unopened_store_with_block_raises_with_entity_and_resource(self):
        """The error is the same as for a store that was open before."""
        limiter = self.unreachable_limiter(on_unavailable="allow")

        with pytest.raises(RateLimiterUnavailable) as caught:
            with limiter.acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable="block"):
                pass

        assert ("user-1", "gpt-4") == (caught.value.entity_id, caught.value.resource)

    def test_invalid_acquire_on_an_unopened_store_raises_validation_error(self):
        """A request that could never be admitted gets no degraded lease."""
        limiter = self.unreachable_limiter()

        for consume in ({}, {"rpm": -1}):
            with pytest.raises(ValidationError, match="consume"):
                with limiter.acquire("user-1", "gpt-4", consume, on_unavailable="allow"):
                    pass

    def test_lease_of_an_unopened_store_that_is_entered_twice_raises(self):
        """The second entry does not change the lease."""
        lease = self.unreachable_limiter().acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable="allow")

        with lease:
            with pytest.raises(RuntimeError, match="entered only once"):
                with lease:
                    pass
            lease.adjust(rpm=1)
            assert {"rpm": 2} == lease.consumed
