"""The admin verbs, one room for each kind of record. SyncRepository and limiter have them all."""  # generated from _async by tools/mirror.py; do not edit

from zae_limiter._sync.verbs.config import ConfigVerbs
from zae_limiter._sync.verbs.usage import UsageVerbs


class AdminVerbs(ConfigVerbs, UsageVerbs):
    """Every admin verb."""
