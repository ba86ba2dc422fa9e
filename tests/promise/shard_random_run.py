"""One random run of a sharded bucket; the same seed gives the same run."""

from random import Random

from tests.promise.random_run import NAMES, some_amount, some_limits, some_scenario
from tests.promise.shard_world import ShardWorld

_STEPS_MS = (0, 0, 1, 2, 7, 50, 333, 1_000, 5_000, 60_000, 3_600_000)


def run_random(seed: int, steps: int) -> ShardWorld:
    """Run one world for this many steps. Each step is drawn from the seed."""
    random = Random(seed)
    world = ShardWorld(some_scenario(random))
    prompt = random.choice((0.4, 0.8))
    growing = random.choice((0.3, 0.5, 0.7))
    for _ in range(steps):
        who = random.randrange(len(world.clients))
        _move(world, random, who, growing)
        if random.random() < prompt:
            world.deliver(who, random.choice(("answered", "answered", "answered", "lost")))
    return world


def _move(world: ShardWorld, random: Random, who: int, growing: float) -> None:
    kind = random.random()
    shard = random.choice(sorted(world.clients[who].views) or [0])
    consume = {name: some_amount(random, name) for name in random.sample(NAMES, random.randint(1, 3))}
    if kind < 0.25:
        world.take(who, shard, consume)
    elif kind < 0.35:
        world.take_across(who, consume)
    elif kind < 0.5:
        _settle(world, random, who, shard)
    elif kind < 0.65:
        (world.split if random.random() < growing else world.merge)(who, shard)
    elif kind < 0.8:
        few = random.sample(range(8), 2)
        world.look(who, range(8) if random.random() < 0.7 else few)
    elif kind < 0.95:
        world.tick(random.choice(_STEPS_MS))
    else:
        _disturb(world, random, who)


def _settle(world: ShardWorld, random: Random, who: int, shard: int) -> None:
    name = random.choice(NAMES)
    debt = random.randint(0, random.choice((1_000, 5_000, 30_000)))
    kind = random.random()
    if kind < 0.4:
        world.credit(who, shard, name)
    elif kind < 0.7:
        world.debit(who, name, debt)
    else:
        world.debit_one(who, shard, (name, debt))


def _disturb(world: ShardWorld, random: Random, who: int) -> None:
    kind = random.random()
    if kind < 0.3:
        world.configure(some_limits(random))
    elif kind < 0.75:
        world.read_config(who)
    elif kind < 0.85:
        world.crash(who)
    else:
        world.idle_to_expiry()
