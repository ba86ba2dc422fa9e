"""Define the reports that the process of a key sends to the demo: one line of JSON each. Pure."""

import json

from zae_limiter.cli._failures import in_seconds
from zae_limiter.core.lazy_dataclass import asdict, dataclass


@dataclass(frozen=True, slots=True)
class InForce:
    """The limit on tokens of the project that this process uses now."""

    refill_amount: int


@dataclass(frozen=True, slots=True)
class Took:
    """A call was admitted; the time is after the answer of the store."""

    at_ms: int
    tokens: int


@dataclass(frozen=True, slots=True)
class Adjusted:
    """A call was adjusted; the time is before the write for a decrease, after it for an increase."""

    at_ms: int
    estimated: int
    used: int


@dataclass(frozen=True, slots=True)
class GaveBack:
    """A call failed and gave its tokens back; the time is before the write."""

    at_ms: int
    tokens: int


@dataclass(frozen=True, slots=True)
class CallRejected:
    """A call was rejected, by its key or by the project."""

    at_ms: int
    refused_by: str
    lacking: str
    retry_after_s: float


Report = InForce | Took | Adjusted | GaveBack | CallRejected

_KINDS: dict[str, type[Report]] = {kind.__name__: kind for kind in (InForce, Took, Adjusted, GaveBack, CallRejected)}


def to_line(report: Report) -> str:
    """Write a report as one line of JSON."""
    return json.dumps([type(report).__name__, asdict(report)])


def from_line(line: str) -> Report:
    """Read a report."""
    kind, values = json.loads(line)
    return _KINDS[kind](**values)


def event_text(key_id: str, report: Report) -> str | None:
    """Describe a report as an event; return None if it is not shown."""
    match report:
        case Adjusted(_, estimated, used):
            return f"estimated {estimated:,}, used {used:,}: adjusted by {used - estimated:+,}"
        case GaveBack(_, tokens):
            return f"call failed, {tokens:,} tokens given back"
        case CallRejected(_, refused_by, lacking, retry_after_s):
            by = "" if refused_by == key_id else f" by {refused_by}"
            return f"rejected{by}: {lacking}, retry in {in_seconds(retry_after_s)}"
        case _:
            return None
