"""Invalid limits, and sets of limits that one bucket cannot hold: they are refused and nothing is written."""

import pytest

from zae_limiter import InvalidNameError, Limit, RateLimiter, ValidationError

from .clients import everything_in

GOOD = Limit.per_minute("rpm", 60)
MANY = [Limit.per_second(f"l{number}", 1) for number in range(33)]

BAD_NUMBERS = {
    "zero": 0,
    "negative": -1,
    "float": 1.0,
    "nan": float("nan"),
    "infinite": float("inf"),
    "bool": True,
    "none": None,
    "string": "10",
    "bytes": b"10",
    "list": [10],
    "huge": 10**18 + 1,
    "absurd": 10**5_000,
}
BAD_NAMES = {
    "hash": "a#b",
    "empty": "",
    "1 MB": "x" * 2**20,
    "too long": "x" * 65,
    "unicode": "größe",
    "space": "a b",
    "newline": "rpm\n",
    "slash": "a/b",
    "digit": "1rpm",
    "reserved": "wcu",
    "attribute of a usage record": "total_events",
    "key": "PK",
    "sequence marker": "s_1",
    "none": None,
    "int": 1,
    "bool": True,
    "bytes": b"rpm",
    "list": ["rpm"],
}
BAD_SETS = {
    "empty list": [],
    "empty tuple": (),
    "duplicate": [GOOD, Limit.per_second("tpm", 1), Limit.per_hour("rpm", 5)],
    "the same twice": [GOOD, GOOD],
    "too many": MANY,
    "a limit alone": GOOD,
    "a string": "rpm",
    "a dict": {"rpm": GOOD},
    "a set": {GOOD},
    "a number": 5,
    "a bool": True,
    "strings": ["rpm"],
    "dicts": [GOOD.to_dict()],
    "none inside": [GOOD, None],
    "lists inside": [[GOOD]],
}


def cases(values):
    return pytest.mark.parametrize("value", list(values.values()), ids=list(values))


@pytest.fixture
async def limiter(repo):
    return RateLimiter(repo)


@pytest.fixture
async def unchanged(repo, limiter):
    """Check that the test writes nothing."""
    before = everything_in(repo)
    yield
    assert before == everything_in(repo)


def calls_that_take_limits(limiter, limits):
    """Return every call that takes limits."""
    return [
        lambda: limiter.acquire("user-1", "gpt-4", {"rpm": 1}, limits).__aenter__(),
        lambda: limiter.acquire("user-1", "gpt-4", {"rpm": 1}, limits, "allow").__aenter__(),
        lambda: limiter.available("user-1", "gpt-4", limits),
        lambda: limiter.time_until_available("user-1", "gpt-4", {"rpm": 1}, limits),
        lambda: limiter.set_limits("user-1", limits),
        lambda: limiter.set_limits("user-1", limits, "gpt-4"),
        lambda: limiter.set_resource_defaults("gpt-4", limits),
        lambda: limiter.set_system_defaults(limits),
    ]


@cases(BAD_SETS)
async def test_limits_that_are_no_list_of_uniquely_named_limits_are_refused(limiter, unchanged, value):
    """Every call that takes limits checks them."""
    fields = []
    for use in calls_that_take_limits(limiter, value):
        with pytest.raises(ValidationError) as caught:
            await use()
        fields.append(caught.value.field)

    assert ["limits"] * 8 == fields


async def test_a_generator_of_limits_is_refused(limiter, unchanged):
    """A generator can be read only once, and limits are read several times."""
    fields = []
    for position in range(8):
        with pytest.raises(ValidationError) as caught:
            await calls_that_take_limits(limiter, (limit for limit in [GOOD]))[position]()
        fields.append(caught.value.field)

    assert ["limits"] * 8 == fields


async def test_setting_none_as_limits_is_refused(limiter, unchanged):
    """Only calls that read limits from the store may leave them out."""
    for use in calls_that_take_limits(limiter, None)[4:]:
        with pytest.raises(ValidationError):
            await use()


async def test_bucket_holds_the_maximum_of_32_limits(limiter):
    """All limits work up to the maximum."""
    limits = MANY[:32]
    async with limiter.acquire("user-1", "gpt-4", {limit.name: 1 for limit in limits}, limits):
        pass

    assert {0} == set((await limiter.available("user-1", "gpt-4", limits)).values())


@cases(BAD_NAMES)
def test_limit_with_an_invalid_name_is_refused_by_every_constructor(value):
    """Every constructor checks the name."""
    for make in (Limit.per_second, Limit.per_minute, Limit.per_hour, Limit.per_day):
        with pytest.raises(InvalidNameError) as caught:
            make(value, 10)
        assert ("limit name", True) == (caught.value.field, caught.value.value is value)
    with pytest.raises(InvalidNameError):
        Limit.custom(value, 10, 10, 60)
    with pytest.raises(InvalidNameError):
        Limit(value, 10, 10, 60)
    with pytest.raises(InvalidNameError):
        Limit.from_dict(GOOD.to_dict() | {"name": value})


@cases(BAD_NUMBERS)
@pytest.mark.parametrize("field", ["capacity", "refill_amount", "refill_period_seconds"])
def test_limit_with_a_number_that_is_no_positive_integer_is_refused(field, value):
    """The rule holds for capacity, refill amount and period."""
    numbers = {"capacity": 10, "refill_amount": 10, "refill_period_seconds": 60} | {field: value}

    for make in (Limit, Limit.custom):
        with pytest.raises(ValidationError) as caught:
            make("rpm", **numbers)
        assert (field, True) == (caught.value.field, caught.value.value is value)
        assert len(str(caught.value)) < 1_000


@cases(BAD_NUMBERS)
def test_limit_rate_that_is_no_positive_integer_is_refused(value):
    """Every constructor checks the rate."""
    for make in (Limit.per_second, Limit.per_minute, Limit.per_hour, Limit.per_day):
        with pytest.raises(ValidationError) as caught:
            make("rpm", value)
        assert ("rate", True) == (caught.value.field, caught.value.value is value)


@cases({name: value for name, value in BAD_NUMBERS.items() if name != "none"} | {"below the rate": 9})
def test_limit_burst_that_is_no_integer_of_at_least_the_rate_is_refused(value):
    """Every constructor checks the burst."""
    for make in (Limit.per_second, Limit.per_minute, Limit.per_hour, Limit.per_day):
        with pytest.raises(ValidationError) as caught:
            make("rpm", 10, burst=value)
        assert ("burst", True) == (caught.value.field, caught.value.value is value)
