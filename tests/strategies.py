"""Hypothesis strategies: valid names, limits and times, and invalid values."""

import string

from hypothesis import strategies as st

from zae_limiter.core.config import ConfigRecord, ConfigRecords, EntityFacts
from zae_limiter.core.limit import MAX_PERIOD_SECONDS, Limit
from zae_limiter.core.names import MAX_AMOUNT, USAGE_ATTRIBUTES
from zae_limiter.core.status import OnUnavailable

_ALNUM = string.ascii_letters + string.digits


def _names(first: str, rest: str, longest: int, least: int = 1) -> st.SearchStrategy[str]:
    tails = st.text(st.sampled_from(rest), min_size=least - 1, max_size=longest - 1)
    return st.builds(str.__add__, st.sampled_from(first), tails)


_SIGNS = "_-./:@+|="
_PARTS = [*_SIGNS, "a", "0", "BUCKET", "ENTITY", "SYSTEM", "AUDIT", "CONFIG", "RESOURCE"]


def _keylike(first: str) -> st.SearchStrategy[str]:
    """Return names that look like parts of keys, so that a key which is split in the wrong place is noticed."""
    tails = st.lists(st.sampled_from(_PARTS), max_size=12).map("".join)
    return st.builds(str.__add__, st.sampled_from(first), tails)


entity_ids = _names(_ALNUM, _ALNUM + _SIGNS, 256) | _keylike("a0")
resources = _names(string.ascii_letters + "@", _ALNUM + _SIGNS, 128) | _keylike("a@")
limit_names = _names(string.ascii_letters, _ALNUM + "_-.", 64).filter(
    lambda name: name != "wcu" and name not in USAGE_ATTRIBUTES and not name.startswith("s_")
)
namespaces = _names(_ALNUM, _ALNUM + "_.-", 64)
stack_names = _names(string.ascii_letters, _ALNUM + "-", 55, least=3)
namespace_ids = _names(_ALNUM + "_", _ALNUM + "_-", 11).map(lambda text: text.ljust(11, "0"))
shard_ids = st.integers(0, 63)

amounts = st.integers(0, MAX_AMOUNT)
times_ms = st.integers(0, 4_102_444_800_000)
"""From 1970 to 2100."""

limits = st.builds(
    Limit,
    limit_names,
    st.integers(1, MAX_AMOUNT),
    st.integers(1, MAX_AMOUNT),
    st.integers(1, MAX_PERIOD_SECONDS),
)


def limit_sets(min_size: int = 1, max_size: int = 5) -> st.SearchStrategy[tuple[Limit, ...]]:
    """Return sets of limits that one bucket can hold."""
    return st.lists(limits, min_size=min_size, max_size=max_size, unique_by=lambda one: one.name).map(tuple)


_versions = st.integers(1, 1_000)
_live_records = st.builds(
    ConfigRecord,
    limit_sets(min_size=0, max_size=3),
    _versions,
    st.none() | st.sampled_from(OnUnavailable),
    st.just(False),
    st.booleans(),
)
_tombstones = st.builds(ConfigRecord, st.just(()), _versions, st.none(), st.just(True))
config_records = _live_records | _tombstones
entity_facts = st.builds(EntityFacts, st.none() | entity_ids, st.booleans(), _versions, st.booleans())
config_record_sets = st.builds(
    ConfigRecords,
    st.none() | config_records,
    st.none() | config_records,
    st.none() | config_records,
    st.none() | config_records,
    st.none() | entity_facts,
)

not_text = st.sampled_from([None, True, 1, 1.5, b"bytes", ["a"], object()])
"""Values that are no strings."""

not_whole_numbers = st.sampled_from([None, True, False, 1.0, float("nan"), float("inf"), "1", b"1", [1], 1 + 0j])
"""Values that are no integers."""

broken_texts = st.sampled_from(["", "a#b", "#", "naïve", "a b", "a\n", "\n", "\x00", "x" * 2**20, "日本", "a\ud800"])
"""Strings that are no valid names."""
