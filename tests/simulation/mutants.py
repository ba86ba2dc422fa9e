"""Every rule of the protocol, broken one at a time while the fleet runs: which, how, and what the books then say.

A mutant replaces functions of the limiter, of the aggregator or of the simulated port for as long as it lasts. Those
whose loss nobody can notice say why: another rule that is still there prevents the same.
"""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any
from unittest import mock

from tests import mutating as weak
from tests.simulation import broken_rules
from tests.simulation.plan import (
    CANCEL,
    CANCEL_SETTLING,
    CONFIG,
    COPY,
    DELETE,
    EXPIRY,
    OWN,
    SHARDS,
    SKEW,
    STEP,
    USAGE,
    Plan,
    scenario_of,
)
from tests.simulation.port import LATE, LOST_REQUEST, LOST_RESPONSE, WRONG_DATE, Port
from tests.simulation.server import Server
from zae_limiter import clock
from zae_limiter._async.limiter import cascade, top_ups
from zae_limiter._async.limiter.batch_writes import TakeBatcher
from zae_limiter._async.limiter.bucket_client import BucketClient
from zae_limiter._async.limiter.group_commit import BatchedClient
from zae_limiter._async.limiter.lease import Lease
from zae_limiter._async.limiter.settle import Settler
from zae_limiter._async.limiter.shards import ShardClient
from zae_limiter._async.store import buckets
from zae_limiter._async.store.scope import Nonces
from zae_limiter.core import acquire, rebase
from zae_limiter.core.bucket_changes import Settlement
from zae_limiter.core.top_up import Creation
from zae_limiter.schema import bucket_writes, usage_item
from zae_limiter.schema.operations import AttributeAbsent, AttributeExists, Equals, Ranges
from zae_limiter_aggregator import apply

CASCADE, LIMITS, FLEETING, OFTEN = "cascade", "several limits", "buckets that soon expire", "own limits often"
PATIENT, PARTING, GREEDY = "leases held for long", "own limits before a rest", "all of it, given back"
LACKING, RESTLESS = "own limits that lack one", "shards split and merged all the time"
"""What a plan may be asked for beside its faults."""

_FLEETING_MS = 4_000
_SELDOM = 0.05

HELD = ("take", "settle", "rebase", "split", "merge")
"""Writers that hold on to what was seen."""

_OVER = frozenset(("made", "overdrawn", "overfull", "promise", "indebted"))
_MISCOUNTED = frozenset(("uncounted", "overcounted", "unsettled"))

Around = Callable[[Any], Any]
Patch = tuple[Any, str, Around]
"""Whose function is replaced, its name, and what makes the faulty one of the real one."""


@dataclass(frozen=True)
class Mutant:
    """One rule broken: where DESIGN.md has it, what the books may say, and what a plan needs for it to matter.

    ``redundant`` says why nothing can notice it, where that is so.
    """

    name: str
    rule: str
    kinds: frozenset[str]
    patches: tuple[Patch, ...]
    needs: frozenset[str] = frozenset()
    redundant: str = ""

    @contextmanager
    def applied(self) -> Iterator[None]:
        """Break the rule for as long as this lasts."""
        with ExitStack() as stack:
            for owner, name, around in self.patches:
                stack.enter_context(mock.patch.object(owner, name, around(getattr(owner, name))))
            yield

    def matters_in(self, plan: Plan) -> bool:
        """Say whether a plan has what the rule is about."""
        asked = self.needs - {CASCADE, LIMITS, FLEETING, OFTEN, PATIENT, PARTING, GREEDY, LACKING, RESTLESS}
        if not asked <= plan.faults:
            return False
        if self.needs == asked:
            return True
        scenario = scenario_of(plan)
        slowest_ms = max(limit.fill_time_ms for limit in scenario.limits)
        has = {
            CASCADE: bool(scenario.parents),
            LIMITS: len(scenario.limits) > 1,
            OFTEN: OWN in plan.faults and scenario.own > _SELDOM,
            PATIENT: bool(scenario.habits.patient),
            PARTING: bool(scenario.habits.parting),
            GREEDY: bool(scenario.habits.greedy),
            LACKING: bool(scenario.habits.lacking),
            RESTLESS: bool(scenario.habits.restless_s),
            FLEETING: EXPIRY in plan.faults and SHARDS not in plan.faults and slowest_ms <= _FLEETING_MS,
        }
        return all(has[one] for one in self.needs - asked)


def _writes(change: weak.Change, *writers: str) -> tuple[Patch, ...]:
    """Return the patches that change what writers of a bucket write."""
    return tuple((bucket_writes, writer, weak.changed(change)) for writer in writers)


def _writer(name: str, around: Around) -> tuple[Patch, ...]:
    """Return the patch that makes a faulty writer of a bucket of the real one."""
    return ((bucket_writes, name, around),)


def _mutant(name: str, rule: str, kinds: frozenset[str] | str, patches: tuple[Patch, ...], *needs: str) -> Mutant:
    expected = frozenset((kinds,)) if isinstance(kinds, str) else kinds
    return Mutant(name, rule, expected, patches, frozenset(needs))


def _redundant(one: Mutant, reason: str) -> Mutant:
    return replace(one, redundant=reason)


_TAKES = (
    _mutant("take without its lower bound", "3.2 take", "overdrawn", _writes(weak.floorless, "take")),
    _mutant("take without its upper bound", "3.2 take", _OVER, _writes(weak.ceilingless, "take")),
    _mutant("take that sets without a floor", "3.2 take", _OVER, _writes(weak.baseless, "take")),
    _mutant("take that adds where it must set", "3.2 take", _OVER, _writes(weak.adding, "take")),
    _mutant("take that is not counted", "3.2 take", _MISCOUNTED, _writes(weak.uncounted, "take")),
    _mutant("create over another", "3.2 create", _OVER | _MISCOUNTED, _writes(weak.over_another, "create")),
    _mutant(
        "take resent without its nonce",
        "3.8 ambiguous take",
        "twice",
        ((bucket_writes, "sent_again", lambda real: lambda write, birth: write),),
        LOST_RESPONSE,
    ),
    _mutant(
        "any refusal taken for one's own",
        "3.8 ambiguous take",
        _MISCOUNTED,
        ((buckets, "_is_mine", lambda real: lambda write, old: True),),
        LOST_REQUEST,
    ),
)

_SETTLEMENTS = (
    _mutant("debit without its upper bound", "3.2 debit", _OVER, _writes(weak.ceilingless, "settle"), FLEETING),
    _mutant("debit that sets without a floor", "3.2 debit", _OVER, _writes(weak.baseless, "settle")),
    _mutant("debit that adds where it must set", "3.2 debit", _OVER, _writes(weak.adding, "settle")),
    _mutant(
        "debit not sent again",
        "3.8 ambiguous debit",
        _MISCOUNTED,
        ((Settler, "_settle_with", broken_rules.debit_sent_once),),
        LOST_REQUEST,
    ),
    _mutant(
        "credit sent again",
        "3.8 ambiguous credit",
        # A bucket gets back more than was taken from it in its lifetime.
        _MISCOUNTED | {"reborn"},
        ((Settler, "_settle_with", broken_rules.credit_sent_again),),
        LOST_RESPONSE,
    ),
    _mutant(
        "credit of a take that was not seen",
        "3.2 credit",
        _MISCOUNTED,
        ((BatchedClient, "take", broken_rules.credit_unseen),),
        LOST_REQUEST,
    ),
    _mutant(
        "credit to a limit that is gone",
        "3.2 credit",
        "limits",
        _writes(weak.without(AttributeExists), "settle"),
        LACKING,
    ),
    _mutant(
        "caller who has left keeps what was taken",
        "3.8 cancelled",
        _MISCOUNTED,
        ((TakeBatcher, "undo", broken_rules.nothing),),
        CANCEL,
    ),
    _mutant(
        "settlement repeated as a whole after a cancellation",
        "3.4 settle",
        _MISCOUNTED,
        ((BucketClient, "see_through", broken_rules.settled_again),),
        CANCEL_SETTLING,
    ),
    _mutant("lease that gives back twice", "3.2 credit", _MISCOUNTED, ((Lease, "_settle", broken_rules.given_twice),)),
)

_HOLDS = (
    _mutant("hold on nothing", "3.2 hold", _OVER | {"expiry"}, _writes(weak.unguarded, *HELD), CONFIG),
    _mutant("hold without bi", "3.2 hold", _OVER | {"expiry"}, _writes(weak.holding_less("bi"), *HELD), FLEETING),
    _mutant("hold without gn", "3.2 hold", _OVER | {"shards"}, _writes(weak.holding_less("gn"), *HELD), OFTEN),
)

_BIRTHS = (
    _mutant(
        "credit without its birth",
        "7 bi",
        "reborn",
        (
            *_writes(weak.of_updates(weak.without(Equals)), "settle"),
            (Settlement, "credits_reach", broken_rules.any_birth),
        ),
        DELETE,
    ),
    _mutant(
        "create that draws no birth", "7 bi", _OVER | {"reborn"}, _writer("create", broken_rules.one_birth), DELETE
    ),
    _mutant(
        "create resent with its birth",
        "7 bi",
        "reborn",
        ((bucket_writes, "sent_again", broken_rules.birth_kept),),
        DELETE,
        LATE,
    ),
    _mutant("split that drops the birth", "7 bi", "unborn", _writes(weak.unborn, "split"), SHARDS),
)

_COPIES = (
    _mutant(
        "copy that keeps its numbers",
        "4 copies",
        _MISCOUNTED | {"nonce", "twice", "reborn"},
        ((Nonces, "renew", lambda real: lambda self, *, restored: None),),
        COPY,
    ),
)

_REBASES = (
    _mutant("rebase without its lower bound", "3.2 rebase", _OVER, _writes(weak.floorless, "rebase"), OFTEN),
    _mutant("rebase without its upper bound", "3.2 rebase", _OVER, _writes(weak.ceilingless, "rebase"), OFTEN),
    _mutant("rebase that sets without a floor", "3.2 rebase", _OVER, _writes(weak.baseless, "rebase"), OFTEN),
    _mutant("rebase without its hold", "3.2 rebase", _OVER, _writes(weak.unguarded, "rebase"), OFTEN),
    _mutant("rebase that refills", "3.2 rebase", _OVER, _writer("rebase", weak.refilled), CONFIG),
    _mutant("rebase that moves rf back", "3.2 rebase", _OVER, _writes(weak.moved_back, "rebase"), CONFIG),
    _mutant("limit dropped though not full", "3.2 rebase", "dropped", _writes(weak.forgetful, "rebase"), CONFIG),
    _mutant(
        "limit dropped without its floor",
        "3.2 rebase",
        "dropped",
        _writer("rebase", broken_rules.dropped_without_floor),
        OFTEN,
        LIMITS,
    ),
    _mutant("limit added again full", "3.2 rebase", _OVER, _writer("rebase", weak.refilled_if_dormant), CONFIG),
    _redundant(
        _mutant(
            "limit added though it is there",
            "3.2 rebase",
            _OVER,
            _writes(weak.without(AttributeAbsent), "rebase"),
            CONFIG,
        ),
        "nobody adds a limit but a rebase, and every rebase raises gn",
    ),
)

_EXPIRIES = (
    _mutant("debit that leaves the expiry", "3.2 TTL", "expiry", _writes(weak.keeping_expiry, "settle"), FLEETING),
    _mutant(
        "take that dates a bucket in debt",
        "3.2 TTL",
        "expiry",
        ((acquire, "solvency", broken_rules.always_solvent),),
        FLEETING,
        LIMITS,
    ),
    _mutant(
        "take that sees no debt coming",
        "3.2 TTL",
        "expiry",
        _writer("take", broken_rules.without_solvency),
        FLEETING,
        LIMITS,
    ),
    _mutant(
        "rebase that dates a bucket in debt",
        "3.2 TTL",
        "expiry",
        (*_writer("rebase", broken_rules.without_solvent_parts), (rebase, "_expiry", broken_rules.dated_in_debt)),
        FLEETING,
        PARTING,
    ),
    _mutant("expiry that does not wait until it is full", "3.2 TTL", "expiry", broken_rules.SOON, FLEETING),
    _mutant(
        "rebase that dates the expiry before the baseline",
        "3.2 TTL",
        "expiry",
        ((rebase, "_expiry", broken_rules.dated_by_the_clock),),
        STEP,
        OWN,
    ),
    _mutant("shard of several that expires", "3.2 TTL", "expiry", _writer("take", broken_rules.dated_shard), SHARDS),
    _mutant(
        "split that leaves the expiry", "3.5 split", "expiry", _writes(weak.keeping_expiry, "split"), SHARDS, EXPIRY
    ),
)

_SPLITS = (
    _mutant(
        "split that gives both halves the whole",
        "3.5 split",
        _OVER,
        _writer("split", weak.both_whole),
        SHARDS,
    ),
    _mutant("split with a new half that is full", "3.5 split", _OVER, _writes(weak.new_half_full, "split"), SHARDS),
    _mutant(
        "split without its lower bound", "3.5 split", _OVER, _writer("split", broken_rules.split_floorless), SHARDS
    ),
    _mutant(
        "split without its upper bound in debt",
        "3.5 split",
        _OVER,
        _writer("split", broken_rules.split_in_debt),
        GREEDY,
    ),
    _mutant("split without its upper bound", "3.5 split", _OVER, _writes(weak.ceilingless, "split"), SHARDS),
    _mutant("split that sets without a floor", "3.5 split", _OVER, _writes(weak.baseless, "split"), SHARDS),
    _mutant("split without its hold", "3.5 split", _OVER | {"shards"}, _writes(weak.unguarded, "split"), SHARDS),
    _redundant(
        _mutant(
            "split over another shard",
            "3.5 split",
            _OVER | {"shards"},
            _writes(weak.of_puts(weak.over_another), "split"),
            SHARDS,
        ),
        "the shard it is split off is held, and as long as that has its count there is no such shard",
    ),
    _mutant("split without a new half", "3.5 split", "shards", _writer("split", weak.only_first), SHARDS),
)

_MERGES = (
    _mutant("merge without its upper bound", "3.5 merge", _OVER, _writes(weak.ceilingless, "merge"), SHARDS),
    _mutant("merge that sets without a floor", "3.5 merge", _OVER, _writes(weak.baseless, "merge"), SHARDS),
    _mutant(
        "merge that deletes what was not seen",
        "3.5 merge",
        _OVER,
        _writes(weak.of_deletes(weak.without(Ranges)), "merge"),
        SHARDS,
    ),
    _mutant("merge without the delete", "3.5 merge", _OVER | {"shards"}, _writer("merge", weak.only_first), SHARDS),
    _mutant("merge without its hold", "3.5 merge", _OVER | {"shards"}, _writes(weak.unguarded, "merge"), SHARDS, OFTEN),
    _mutant("merge that moves rf back", "3.5 merge", _OVER, _writes(weak.moved_back, "merge"), SHARDS),
)

_TRANSACTIONS = (
    _mutant(
        "take across by what was seen",
        "3.5 take across",
        _OVER,
        ((ShardClient, "commit", broken_rules.unconditional),),
        SHARDS,
    ),
    _mutant(
        "transaction sent again with a new token",
        "3.8 transaction",
        _OVER | _MISCOUNTED | {"twice"},
        ((Server, "prepare", broken_rules.forgetting_tokens),),
        LOST_RESPONSE,
        SHARDS,
    ),
    _mutant(
        "credit across shards given in another way while in doubt",
        "3.8 transaction",
        # A bucket gets back more than was taken from it in its lifetime.
        _MISCOUNTED | _OVER | {"reborn"},
        ((ShardClient, "commit", broken_rules.given_in_doubt),),
        RESTLESS,
    ),
)

_TOP_UPS = (
    _mutant(
        "top-up though others have written",
        "3.3 top-up",
        _OVER,
        ((Creation, "is_certain", broken_rules.top_up_in_company),),
    ),
    _mutant(
        "top-up from before the creation", "3.3 top-up", _OVER, ((top_ups, "top_up", broken_rules.top_up_too_early),)
    ),
)

_CLOCKS = (
    _mutant("single wrong date trusted", "3.7", _OVER, ((clock, "judged", broken_rules.date_trusted),), WRONG_DATE),
    _mutant("local clock trusted", "3.7", _OVER, ((Port, "__init__", broken_rules.local_clock),), SKEW),
    _mutant("only the early end of the time", "3.7", _OVER, ((Port, "__init__", broken_rules.one_end(0)),)),
    _mutant("only the late end of the time", "3.7", _OVER, ((Port, "__init__", broken_rules.one_end(1)),)),
)

_OTHERS = (
    _mutant(
        "usage added without its marker's condition",
        "3.8 stream",
        "usage",
        ((usage_item, "add", weak.changed(broken_rules.unconditioned)),),
        USAGE,
    ),
    _mutant(
        "usage marker not advanced", "3.8 stream", "usage", ((usage_item, "add", broken_rules.marker_kept),), USAGE
    ),
    _mutant(
        "usage counted as often as it is told",
        "3.8 stream",
        "usage",
        ((apply, "addition", lambda real: lambda account, changes, counted: real(account, changes, None)),),
        USAGE,
    ),
    _mutant(
        "other side not credited back", "3.4", _MISCOUNTED, ((cascade, "give_back", broken_rules.nothing),), CASCADE
    ),
    _mutant(
        "parent's fresh view ignored",
        "3.4",
        "wasted",
        ((BucketClient, "rejected_above", lambda real: lambda self, terms, resource, consume: None),),
        CASCADE,
    ),
)

MUTANTS = (
    *_TAKES,
    *_SETTLEMENTS,
    *_HOLDS,
    *_BIRTHS,
    *_COPIES,
    *_REBASES,
    *_EXPIRIES,
    *_SPLITS,
    *_MERGES,
    *_TRANSACTIONS,
    *_TOP_UPS,
    *_CLOCKS,
    *_OTHERS,
)


def mutant(name: str) -> Mutant:
    """Return a mutant by its name."""
    for one in MUTANTS:
        if one.name == name:
            return one
    raise SystemExit(f"there is no mutation {name!r}; --list tells which there are")
