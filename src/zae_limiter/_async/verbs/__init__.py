"""The admin verbs, one room for each kind of record. Repository and limiter have them all."""

from zae_limiter._async.verbs.audit import AuditVerbs
from zae_limiter._async.verbs.config import ConfigVerbs


class AdminVerbs(AuditVerbs, ConfigVerbs):
    """Every admin verb."""
