"""The admin verbs, one room for each kind of record. Repository and limiter have them all."""

from zae_limiter._async.verbs.config import ConfigVerbs
from zae_limiter._async.verbs.usage import UsageVerbs


class AdminVerbs(ConfigVerbs, UsageVerbs):
    """Every admin verb."""
