"""Limits of concurrent use that a bucket gets while a lease on it is open."""  # generated from _async by tools/mirror.py; do not edit

from zae_limiter import Limit, SyncRateLimiter

DESKS, ROOMS = Limit.concurrent("desks", 2, hold_seconds=5), Limit.concurrent("rooms", 2, hold_seconds=5)


def test_lease_renews_slots_of_a_limit_that_an_ancestor_got_since(repo):
    """A lease knows the hold of each limit that it has slots of, also of those that it took later."""
    repo.create_entity("team")
    repo.create_entity("user-1", parent_id="team", cascade=True)
    repo.set_limits("user-1", [DESKS, ROOMS], "api")
    repo.set_limits("team", [DESKS], "api")
    limiter = SyncRateLimiter(repo)
    holds = limiter._client.slots.holds
    with limiter.acquire("user-1", "api", {"desks": 1}) as lease:
        repo.set_limits("team", [DESKS, ROOMS], "api")
        lease.consume(rooms=1)

        late_ms = repo.scope.table.now()[1] + 6_400
        groups = holds.begin(late_ms)
        for group in groups:
            holds.end(group, None, late_ms)

    assert {"user-1", "team"} == {group.bucket[0] for group in groups}
    assert all({"desks", "rooms"} == {one.name for one in group.renewals} for group in groups)
