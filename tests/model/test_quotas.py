"""No reachable state of a calendar quota violates an invariant, and every broken rule is noticed."""

import pytest

from tests.model import __main__ as command
from tests.model.quotas import explore
from tests.model.quotas_configs import CONFIGS, config
from tests.model.quotas_mutations import HARMLESS, MUTATIONS, QuotaMutation
from tests.model.quotas_state import Config

WRITES = {
    "takes": "take",
    "clocks": "take",
    "created": "create credit take",
    "credits": "credit take",
    "debits": "debit take",
    "differing": "take",
    "cut": "credit debit group take",
    "reserve": "take",
    "groups": "credit group take",
    "soft": "credit group take",
    "soft to hard": "credit rebase take",
    "amounts": "rebase take",
    "schedules": "credit rebase take",
    "schedules soft": "credit rebase take",
    "resets": "credit reset take",
    "resets differing": "reset take",
    "shards": "merge split take",
    "shards credits": "credit merge split take",
    "shards debt": "credit merge split take",
    "shards groups": "group merge split take",
    "shards soft": "group merge split take",
    "shards debits": "debit merge split spread take",
    "shards schedules": "merge rebase split take",
    "shards reset": "reset split take",
    "shards differing": "merge split take",
    "several": "credit take",
}
"""The writes that are applied somewhere in each configuration."""


@pytest.mark.parametrize("explored", CONFIGS, ids=str)
def test_exploration_of_a_quota_violates_no_invariant(explored: Config) -> None:
    """The invariants hold in every reachable state around an edge."""
    result = explore(explored)

    assert result.violation is None, str(result)
    assert result.complete
    assert WRITES[explored.name].split() == sorted(result.kinds)


@pytest.mark.parametrize("mutation", MUTATIONS, ids=str)
def test_quota_with_a_broken_rule_violates_its_invariant(mutation: QuotaMutation) -> None:
    """Each bound and each choice of an epoch prevents something."""
    result = explore(config(mutation.config), mutation.rules)

    assert result.violation is not None, str(result)
    assert mutation.breaks == result.violation.invariant, str(result)


@pytest.mark.parametrize("mutation", HARMLESS, ids=str)
def test_redundant_rule_of_a_quota_is_noticed_by_no_invariant(mutation: QuotaMutation) -> None:
    """If one of these is noticed some day, it is a rule of its own."""
    assert explore(config(mutation.config), mutation.rules).violation is None


def test_violation_of_a_quota_is_printed_as_its_steps() -> None:
    """Each step shows the epochs, and what is spent in them."""
    mutation = next(one for one in MUTATIONS if one.name == "take without its lower bound")

    lines = str(explore(config(mutation.config), mutation.rules)).splitlines()

    assert "violates promise: 3 used in (0, 0, 0), of 2" == lines[1]
    assert lines[-1].endswith("client 1 send take 2 at 0 answered by what it saw (e0:0)")


def test_command_explores_quotas(capsys: pytest.CaptureFixture[str]) -> None:
    """`--most` bounds each configuration, for a quick look."""
    code = command.main(["--quotas", "--deeper", "--most", "50"])

    assert 0 == code
    assert len(CONFIGS) == len(capsys.readouterr().out.splitlines())
