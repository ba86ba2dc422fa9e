"""What a public object shows of itself in a debugger or a log."""

import pytest

from zae_limiter import (
    CsvFormatter,
    Lease,
    Limit,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    RepositoryBuilder,
    SystemClock,
    TableFormatter,
)

KIND, LEASE, LIMITER, BUILDER = Repository.__name__, Lease.__name__, RateLimiter.__name__, RepositoryBuilder.__name__
LIMITS = [Limit.per_minute("rpm", 60)]
SECRET = "http://key:secret@127.0.0.1:9"
SHOWN = "dynamodb://my-app?region=us-east-1&endpoint_url=http://***%40127.0.0.1:9"


async def test_repository_shows_its_url_its_namespace_and_whether_it_is_closed(url):
    """So does the limiter, with its repository."""
    repo = await Repository.open(url)
    opened, limiter = repr(repo), repr(RateLimiter(repo))
    await repo.close()

    assert f"{KIND}('{url}', namespace='default')" == opened
    assert f"{LIMITER}({opened})" == limiter
    assert f"{KIND}('{url}', namespace='default', closed)" == repr(repo)


async def test_repository_of_another_namespace_shows_its_name(repo, url):
    """Two views of one table can be told apart."""
    await repo.register_namespace("team-a")
    scoped = await repo.namespace("team-a")

    assert f"{KIND}('{url}', namespace='team-a')" == repr(scoped)


async def test_repository_has_the_name_and_the_id_of_its_namespace(repo):
    """The id is the prefix of its keys."""
    team_id = await repo.register_namespace("team-a")
    scoped = await repo.namespace("team-a")

    assert ("default", repo.scope.namespace_id) == (repo.namespace_name, repo.namespace_id)
    assert ("team-a", team_id) == (scoped.namespace_name, scoped.namespace_id)


async def test_lease_shows_its_bucket_its_amounts_and_its_state(limiter):
    """A lease that was not entered has taken nothing."""
    lease = limiter.acquire("user-1", "gpt-4", {"rpm": 5}, LIMITS)
    new = repr(lease)
    async with lease:
        await lease.adjust(rpm=2)
        held = repr(lease)

    assert f"<{LEASE} of 'user-1', 'gpt-4': not entered>" == new
    assert f"<{LEASE} of 'user-1', 'gpt-4': consumed {{'rpm': 7}}, held>" == held
    assert f"<{LEASE} of 'user-1', 'gpt-4': consumed {{'rpm': 7}}, ended>" == repr(lease)


async def test_rejected_lease_shows_that_it_was_not_entered(limiter):
    """It holds nothing."""
    async with limiter.acquire("user-1", "gpt-4", {"rpm": 60}, LIMITS):
        lease = limiter.acquire("user-1", "gpt-4", {"rpm": 5}, LIMITS)
        with pytest.raises(RateLimitExceeded):
            await lease.__aenter__()

    assert f"<{LEASE} of 'user-1', 'gpt-4': not entered>" == repr(lease)


def test_builder_shows_the_names_of_its_options_and_no_secrets():
    """Values of options are not shown."""
    builder = Repository.builder("my-app", "us-east-1", endpoint_url=SECRET)
    empty = repr(builder)
    builder.namespace("team-a").tags({"owner": "secret"}).deadline_s(2)

    assert f"{BUILDER}('{SHOWN}', namespace='default')" == empty
    assert f"{BUILDER}('{SHOWN}', namespace='team-a', options=['deadline_s', 'tags'])" == repr(builder)


async def test_deprecated_repository_shows_whether_it_is_open_and_no_secrets():
    """Its repr opens nothing."""
    with pytest.warns(DeprecationWarning, match="is deprecated"):
        limiter = RateLimiter(name="my-app", region="us-east-1", endpoint_url=SECRET)
    unopened = repr(limiter.repository), repr(limiter), repr(limiter.acquire("user-1", "gpt-4", {"rpm": 1}))
    await limiter.close()

    assert f"{KIND}('{SHOWN}', not open yet)" == unopened[0]
    assert f"{LIMITER}({unopened[0]})" == unopened[1]
    assert f"<{LEASE} of 'user-1', 'gpt-4': not entered>" == unopened[2]
    assert f"{KIND}('{SHOWN}', closed)" == repr(limiter.repository)


@pytest.mark.parametrize("kind", [CsvFormatter, SystemClock, TableFormatter])
def test_object_without_a_state_shows_its_name(kind):
    """An address in memory would tell a reader nothing."""
    assert f"{kind.__name__}()" == repr(kind())
