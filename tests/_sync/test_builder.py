"""The builder before it asks anything of AWS, and what the deprecated constructors say and refuse."""  # generated from _async by tools/mirror.py; do not edit

from dataclasses import fields

import pytest

from zae_limiter import (
    InvalidNameError,
    OnUnavailable,
    SyncRateLimiter,
    RateLimiterUnavailable,
    SyncRepository,
    StackOptions,
    StorageError,
    UnsupportedByBackendError,
    ValidationError,
)
from zae_limiter._sync.admin import ADMIN_VERBS
from zae_limiter._sync.deprecated import LateRepository

NOWHERE = "http://127.0.0.1:9"

CHOICES = {
    "snapshot_windows": "monthly",
    "usage_retention_days": 30,
    "audit_retention_days": 31,
    "enable_aggregator": False,
    "pitr_recovery_days": 0,
    "log_retention_days": 7,
    "lambda_timeout": 30,
    "lambda_memory": 512,
    "enable_alarms": False,
    "alarm_sns_topic": "arn:aws:sns:us-east-1:123456789012:alarms",
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


class TestChoices:
    def test_every_option_of_a_stack_is_known(self):
        assert {one.name for one in fields(StackOptions)} == CHOICES.keys()

    @pytest.mark.parametrize("name", sorted(CHOICES.keys() - {"create_iam"}))
    def test_each_can_be_chosen_by_itself(self, name):
        """By a method of its name, which returns the builder."""
        begun = builder()
        chosen = getattr(begun, name)(CHOICES[name])

        assert begun is chosen
        assert StackOptions(**{name: CHOICES[name]}) == chosen._options()

    def test_nothing_chosen_is_no_options(self):
        """Which is not the same as every default: a stack that stands is then left as it is."""
        assert builder().namespace("tenant").config_cache_ttl(5).auto_update(True)._options() is None

    def test_all_at_once_and_one_by_one(self):
        """What is chosen by itself counts more, in whichever order."""
        options = StackOptions(lambda_memory=128, lambda_timeout=30)
        chosen = builder().lambda_memory(512).stack_options(options)._options()

        assert StackOptions(lambda_memory=512, lambda_timeout=30) == chosen

    def test_what_the_client_does_is_chosen_too(self):
        chosen = builder().config_cache_ttl(5).bucket_ttl_multiplier(0).on_unavailable("allow").deadline_s(3)
        settings = chosen.audit_retention_days(31)._deployment().opening.settings

        assert (5_000, 0, OnUnavailable.ALLOW, 3, 31) == (
            settings.config_cache_ttl_ms,
            settings.bucket_ttl_multiplier,
            settings.on_unavailable,
            settings.deadline_s,
            settings.audit_retention_days,
        )


class TestBadChoices:
    """They are refused before anything is asked of anybody: nobody answers at the endpoint."""

    @pytest.mark.parametrize("name", ["", "my_app", "1app", "memory://", "a" * 56, None])
    def test_a_name_that_no_stack_can_have(self, name):
        with pytest.raises(InvalidNameError):
            builder(name).build()

    @pytest.mark.parametrize(
        ("chosen", "field"),
        [
            (builder().lambda_memory(64), "lambda_memory"),
            (builder().create_iam(False), "create_iam"),
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
    def test_a_choice_that_cannot_be(self, chosen, field):
        with pytest.raises(ValidationError) as refused:
            chosen.build()

        assert field == refused.value.field

    def test_so_does_connect(self):
        with pytest.raises(ValidationError, match="auto_update"):
            SyncRepository.connect("my-app", "us-east-1", endpoint_url=NOWHERE, auto_update="yes")


class TestEmbedded:
    """A file, or memory, has no stack, and says so."""

    @pytest.mark.parametrize("name", ["stack_name", "table_name"])
    def test_they_have_no_names_of_a_stack(self, repo, limiter, name):
        for one in (repo, limiter):
            with pytest.raises(
                UnsupportedByBackendError, match=rf"{name} is not supported by the (memory|sqlite) backe"
            ):
                getattr(one, name)

    def test_nothing_can_be_deployed_for_them(self, repo, limiter):
        assert not repo.capabilities.supports_infrastructure_management
        for one in (repo, limiter):
            with pytest.raises(UnsupportedByBackendError, match="ensure_infrastructure"):
                one.ensure_infrastructure()


class TestDeprecated:
    @pytest.mark.parametrize("kind", [SyncRepository, SyncRateLimiter])
    def test_it_warns_once_and_says_what_to_write(self, kind):
        """At the line that calls it."""
        with pytest.warns(DeprecationWarning, match="is deprecated") as warned:
            kind(name="my-app", region="us-east-1", endpoint_url=NOWHERE)

        (warning,) = warned
        instead = SyncRepository.__name__
        assert __file__ == warning.filename
        assert str(warning.message).startswith(f"{kind.__name__}(name=...) is deprecated")
        assert f"{instead}.connect(name, region)" in str(warning.message)
        assert f"{instead}.builder(name, region).build()" in str(warning.message)

    def test_it_is_named_before_it_is_open(self):
        with pytest.warns(DeprecationWarning, match="is deprecated"):
            limiter = SyncRateLimiter(name="my-app", region="us-east-1")

        assert ("my-app", "my-app") == (limiter.stack_name, limiter.table_name)
        assert "dynamodb://my-app?region=us-east-1" == limiter.name == limiter.repository.name

    def test_what_is_asked_too_early_is_refused_with_what_to_do(self):
        with pytest.warns(DeprecationWarning, match="is deprecated"):
            repo = SyncRepository(name="my-app", region="us-east-1", endpoint_url=NOWHERE)

        for look in (lambda: repo.scope, lambda: repo.capabilities, repo.get_cache_stats):
            with pytest.raises(StorageError, match=r"my-app.*not open yet; call ensure_infrastructure"):
                look()
        repo.close()

    def test_another_attribute_is_simply_absent(self):
        with pytest.warns(DeprecationWarning, match="is deprecated"):
            repo = SyncRepository(name="my-app", region="us-east-1")

        with pytest.raises(AttributeError, match="no_such_verb"):
            _ = repo.no_such_verb

    def test_one_has_a_repository_or_a_name(self, repo):
        with pytest.raises(ValidationError, match="connect"):
            SyncRateLimiter()
        with pytest.raises(ValidationError, match="connect"):
            SyncRepository()
        with pytest.raises(ValidationError, match="choose these where it is opened"):
            SyncRateLimiter(repo, auto_update=True)
        with pytest.raises(ValidationError, match="pass these where you open it"):
            SyncRepository(repo.scope, name="my-app")

    @pytest.mark.parametrize("kind", [SyncRepository, SyncRateLimiter])
    def test_what_it_names_is_checked(self, kind):
        with pytest.raises(InvalidNameError):
            kind(name="my_app")
        with pytest.raises(TypeError, match="regoin"):
            kind(name="my-app", regoin="us-east-1")

    def test_what_it_chooses_is_what_a_builder_would(self):
        """``bucket_ttl_refill_multiplier`` is the builder's ``bucket_ttl_multiplier``."""
        chosen = {"on_unavailable": "allow", "auto_update": False, "bucket_ttl_refill_multiplier": 14}
        late = LateRepository({"name": "my-app", "region": "us-east-1", "config_cache_ttl": 5, **chosen})
        built = builder().on_unavailable("allow").bucket_ttl_multiplier(14).config_cache_ttl(5).auto_update(False)
        deployment, expected = late._builder._deployment(), built._deployment()

        assert expected.opening.settings == deployment.opening.settings
        assert expected.update == deployment.update

    def test_every_verb_that_waits_opens_it(self):
        """Nobody answers, and each says so."""
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

    def test_subclass_that_is_only_named_is_opened_by_what_it_overrides(self):
        """And it stays an object of the subclass."""

        class Own(SyncRepository):
            def get_limits(self, *_):
                return "its own"

        with pytest.warns(DeprecationWarning, match=r"Own\(name=...\) is deprecated"):
            repo = Own(name="my-app", region="us-east-1", session=object())

        assert isinstance(repo, Own)
        with pytest.raises(ValidationError, match="session"):
            repo.get_limits("user-1")

    def test_subclass_has_a_constructor_of_its_own(self, repo):
        """Its arguments are not those of the deprecated form."""

        class Own(SyncRateLimiter):
            def __init__(self, tenant, *, name):
                super().__init__(repo)
                self.own = tenant, name

        assert ("tenant", "gpt-4") == Own("tenant", name="gpt-4").own


class TestUnreachable:
    """What the deprecated constructors name cannot be opened before the deadline."""

    @pytest.fixture(autouse=True)
    def _credentials(self, monkeypatch):
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")

    def named(self, **chosen):
        """A limiter of a store that refuses connections."""
        with pytest.warns(DeprecationWarning, match="is deprecated"):
            return SyncRateLimiter(name="my-app", region="us-east-1", endpoint_url=NOWHERE, **chosen)

    @pytest.mark.parametrize(("chosen", "asked"), [({}, "allow"), ({"on_unavailable": "allow"}, None)])
    def test_acquire_that_allows_unopened_store_yields_degraded_lease(self, chosen, asked):
        """The choice of the call counts, and that of the constructor; the lease has all its verbs."""
        limiter = self.named(**chosen)

        with limiter.acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable=asked) as lease:
            lease.consume(rpm=2)
            lease.adjust(rpm=4)
            lease.release(rpm=1)
            assert lease.degraded
            assert {"rpm": 6} == lease.consumed
            assert [] == lease.entries

    def test_acquire_that_blocks_on_unopened_store_names_entity_and_resource(self):
        """As with a store that was open before."""
        limiter = self.named(on_unavailable="allow")

        with pytest.raises(RateLimiterUnavailable) as caught:
            with limiter.acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable="block"):
                pass

        assert ("user-1", "gpt-4") == (caught.value.entity_id, caught.value.resource)

    def test_invalid_acquire_on_unopened_store_is_refused(self):
        """No lease is degraded by a request that could never be admitted."""
        limiter = self.named()

        for consume in ({}, {"rpm": -1}):
            with pytest.raises(ValidationError, match="consume"):
                with limiter.acquire("user-1", "gpt-4", consume, on_unavailable="allow"):
                    pass

    def test_lease_of_unopened_store_is_entered_once(self):
        """A second entry changes nothing of the first."""
        lease = self.named().acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable="allow")

        with lease:
            with pytest.raises(RuntimeError, match="entered once"):
                with lease:
                    pass
            lease.adjust(rpm=1)
            assert {"rpm": 2} == lease.consumed
