"""One random run of one bucket; the same seed gives the same run."""

from random import Random

from tests.promise.world import Scenario, World
from zae_limiter.core.limit import Limit

NAMES = ("fast", "odd", "slow")
_STEPS_MS = (0, 0, 1, 1, 2, 7, 50, 333, 1_000, 5_000, 60_000, 3_600_000)


def some_limit(random: Random, name: str) -> Limit:
    """Return a limit of one of three kinds: it fills in a second, in hours, or in rounded parts."""
    if name == "fast":
        return Limit(name, random.randint(1, 8), random.randint(1, 8), 1)
    if name == "slow":
        return Limit(name, random.randint(1, 5), random.randint(1, 3), random.choice((3_600, 7_200)))
    return Limit(name, random.randint(1, 90), random.randint(1, 7), random.choice((7, 13)))


def some_limits(random: Random) -> tuple[Limit, ...]:
    """Return one to three limits."""
    return tuple(some_limit(random, name) for name in random.sample(NAMES, random.randint(1, 3)))


def some_scenario(random: Random) -> Scenario:
    """Return a scenario, mostly with exact clocks, sometimes with wide bounds, clock errors and delays."""
    skew = random.choice((0, 0, 0, 5, 400))
    clocks = []
    for _ in range(random.choice((1, 2, 3, 3))):
        low = random.randint(-skew, skew)
        clocks.append((low, random.choice((low, random.randint(low, skew)))))
    delay_ms = random.choice((0, 0, 3, 1_000))
    limits = some_limits(random)
    return Scenario(limits, tuple(clocks), delay_ms, expires=random.random() < 0.8, trust_ms=random.choice((0, 1000)))


def some_amount(random: Random, name: str) -> int:
    """Return a small amount, 0, or the largest."""
    return random.choice((0, 1, 1, 1, 2, 3, random.randint(0, 9), 100 if name != "odd" else random.randint(1, 90)))


def run_random(seed: int, steps: int) -> World:
    """Run one world for this many steps. Each step is drawn from the seed."""
    random = Random(seed)
    world = World(some_scenario(random))
    busy = random.choice((0.2, 0.6))
    for _ in range(steps):
        _move(world, random, busy)
    return world


def _move(world: World, random: Random, busy: float) -> None:
    who = random.randrange(len(world.clients))
    kind = random.random()
    if kind < 0.35:
        names = random.sample(NAMES, random.randint(1, 3))
        own = some_limits(random) if random.random() < 0.08 else None
        world.ask(who, {name: some_amount(random, name) for name in names}, own)
        if random.random() > busy:
            world.finish(who)
    elif kind < 0.65:
        _work(world, random, who)
    elif kind < 0.78:
        _settle(world, random, who, busy)
    elif kind < 0.93:
        world.tick(random.choice(_STEPS_MS))
    else:
        _disturb(world, random, who)


def _work(world: World, random: Random, who: int) -> None:
    job = world.clients[who].job
    if job is not None and job.sent is not None:
        world.deliver(who, random.choice(("answered", "answered", "answered", "answered", "lost", "crash")))
    elif job is not None:
        world.decide(who)


def _settle(world: World, random: Random, who: int, busy: float) -> None:
    if not world.leases:
        return
    lease = world.leases.pop(random.randrange(len(world.leases)))
    most = random.choice((1_000, 5_000, 50_000))
    way = random.random()
    if way < 0.4:
        world.settle(who, lease, {name: -held for name, held in lease.held.items()})
    else:
        world.settle(who, lease, {name: random.randint(-1, 1) * random.randint(0, most) for name in lease.held})
    if random.random() > busy:
        world.finish(who)


def _disturb(world: World, random: Random, who: int) -> None:
    kind = random.random()
    if kind < 0.35:
        world.configure(some_limits(random), expires=random.random() < 0.8)
    elif kind < 0.4:
        world.restore()
    elif kind < 0.6:
        world.read_config(who)
    elif kind < 0.7:
        world.crash(who)
    elif kind < 0.85:
        world.expire()
    else:
        world.idle_to_expiry()
