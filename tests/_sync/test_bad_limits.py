"""Limits that cannot be, and sets of limits that cannot stand in one bucket: refused, and nothing is written."""  # generated from _async by tools/mirror.py; do not edit

import pytest

from zae_limiter import InvalidNameError, Limit, SyncRateLimiter, ValidationError

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
def limiter(repo):
    return SyncRateLimiter(repo)


@pytest.fixture
def unchanged(repo, limiter):
    """Whatever the test does, nothing is written."""
    before = everything_in(repo)
    yield
    assert before == everything_in(repo)


def every_use_of(limiter, limits):
    """Every verb that takes limits."""
    return [
        lambda: limiter.acquire("user-1", "gpt-4", {"rpm": 1}, limits).__enter__(),
        lambda: limiter.acquire("user-1", "gpt-4", {"rpm": 1}, limits, "allow").__enter__(),
        lambda: limiter.available("user-1", "gpt-4", limits),
        lambda: limiter.time_until_available("user-1", "gpt-4", {"rpm": 1}, limits),
        lambda: limiter.set_limits("user-1", limits),
        lambda: limiter.set_limits("user-1", limits, "gpt-4"),
        lambda: limiter.set_resource_defaults("gpt-4", limits),
        lambda: limiter.set_system_defaults(limits),
    ]


@cases(BAD_SETS)
def test_limits_are_a_list_of_limits_each_of_its_own_name(limiter, unchanged, value):
    """Wherever limits are passed."""
    fields = []
    for use in every_use_of(limiter, value):
        with pytest.raises(ValidationError) as caught:
            use()
        fields.append(caught.value.field)

    assert ["limits"] * 8 == fields


def test_a_generator_of_limits_is_refused(limiter, unchanged):
    """It could be read only once, and limits are read more often."""
    fields = []
    for position in range(8):
        with pytest.raises(ValidationError) as caught:
            every_use_of(limiter, (limit for limit in [GOOD]))[position]()
        fields.append(caught.value.field)

    assert ["limits"] * 8 == fields


def test_stored_limits_cannot_be_none(limiter, unchanged):
    """Only an acquire may leave them out."""
    for use in every_use_of(limiter, None)[4:]:
        with pytest.raises(ValidationError):
            use()


def test_the_most_limits_there_may_be_stand_in_one_bucket(limiter):
    """Up to that number all work."""
    limits = MANY[:32]
    with limiter.acquire("user-1", "gpt-4", {limit.name: 1 for limit in limits}, limits):
        pass

    assert {0} == set((limiter.available("user-1", "gpt-4", limits)).values())


@cases(BAD_NAMES)
def test_a_limit_is_named_by_the_rules(value):
    """By every way to make one."""
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
def test_the_numbers_of_a_limit_are_whole_and_above_zero(field, value):
    """Capacity, rate and period alike."""
    numbers = {"capacity": 10, "refill_amount": 10, "refill_period_seconds": 60} | {field: value}

    for make in (Limit, Limit.custom):
        with pytest.raises(ValidationError) as caught:
            make("rpm", **numbers)
        assert (field, True) == (caught.value.field, caught.value.value is value)
        assert len(str(caught.value)) < 1_000


@cases(BAD_NUMBERS)
def test_a_rate_is_a_whole_number_above_zero(value):
    """By every way to make one."""
    for make in (Limit.per_second, Limit.per_minute, Limit.per_hour, Limit.per_day):
        with pytest.raises(ValidationError) as caught:
            make("rpm", value)
        assert ("rate", True) == (caught.value.field, caught.value.value is value)


@cases({name: value for name, value in BAD_NUMBERS.items() if name != "none"} | {"below the rate": 9})
def test_a_burst_is_a_whole_number_of_at_least_the_rate(value):
    """By every way to make one."""
    for make in (Limit.per_second, Limit.per_minute, Limit.per_hour, Limit.per_day):
        with pytest.raises(ValidationError) as caught:
            make("rpm", 10, burst=value)
        assert ("burst", True) == (caught.value.field, caught.value.value is value)
