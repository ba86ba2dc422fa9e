"""Entities and resources are ranked by what they have used of a limit."""

from zae_limiter.core.usage import UsageSnapshot
from zae_limiter.core.usage_ranking import LimitRanking, Ranked, RankedBy, UsageRanking


def used(entity_id: str, resource: str, **counters: int) -> UsageSnapshot:
    return UsageSnapshot(entity_id, resource, "2024-01-01T00:00:00Z", "2024-01-02T00:00:00Z", "daily", counters, 1)


def ranking(by: RankedBy) -> UsageRanking:
    made = UsageRanking(by)
    made.add([used("a", "gpt-4", rpm=1, tpm=30), used("b", "gpt-4", rpm=2)])
    made.add([used("a", "search", rpm=1), used("c", "search", rpm=4)])
    return made


def test_ranking_by_entity_adds_up_all_windows_and_resources() -> None:
    """The largest amount is first, and equal amounts are in the order of their names."""
    expected = LimitRanking("rpm", 8, [Ranked("c", 4, 0.5), Ranked("a", 2, 0.25), Ranked("b", 2, 0.25)])

    assert [expected] == ranking("entity").of("rpm", 10)


def test_ranking_by_resource_adds_up_all_entities() -> None:
    """Without a limit name there is a ranking for each limit."""
    rpm = LimitRanking("rpm", 8, [Ranked("search", 5, 0.625), Ranked("gpt-4", 3, 0.375)])

    assert [rpm, LimitRanking("tpm", 30, [Ranked("gpt-4", 30, 1.0)])] == ranking("resource").of(None, 10)


def test_ranking_has_at_most_the_names_asked_for_and_the_total_of_all() -> None:
    """The share is that of the total."""
    assert [LimitRanking("rpm", 8, [Ranked("c", 4, 0.5)])] == ranking("entity").of("rpm", 1)


def test_ranking_of_an_unused_limit_is_empty() -> None:
    """The name may be misspelt, or the limit unused."""
    assert [] == ranking("entity").of("rps", 10)


def test_ranking_without_a_positive_total_has_no_shares() -> None:
    """More may have been credited than taken."""
    made = UsageRanking("entity")
    made.add([used("a", "gpt-4", rpm=2), used("b", "gpt-4", rpm=-2)])

    assert [LimitRanking("rpm", 0, [Ranked("a", 2, 0.0), Ranked("b", -2, 0.0)])] == made.of(None, 10)
