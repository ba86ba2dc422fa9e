"""Tenants share a limiter and nothing else; a purged namespace leaves nothing behind."""

import pytest

from tests.e2e.deployment import Deployment, comes_to, counted, take
from zae_limiter import Limit, NamespaceNotFoundError, RateLimitExceeded

LIMITS = {"alpha": 5, "beta": 50}


def test_namespaces_are_isolated_and_one_is_purged(deployment: Deployment) -> None:
    """The same entity has its own limits, buckets, usage and audit in each."""
    with deployment.opened() as repo:
        ids = repo.register_namespaces(list(LIMITS))
        for namespace, capacity in LIMITS.items():
            tenant = repo.namespace(namespace)
            tenant.set_system_defaults([Limit.per_day("rpd", capacity)], principal=namespace)
            take(tenant, 5)
        alpha, beta = repo.namespace("alpha"), repo.namespace("beta")
        with pytest.raises(RateLimitExceeded):
            take(alpha, 1)
        take(beta, 20)
        used = [comes_to(windows(5), lambda: counted(alpha)), comes_to(windows(25), lambda: counted(beta))]
        repo.delete_namespace("alpha")
        with pytest.raises(NamespaceNotFoundError):
            repo.namespace("alpha")
        repo.purge_namespace(ids["alpha"])
        left = [item["PK"]["S"] for item in deployment.items() if item["PK"]["S"].startswith(f"{ids['alpha']}/")]
        take(beta, 25)

        assert [windows(5), windows(25)] == used
        assert [] == left
        assert [] == repo.list_orphan_namespaces()
        assert [0] == [bucket.tokens for bucket in beta.get_buckets("user-1")]
        assert ids["alpha"] not in {one.id for one in repo.list_namespaces()}


def windows(amount: int) -> dict[str, int]:
    return {"hourly": amount, "daily": amount}
