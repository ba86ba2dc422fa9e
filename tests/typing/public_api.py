"""What a type checker sees of the public names. Mypy reads it, and it is never run."""

from typing import assert_type

import zae_limiter
from zae_limiter import (
    AuditEvent,
    BackendCapabilities,
    Lease,
    Limit,
    LimitName,
    Namespace,
    OnUnavailable,
    PlotFormatter,
    RateLimiter,
    RateLimitExceeded,
    Repository,
    RepositoryBuilder,
    RepositoryProtocol,
    SnapshotFormatter,
    SyncLease,
    SyncRateLimiter,
    SyncRepository,
    SyncRepositoryBuilder,
    SyncRepositoryProtocol,
    UsageFormatter,
    format_usage_snapshots,
)

AMOUNTS = {LimitName.RPM: 1, LimitName.TPM: 500}
LIMITS = [Limit.per_minute(LimitName.RPM, 100), Limit.per_day(LimitName.RPD, 1_000)]
LIMITS += [Limit.per_minute("rpm", 100), Limit.per_minute("tpm", 10_000, burst=20_000)]


async def asynchronous() -> None:
    repository = await Repository.open("memory://")
    assert_type(repository, Repository)
    limiter = RateLimiter(repository)
    assert_type(AMOUNTS, dict[str, int])
    async with limiter.acquire("user-1", "gpt-4", AMOUNTS):
        pass

    async with limiter.acquire("user-1", "gpt-4", {"rpm": 1, "tpm": 500}, limits=LIMITS) as lease:
        assert_type(lease, Lease)
        await lease.consume(tpm=10)
        await lease.release(tpm=10)
        await lease.adjust(tpm=-20)
        assert_type(lease.consumed, dict[str, int])
        assert_type(lease.degraded, bool)

    assert_type(await limiter.available("user-1", "gpt-4"), dict[str, int])
    assert_type(await limiter.time_until_available("user-1", "gpt-4", {"rpm": 1}), float)
    await repository.set_system_defaults(LIMITS, on_unavailable=OnUnavailable.ALLOW)
    assert_type(await repository.register_namespace("team-a"), str)
    assert_type(await repository.register_namespaces(["team-b", "team-c"]), dict[str, str])
    assert_type(await limiter.list_namespaces(), list[Namespace])
    assert_type(await repository.delete_namespace("team-a", principal="admin"), Namespace)
    assert_type((repository.name, repository.namespace_name, repository.namespace_id), tuple[str, str, str])
    scores: dict[str, list[float]] = {"scores": [0.5]}
    await repository.create_entity("user-1", metadata=scores)
    with limiter.acquire("user-1", "gpt-4", {"rpm": 1}):  # type: ignore[attr-defined] # it is async
        pass
    await limiter.close()
    builder = Repository.builder("my-app", "us-east-1").lambda_memory(512).tags({"team": "limits"})
    assert_type(builder, RepositoryBuilder[Repository])
    assert_type(await builder.build(), Repository)
    assert_type(await Repository.connect("my-app", auto_update=False), Repository)
    RateLimiter(name="my-app", region="us-east-1", bucket_ttl_refill_multiplier=14)
    RateLimiter(nam="my-app")  # type: ignore[call-arg] # a name that is misspelt


def synchronous() -> None:
    repository = SyncRepository.open("sqlite:///limits.db", parallel_mode="serial")
    assert_type(repository, SyncRepository)
    limiter = SyncRateLimiter(repository)

    try:
        with limiter.acquire("user-1", "gpt-4", {"rpm": 1}) as lease:
            assert_type(lease, SyncLease)
            lease.adjust(rpm=1)
    except RateLimitExceeded as exceeded:
        assert_type(exceeded.retry_after_seconds, float)

    assert_type(limiter.available("user-1", "gpt-4"), dict[str, int])
    hours, _ = repository.get_usage_snapshots("user-1")
    assert_type(format_usage_snapshots(hours, UsageFormatter.CSV), str)
    assert_type(format_usage_snapshots(hours, "plot"), str)
    formatter: SnapshotFormatter = PlotFormatter(width=100)
    assert_type(format_usage_snapshots(hours, formatter), str)
    for event in repository.get_audit_events("user-1"):
        assert_type(AuditEvent.from_dict(event.to_dict()), AuditEvent)
    limiter.close()
    builder = SyncRepository.builder("my-app", "us-east-1").enable_alarms(False)
    assert_type(builder, SyncRepositoryBuilder[SyncRepository])
    assert_type(builder.build(), SyncRepository)


class Wrapper:
    """An implementation of the protocol from outside the package."""

    def __init__(self, wrapped: Repository) -> None:
        self.wrapped = wrapped

    @property
    def name(self) -> str:
        return self.wrapped.name

    @property
    def capabilities(self) -> BackendCapabilities:
        return self.wrapped.capabilities

    async def ensure_infrastructure(self) -> None:
        await self.wrapped.ensure_infrastructure()

    async def ping(self) -> bool:
        return await self.wrapped.ping()

    async def close(self) -> None:
        await self.wrapped.close()


def wrapped(repository: Repository, blocking: SyncRepository) -> None:
    protocols: tuple[RepositoryProtocol, RepositoryProtocol] = repository, Wrapper(repository)
    synchronous: SyncRepositoryProtocol = blocking
    limiter = RateLimiter(Wrapper(repository))
    assert_type(limiter.repository, RepositoryProtocol)
    SyncRateLimiter(synchronous)
    SyncRateLimiter(Wrapper(repository))  # type: ignore[arg-type] # its verbs are async
    RateLimiter(limiter.acquire)  # type: ignore[arg-type] # not a repository
    assert_type(protocols[1].name, str)


def misspelt() -> None:
    zae_limiter.RateLimitr  # type: ignore[attr-defined]  # a misspelt name must not type-check  # noqa: B018 - read only
