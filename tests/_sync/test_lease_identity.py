"""A lease says whose it is."""  # generated from _async by tools/mirror.py; do not edit

from zae_limiter import Limit, SyncRateLimiter, SyncRepository


def test_lease_has_its_entity_and_resource() -> None:
    """A load test counts leases by them, without listing what they hold."""
    with SyncRepository.open("memory://") as repository:
        repository.set_system_defaults([Limit.per_minute("rpm", 10)])
        with SyncRateLimiter(repository).acquire("user-1", "gpt-4", {"rpm": 1}) as lease:
            assert ("user-1", "gpt-4") == (lease.entity_id, lease.resource)
