"""Which workers of a distributed test are started and stopped."""

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from zae_limiter.loadtest.worker_fleet import FleetDecision, FleetRules, FleetWorker, decide_fleet, wanted_workers

RULES = FleetRules(wanted=2, most=10, worker_time_s=300)


def connected(number: int, invoked_s: float = 0.0) -> FleetWorker:
    return FleetWorker(f"w{number}", invoked_s, has_connected=True)


def pending(number: int, invoked_s: float = 0.0) -> FleetWorker:
    return FleetWorker(f"w{number}", invoked_s)


class TestDecideFleet:
    def test_fleet_without_workers_starts_all(self):
        """A test begins with the wanted number."""
        assert FleetDecision(2, ()) == decide_fleet([], RULES, 0)

    def test_fleet_of_pending_workers_starts_no_more(self):
        """Workers have time to connect."""
        assert FleetDecision(0, ()) == decide_fleet([pending(1), pending(2)], RULES, 30)

    def test_worker_not_connected_in_30_seconds_is_stopped_and_replaced(self):
        """An invocation may be lost."""
        assert FleetDecision(1, ("w1",)) == decide_fleet([pending(1), connected(2)], RULES, 30.1)

    def test_ended_worker_is_replaced(self):
        """Also one that was killed."""
        lost = replace(connected(1), has_ended=True)

        assert FleetDecision(1, ()) == decide_fleet([lost, connected(2)], RULES, 20)

    def test_worker_that_used_80_percent_of_its_time_keeps_running_until_replaced(self):
        """The users stay where they are until another worker can take them."""
        worn = [connected(1), connected(2)]

        assert FleetDecision(0, ()) == decide_fleet(worn, RULES, 239.9)
        assert FleetDecision(2, ()) == decide_fleet(worn, RULES, 240)
        assert FleetDecision(0, ()) == decide_fleet([*worn, pending(3, 240), pending(4, 240)], RULES, 245)
        assert FleetDecision(0, ("w1",)) == decide_fleet([*worn, connected(3, 240), pending(4, 240)], RULES, 246)

    def test_worn_worker_is_stopped_first_if_no_more_may_run(self):
        """The maximum number of workers is never exceeded."""
        rules = replace(RULES, most=2)

        assert FleetDecision(0, ("w1", "w2")) == decide_fleet([connected(1), connected(2)], rules, 240)

    def test_stopping_worker_occupies_room_until_it_ends(self):
        """It still runs."""
        rules = replace(RULES, most=2)
        stopping = replace(connected(1), is_stopping=True)

        assert FleetDecision(0, ()) == decide_fleet([stopping, connected(2, 200)], rules, 241)
        ended = replace(stopping, has_ended=True)
        assert FleetDecision(1, ()) == decide_fleet([ended, connected(2, 200)], rules, 242)

    def test_worker_that_was_lost_and_returns_makes_the_oldest_surplus(self):
        """A connection can heal after the replacement has started."""
        fleet = [connected(1), connected(2, 1), connected(3, 2)]

        assert FleetDecision(0, ("w1",)) == decide_fleet(fleet, RULES, 10)

    def test_three_workers_in_a_row_that_never_connect_end_the_test(self):
        """Further ones would cost money, and would not start either."""
        failed = [replace(pending(number, number), has_ended=True) for number in range(3)]

        assert FleetDecision(0, (), gives_up=True) == decide_fleet(failed, RULES, 5)

    def test_failed_starts_before_a_connected_worker_are_forgiven(self):
        """The cause is gone."""
        failed = [replace(pending(number, number), has_ended=True) for number in range(3)]

        assert FleetDecision(1, ()) == decide_fleet([*failed, connected(9, 4)], RULES, 5)

    def test_large_fleet_forgives_as_many_failed_starts_as_it_has_workers(self):
        """Three of a hundred may be lost by chance."""
        rules = replace(RULES, wanted=100, most=100)
        fleet = [replace(pending(number), has_ended=True) for number in range(99)]

        assert not decide_fleet(fleet, rules, 1).gives_up
        assert decide_fleet([*fleet, replace(pending(100), has_ended=True)], rules, 1).gives_up


@settings(max_examples=200, deadline=None)
@given(
    wanted=st.integers(1, 6),
    extra=st.integers(0, 4),
    moves=st.lists(st.tuples(st.sampled_from(["connect", "end", "lose", "wait"]), st.integers(0, 20)), max_size=60),
)
def test_fleet_never_exceeds_its_bounds_whatever_happens_to_workers(wanted, extra, moves):
    """Running workers stay within the maximum, and fresh ones within the wanted number."""
    rules = FleetRules(wanted=wanted, most=wanted + extra, worker_time_s=100)
    fleet: dict[str, FleetWorker] = {}
    now_s = 0.0
    for move, value in moves:
        now_s += value if move == "wait" else 1
        _happen(fleet, move, value)
        decision = decide_fleet(list(fleet.values()), rules, now_s)
        for worker_id in decision.stop:
            fleet[worker_id] = replace(fleet[worker_id], is_stopping=True)
        for _ in range(decision.start):
            fleet[f"w{len(fleet)}"] = FleetWorker(f"w{len(fleet)}", now_s)
        running = [one for one in fleet.values() if not one.has_ended]
        kept = [one for one in running if not one.is_stopping and now_s - one.invoked_s < 80]

        assert len(running) <= rules.most
        assert len(kept) <= wanted
        assert decision.gives_up or len(kept) == wanted or len(running) == rules.most


def _happen(fleet: dict[str, FleetWorker], move: str, value: int) -> None:
    """Let something happen to one of the workers that run."""
    running = [one for one in fleet.values() if not one.has_ended]
    if not running:
        return
    one = running[value % len(running)]
    if move == "connect" and not one.is_stopping:
        fleet[one.worker_id] = replace(one, has_connected=True)
    if move in ("end", "lose"):
        fleet[one.worker_id] = replace(one, has_ended=True)


class TestWantedWorkers:
    def test_users_are_spread_over_as_many_workers_as_needed(self):
        """The last worker may have fewer users."""
        assert 3 == wanted_workers(21, 10, fewest=1, most=100)

    def test_wanted_workers_stay_within_the_bounds_of_the_stack(self):
        """Also before the first user, so that a test can begin at once."""
        assert 2 == wanted_workers(0, 10, fewest=2, most=100)
        assert 5 == wanted_workers(1000, 10, fewest=2, most=5)
