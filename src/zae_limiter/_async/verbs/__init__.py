"""The admin verbs, one room for each kind of record. Repository and limiter have them all."""

from zae_limiter._async.verbs.audit import AuditVerbs
from zae_limiter._async.verbs.config import ConfigVerbs
from zae_limiter._async.verbs.entities import EntityVerbs
from zae_limiter._async.verbs.namespaces import NamespaceVerbs
from zae_limiter._async.verbs.naming import Naming
from zae_limiter._async.verbs.status import StatusVerbs
from zae_limiter._async.verbs.usage import UsageVerbs
from zae_limiter._async.verbs.versions import VersionVerbs


class AdminVerbs(AuditVerbs, ConfigVerbs, EntityVerbs, NamespaceVerbs, StatusVerbs, UsageVerbs, VersionVerbs, Naming):
    """Every admin verb, and what stack and table are called."""
