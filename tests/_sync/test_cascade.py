"""Cascade: child and parent are taken from together, or not at all."""  # generated from _async by tools/mirror.py; do not edit

from dataclasses import replace

import pytest

from zae_limiter import Limit, SyncRateLimiter, RateLimiterUnavailable, RateLimitExceeded, SyncRepository, ValidationError
from zae_limiter.runtime.threads import Parallel

from .clients import FailingTable, another, counted, own_level

RPM = Limit.per_minute("rpm", 10)
TPM = Limit.per_minute("tpm", 1_000)


@pytest.fixture
def family(repo):
    """Two keys under one project, which holds less than the two together."""
    repo.set_system_defaults([RPM, TPM])
    repo.create_entity("project")
    for key in ("key-1", "key-2"):
        repo.create_entity(key, parent_id="project", cascade=True)
    return repo


def left(limiter, entity_id):
    return own_level(limiter, entity_id)


def test_both_are_taken_from(family, limiter):
    """The parent pays for every child."""
    for key in ("key-1", "key-2"):
        with limiter.acquire(key, "gpt-4", {"rpm": 2, "tpm": 100}):
            pass

    assert {"rpm": 8, "tpm": 900} == left(limiter, "key-1")
    assert {"rpm": 6, "tpm": 800} == left(limiter, "project")


def test_without_cascade_the_parent_is_left_alone(family, limiter):
    """Being a child is not enough."""
    family.create_entity("key-3", parent_id="project")
    with limiter.acquire("key-3", "gpt-4", {"rpm": 2}):
        pass

    assert {"rpm": 10, "tpm": 1_000} == left(limiter, "project")


def test_a_refused_parent_gives_the_child_its_tokens_back(family, limiter):
    """And the error names the parent."""
    with limiter.acquire("key-1", "gpt-4", {"rpm": 8}):
        pass

    with pytest.raises(RateLimitExceeded) as exceeded:
        limiter.acquire("key-2", "gpt-4", {"rpm": 3}).__enter__()

    assert ["project"] == [violation.entity_id for violation in exceeded.value.violations]
    assert {"rpm": 10, "tpm": 1_000} == left(limiter, "key-2")
    assert {"rpm": 2, "tpm": 1_000} == left(limiter, "project")


def test_a_refused_child_leaves_the_parent_as_it_was(family, limiter):
    """The parent has enough, the child has not."""
    family.set_limits("key-1", [Limit.per_minute("rpm", 1)])
    with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass

    with pytest.raises(RateLimitExceeded) as exceeded:
        limiter.acquire("key-1", "gpt-4", {"rpm": 1}).__enter__()

    assert {"key-1"} == {violation.entity_id for violation in exceeded.value.violations}
    assert 9 == (left(limiter, "project"))["rpm"]


def test_what_the_parent_does_not_limit_is_not_asked_of_it(family, limiter):
    """A project may limit tokens and not requests."""
    family.set_limits("project", [TPM])
    with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 10}):
        pass
    with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass

    assert {"tpm": 990} == left(limiter, "project")


def test_more_than_the_parent_can_ever_hold_is_refused_by_name(family, limiter):
    """And the child keeps its tokens."""
    family.set_limits("project", [Limit.per_minute("rpm", 3)])

    with pytest.raises(ValidationError, match="capacity"):
        limiter.acquire("key-1", "gpt-4", {"rpm": 4}).__enter__()

    assert 10 == (left(limiter, "key-1"))["rpm"]


def test_a_lease_adjusts_releases_and_consumes_on_both(family, limiter):
    """Whatever changes, changes for both."""
    with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 100}) as lease:
        lease.consume(rpm=2)
        lease.release(tpm=50)
        lease.adjust(tpm=300)

        assert ["key-1", "project"] == [entry.entity_id for entry in lease.entries]
        assert [{"rpm": 3, "tpm": 350}] * 2 == [entry.consumed for entry in lease.entries]

    assert {"rpm": 7, "tpm": 650} == left(limiter, "key-1")
    assert {"rpm": 7, "tpm": 650} == left(limiter, "project")


def test_a_failure_gives_back_to_both(family, limiter):
    """As if nothing had been."""
    with pytest.raises(ZeroDivisionError):
        with limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 100}):
            raise ZeroDivisionError

    for entity_id in ("key-1", "project"):
        assert {"rpm": 10, "tpm": 1_000} == left(limiter, entity_id)


def test_own_limits_are_the_childs(family, limiter):
    """The parent goes by what is stored."""
    with limiter.acquire("key-1", "gpt-4", {"rpm": 5}, limits=[Limit.per_minute("rpm", 5)]):
        pass

    assert 5 == (left(limiter, "project"))["rpm"]


def test_a_cascade_is_two_writes(family):
    """Once both are known."""
    limiter, table = counted(family)
    for _ in range(2):
        table.drain()
        with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
            pass

    assert ["write", "write"] == table.drain()


def test_an_entity_created_anew_with_another_parent_pays_there(family, limiter):
    """A live client sees it through the stamp."""
    other = SyncRateLimiter(another(family))
    with other.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass
    family.create_entity("project-2")
    family.delete_entity("key-1")
    family.create_entity("key-1", parent_id="project-2", cascade=True)

    with other.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass

    assert 9 == (left(limiter, "project"))["rpm"]
    assert 9 == (left(limiter, "project-2"))["rpm"]


class WaitingTable(FailingTable):
    """A table whose writes are not done in place."""

    def __init__(self, table):
        super().__init__(table)
        self.inline = False


@pytest.mark.parametrize("mode", ["auto", "threadpool", "serial"])
@pytest.mark.filterwarnings("ignore:.*CPU")
def test_on_a_table_that_waits_both_are_written_at_once(family, limiter, mode):
    """In every mode, with the same outcome: both or none."""
    client = another(family, WaitingTable)
    parallel = replace(client.scope.client, parallel=Parallel(mode))
    waiting = SyncRateLimiter(SyncRepository(parallel.scope("default", client.scope.namespace_id), owns_table=False))
    for _ in range(3):
        with waiting.acquire("key-1", "gpt-4", {"rpm": 1}) as lease:
            lease.release(rpm=0)
    with waiting.acquire("key-2", "gpt-4", {"rpm": 1}):
        pass

    with pytest.raises(RateLimitExceeded) as exceeded:
        waiting.acquire("key-2", "gpt-4", {"rpm": 8}).__enter__()

    assert {"project"} == {violation.entity_id for violation in exceeded.value.violations}
    assert [7, 9, 6] == [(left(limiter, one))["rpm"] for one in ("key-1", "key-2", "project")]


def test_two_rejections_at_once_are_told_together(family):
    """Child and parent both lack the tokens."""
    family.set_limits("key-1", [Limit.per_minute("rpm", 10)])
    waiting = SyncRateLimiter(another(family, WaitingTable))
    with waiting.acquire("key-1", "gpt-4", {"rpm": 10}):
        pass

    with pytest.raises(RateLimitExceeded) as exceeded:
        waiting.acquire("key-1", "gpt-4", {"rpm": 1}).__enter__()

    assert {"key-1", "project"} == {violation.entity_id for violation in exceeded.value.violations}


def test_a_store_that_goes_away_is_told_of_the_child(family):
    """Or lets the request through, if that is allowed."""
    limiter = SyncRateLimiter(another(family, WaitingTable))
    with limiter.acquire("key-1", "gpt-4", {"rpm": 1}):
        pass
    limiter.repository.scope.table.away = True

    with pytest.raises(RateLimiterUnavailable):
        limiter.acquire("key-1", "gpt-4", {"rpm": 1}).__enter__()
    with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, on_unavailable="allow") as lease:
        assert lease.degraded
        assert [] == lease.entries


class LeavingTable(FailingTable):
    """A table that goes away after so many writes, and comes back for the writes that settle."""

    def __init__(self, table):
        super().__init__(table)
        self.reads_left = None

    def batch_get(self, keys, *, consistent=False, until_s=None):
        self.away = self.reads_left == 0
        try:
            return super().batch_get(keys, consistent=consistent, until_s=until_s)
        finally:
            self.away = False
            self.reads_left = None if self.reads_left is None else self.reads_left - 1


def test_a_parent_out_of_reach_leaves_the_child_uncharged(family, limiter):
    """A lease that is let through then owes nothing and gives nothing back, whatever happens in it."""
    limits = [RPM, TPM]
    careful = SyncRateLimiter(another(family, LeavingTable))
    careful.repository.scope.table.reads_left = 1

    lease = careful.acquire("key-1", "gpt-4", {"rpm": 4}, limits, on_unavailable="allow")
    lease.__enter__()
    lease.__exit__(ZeroDivisionError, ZeroDivisionError(), None)

    assert lease.degraded
    assert 10 == (left(limiter, "key-1"))["rpm"]


class VanishingTable(FailingTable):
    """A table that carries out so many writes more, and no other."""

    def __init__(self, table):
        super().__init__(table)
        self.writes_left = [True] * 100

    def write(self, operation, until_s=None):
        # Two writers may come at once; a list gives each of them one or none.
        try:
            self.writes_left.pop()
        except IndexError:
            self.away = True
        return super().write(operation, until_s)


@pytest.mark.parametrize("inline", [True, False])
def test_a_store_that_vanishes_between_child_and_parent_is_told_as_that(family, inline):
    """What cannot be given back stays charged; the caller hears of the store, or is let through."""
    limiter = SyncRateLimiter(another(family, VanishingTable))
    table = limiter.repository.scope.table
    table.inline = inline
    limiter = SyncRateLimiter(limiter.repository)
    for entity_id in ("key-1", "key-2"):
        with limiter.acquire(entity_id, "gpt-4", {"rpm": 1}):
            pass
    table.writes_left = [True]

    with limiter.acquire("key-1", "gpt-4", {"rpm": 1}, on_unavailable="allow") as lease:
        assert lease.degraded
    table.away, table.writes_left = False, [True]
    with pytest.raises(RateLimiterUnavailable):
        limiter.acquire("key-2", "gpt-4", {"rpm": 1}).__enter__()


def test_a_limit_taken_out_of_the_parent_meanwhile_is_not_given_back_to_it(family, limiter):
    """What the parent did not give, it does not get."""
    family.set_limits("project", [RPM, TPM])
    lease = limiter.acquire("key-1", "gpt-4", {"rpm": 1, "tpm": 10})
    lease.__enter__()
    family.set_limits("project", [TPM])
    lease.consume(rpm=5)
    lease.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    family.set_limits("project", [RPM, TPM])

    assert {"rpm": 9, "tpm": 1_000} == left(limiter, "project")
    assert {"rpm": 10, "tpm": 1_000} == left(limiter, "key-1")
