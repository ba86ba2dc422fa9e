"""Invalid input: each raises an error that names field, value and reason, and nothing is written."""  # generated from _async by tools/mirror.py; do not edit

from collections import OrderedDict, UserDict

import pytest

from zae_limiter import InvalidIdentifierError, InvalidNameError, Limit, SyncRateLimiter, ValidationError
from zae_limiter._sync.limiter.resolve import NoLimitsInForceError

from .clients import buckets_in, everything_in, take

LIMITS = [Limit.per_minute("rpm", 60), Limit.per_minute("tpm", 6_000)]


class Text(str):
    __slots__ = ()


class Number(int):
    pass


class MisprintedName(str):
    """Compares as one name and prints as another."""

    __slots__ = ()

    def __str__(self):
        return "victim"

    def __format__(self, spec):
        return "victim"


class ChangingList(list):
    """Yields one list when it is checked and another when it is used."""

    def __init__(self, checked, used):
        super().__init__(checked)
        self._turns = [checked]
        self._used = used

    def __iter__(self):
        return iter(self._turns.pop() if self._turns else self._used)


class UncheckedLimit(Limit):
    __slots__ = ()

    def __post_init__(self):
        """Check nothing."""


BAD_IDS = {
    "hash": "a#b",
    "empty": "",
    "1 MB": "x" * 2**20,
    "too long": "x" * 257,
    "unicode": "naïve",
    "emoji": "user-😀",
    "space": "a b",
    "newline": "user-1\n",
    "audit id": "$SYSTEM",
    "leading dash": "-a",
    "leading at": "@a",
    "nul": "a\0b",
    "surrogate": "a\ud800",
    "none": None,
    "int": 1,
    "float": 1.5,
    "nan": float("nan"),
    "bool": True,
    "bytes": b"user-1",
    "list": ["user-1"],
    "dict": {"user": 1},
    "subclass": Text("user-1"),
}
BAD_RESOURCES = {
    **{name: value for name, value in BAD_IDS.items() if name != "leading at"},
    "too long": "x" * 129,
    "leading digit": "4gpt",
    "leading slash": "/a",
    "default": "_default_",
}
BAD_AMOUNTS = {
    "negative": -1,
    "float": 1.0,
    "nan": float("nan"),
    "infinite": float("inf"),
    "bool": True,
    "none": None,
    "string": "1",
    "bytes": b"1",
    "list": [1],
    "complex": 1j,
    "subclass": Number(1),
    "more than an amount may be": 10**18 + 1,
    "huge": 10**5_000,
    "hugely negative": -(10**5_000),
}
BAD_CONSUMES = {
    "empty": {},
    "none": None,
    "list": ["rpm"],
    "pairs": [("rpm", 1)],
    "string": "rpm",
    "int": 1,
    "subclass": OrderedDict(rpm=1),
    "lookalike": UserDict(rpm=1),
    "generator": (name for name in ["rpm"]),
}


def cases(values):
    return pytest.mark.parametrize("value", list(values.values()), ids=list(values))


@pytest.fixture
def limiter(repo):
    opened = SyncRateLimiter(repo)
    opened.set_system_defaults(LIMITS)
    return opened


@pytest.fixture
def unchanged(repo, limiter):
    """Check that the test writes nothing."""
    before = everything_in(repo)
    yield
    assert before == everything_in(repo)


def calls_that_name_a_bucket(limiter, entity_id, resource):
    """Return every call that names a bucket."""
    return {
        "acquire": limiter.acquire(entity_id, resource, {"rpm": 1}).__enter__,
        "acquire by own limits": limiter.acquire(entity_id, resource, {"rpm": 1}, LIMITS).__enter__,
        "acquire, letting through": limiter.acquire(entity_id, resource, {"rpm": 1}, None, "allow").__enter__,
        "available": lambda: limiter.available(entity_id, resource),
        "time until available": lambda: limiter.time_until_available(entity_id, resource, {"rpm": 1}),
        "resolve": lambda: limiter.resolve_limits(entity_id, resource),
    }


def refusals(calls, error):
    """Return field and value of the error that each call raises; every error has a reason."""
    found = []
    for name, call in calls.items():
        with pytest.raises(error) as caught:
            call()
        assert error is type(caught.value), name
        assert caught.value.reason
        assert len(str(caught.value)) < 1_000
        found.append((caught.value.field, caught.value.value))
    return found


@cases(BAD_IDS)
def test_invalid_entity_id_is_refused_by_every_call(limiter, unchanged, value):
    """Every call that takes an entity id checks it."""
    calls = calls_that_name_a_bucket(limiter, value, "gpt-4") | {
        "set": lambda: limiter.set_limits(value, LIMITS),
        "get": lambda: limiter.get_limits(value),
    }

    found = refusals(calls, InvalidIdentifierError)

    assert {"entity_id"} == {field for field, _ in found}
    assert all(told is value for _, told in found)


@cases(BAD_RESOURCES)
def test_invalid_resource_is_refused_by_every_call(limiter, unchanged, value):
    """Every call that takes a resource checks it."""
    calls = calls_that_name_a_bucket(limiter, "user-1", value) | {
        "set of a resource": lambda: limiter.set_resource_defaults(value, LIMITS),
        "get of a resource": lambda: limiter.get_resource_defaults(value),
    }
    if value != "_default_":
        calls["set of an entity"] = lambda: limiter.set_limits("user-1", LIMITS, value)
        calls["get of an entity"] = lambda: limiter.get_limits("user-1", value)

    found = refusals(calls, InvalidNameError)

    assert {"resource"} == {field for field, _ in found}
    assert all(told is value for _, told in found)


@pytest.mark.parametrize("known", [False, True])
@cases(BAD_AMOUNTS)
def test_consume_amount_that_is_no_valid_integer_is_refused(repo, limiter, value, known):
    """The check is the same for a cold and a cached bucket, next to a limit with a valid amount."""
    if known:
        take(limiter, {"rpm": 1})
    before = everything_in(repo)

    found = refusals(
        {
            "acquire": limiter.acquire("user-1", "gpt-4", {"tpm": 1, "rpm": value}).__enter__,
            "own limits": limiter.acquire("user-1", "gpt-4", {"tpm": 1, "rpm": value}, LIMITS).__enter__,
            "waiting": lambda: limiter.time_until_available("user-1", "gpt-4", {"tpm": 1, "rpm": value}),
        },
        ValidationError,
    )

    assert {"consume[rpm]", "needed[rpm]"} == {field for field, _ in found}
    assert all(told is value for _, told in found)
    assert before == everything_in(repo)


def test_acquire_of_more_than_the_capacity_raises_with_limit_and_capacity(limiter, unchanged):
    """Such a request can never be admitted, so it is a validation error too."""
    with pytest.raises(ValidationError, match=r"capacity of limit 'rpm' \(60\)"):
        take(limiter, {"rpm": 61})


@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("name", ["unknown", "wcu", "RPM", "", "rpm ", None, 1, ("rpm",), 1.5, frozenset()], ids=str)
def test_acquire_of_an_unknown_limit_raises_with_the_limits_in_force(repo, limiter, name, known):
    """The error lists the limits that can be consumed."""
    if known:
        take(limiter, {"rpm": 1})
    before = everything_in(repo)

    with pytest.raises(ValidationError, match="rpm, tpm") as caught:
        take(limiter, {"rpm": 1, name: 1})

    assert ("consume", name) == (caught.value.field, caught.value.value)
    assert before == everything_in(repo)


@cases(BAD_CONSUMES)
def test_consume_that_is_no_plain_dict_with_a_limit_is_refused(limiter, unchanged, value):
    """A subclass of dict could return something else at each access."""
    with pytest.raises(ValidationError) as caught:
        limiter.acquire("user-1", "gpt-4", value).__enter__()

    assert ("consume", True) == (caught.value.field, caught.value.value is value)


@cases({name: value for name, value in BAD_CONSUMES.items() if name not in ("empty", "subclass", "lookalike")})
def test_time_until_available_of_no_dict_of_limits_is_refused(limiter, unchanged, value):
    """The argument is a dict of limits, as for an acquire."""
    with pytest.raises(ValidationError):
        limiter.time_until_available("user-1", "gpt-4", value)


def test_acquire_without_any_configured_limits_raises(repo):
    """The error says how to set limits; a request is never silently unlimited."""
    limiter = SyncRateLimiter(repo)
    before = everything_in(repo)

    found = refusals(
        {
            "acquire": limiter.acquire("user-1", "gpt-4", {"rpm": 1}).__enter__,
            "acquire again": limiter.acquire("user-1", "gpt-4", {"rpm": 1}).__enter__,
            "letting through": limiter.acquire("user-1", "gpt-4", {"rpm": 1}, None, "allow").__enter__,
            "available": lambda: limiter.available("user-1", "gpt-4"),
            "waiting": lambda: limiter.time_until_available("user-1", "gpt-4", {"rpm": 1}),
        },
        NoLimitsInForceError,
    )

    assert [("limits", None)] * 5 == found
    assert before == everything_in(repo)


@pytest.mark.parametrize("value", ["deny", "", "ALLOW", 1, True, [], b"allow"], ids=str)
def test_on_unavailable_other_than_allow_or_block_is_refused(limiter, unchanged, value):
    """A misspelt value must not select either behaviour."""
    found = refusals(
        {
            "acquire": limiter.acquire("user-1", "gpt-4", {"rpm": 1}, on_unavailable=value).__enter__,
            "set": lambda: limiter.set_system_defaults(LIMITS, value),
        },
        ValidationError,
    )

    assert [("on_unavailable", value)] * 2 == found


@pytest.mark.parametrize("value", [1, b"alice", "x" * 2**20, ["alice"], "a\ud800", Text("alice")], ids=type)
def test_principal_that_is_no_plain_short_string_is_refused(limiter, unchanged, value):
    """The principal is stored, so it must be a valid string."""
    found = refusals(
        {
            "entity": lambda: limiter.set_limits("user-1", LIMITS, principal=value),
            "resource": lambda: limiter.set_resource_defaults("gpt-4", LIMITS, value),
            "system": lambda: limiter.set_system_defaults(LIMITS, principal=value),
        },
        ValidationError,
    )

    assert {"principal"} == {field for field, _ in found}


def test_str_subclass_that_prints_as_another_id_is_refused(limiter):
    """Only plain strings are ids, even if an equal one is already cached."""
    take(limiter, {"rpm": 1}, "victim")
    limiter.available("user-1", "gpt-4")

    with pytest.raises(InvalidIdentifierError):
        take(limiter, {"rpm": 50}, MisprintedName("user-1"))

    assert {"rpm": 59, "tpm": 6_000} == limiter.available("victim", "gpt-4")


def test_limits_list_is_read_once_so_that_the_checked_limits_are_used(repo, limiter):
    """A list whose content changes after the check has no effect."""
    other = UncheckedLimit("rpm", -5, 1, 1)

    limiter.acquire("user-1", "gpt-4", {"tpm": 1}, ChangingList(LIMITS, [other, LIMITS[1]])).__enter__()

    assert [LIMITS[0].capacity_milli] == [bucket["b_rpm_cp"] for bucket in buckets_in(repo)]


def test_limit_subclass_without_checks_is_refused(repo, limiter):
    """A subclass of Limit may hold any value."""
    with pytest.raises(ValidationError):
        limiter.acquire("user-1", "gpt-4", {"tpm": 1}, [UncheckedLimit("rpm", -5, 1, 1), LIMITS[1]]).__enter__()

    assert [] == buckets_in(repo)


def test_bucket_is_intact_after_every_kind_of_invalid_request(repo, limiter):
    """A valid request after any invalid one finds a valid bucket."""
    take(limiter, {"rpm": 1})
    for amount in BAD_AMOUNTS.values():
        with pytest.raises(ValidationError):
            take(limiter, {"rpm": amount})
    for consume in BAD_CONSUMES.values():
        with pytest.raises(ValidationError):
            limiter.acquire("user-1", "gpt-4", consume).__enter__()

    take(limiter, {"rpm": 1})

    assert {"rpm": 58, "tpm": 6_000} == limiter.available("user-1", "gpt-4")
    assert 2_000 == buckets_in(repo)[0]["b_rpm_tc"]
