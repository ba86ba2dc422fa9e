"""Define what a rule returns: who asks, for what, at which cost, and how the answer is reported."""

from collections.abc import Mapping, Sequence
from typing import Literal, get_args

from zae_limiter.core.cascade import Also
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.lazy_dataclass import dataclass
from zae_limiter.core.limit import Limit
from zae_limiter.core.status import OnUnavailable
from zae_limiter.core.waiting import check_wait

Dialect = Literal["ietf", "openai", "anthropic"]
"""The headers that report limits: those of the IETF draft, of OpenAI's API, or of Anthropic's."""

_DIALECTS = get_args(Dialect)

Role = Literal["requests", "tokens", "input-tokens", "output-tokens"]
"""What a limit counts, in the headers of OpenAI and Anthropic."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What one request takes: an entity, a resource, and the amounts by the names of limits.

    Example:
        ```python
        def rules(request):
            return Ask(request.headers["x-user"], "chat", {"rpm": 1, "tpm": 500})
        ```

    Raises:
        ValidationError: A dialect is unknown, or ``max_wait`` or ``priority`` is invalid.

    Attributes:
        entity: The user, key or project that is limited.
        resource: What it uses. If None, the route's template names it, for frameworks with a router.
        consume: How many tokens to take from each limit.
        limits: Replace the stored limits for this request. If None, the stored limits are in force.
        on_unavailable: ``block`` answers 503 if the store is unavailable; ``allow`` lets the request pass. If None,
            the repository decides.
        on_error: ``give_back`` returns everything if the handler fails before the first byte, or answers 5xx.
            ``keep`` charges it.
        headers: One dialect or several; empty for no headers but those of a rejection.
        roles: What limits count, by name, for OpenAI's and Anthropic's headers. Added to the usual names.
        also: Other entities and resources to take from, all or none, as for ``acquire``. The lease has a part for each
            of them in ``lease.also``. ``limits`` does not apply to them.
        max_wait: Wait at most this many seconds for the tokens before the request is rejected, as for ``acquire``.
            None rejects immediately.
        priority: Requests of a higher priority go first among those that wait.
    """

    entity: str
    resource: str | None
    consume: dict[str, int]
    limits: Sequence[Limit] | None = None
    on_unavailable: OnUnavailable | str | None = None
    on_error: Literal["give_back", "keep"] = "give_back"
    headers: Dialect | Sequence[Dialect] = "ietf"
    roles: Mapping[str, Role] | None = None
    also: Sequence[Also] | None = None
    max_wait: float | None = None
    priority: int = 0

    def __post_init__(self) -> None:
        # Checked here: an error in the response's headers would come after the work was done.
        if self.headers != "ietf":
            unknown = [one for one in self.dialects if one not in _DIALECTS]
            if unknown:
                raise ValidationError("headers", unknown[0], f"must be one of {', '.join(_DIALECTS)}")
        if self.max_wait is not None:
            check_wait(self.max_wait, self.priority)

    @property
    def dialects(self) -> Sequence[Dialect]:
        """The dialects of the headers."""
        chosen = self.headers
        return (chosen,) if isinstance(chosen, str) else chosen
