"""The admin verbs, one room for each kind of record. Repository and limiter have them all."""

from zae_limiter._async.admin.audit import AuditVerbs
from zae_limiter._async.admin.config import ConfigVerbs
from zae_limiter._async.admin.entities import EntityVerbs
from zae_limiter._async.admin.namespaces import NamespaceVerbs
from zae_limiter._async.admin.naming import Naming
from zae_limiter._async.admin.status import StatusVerbs
from zae_limiter._async.admin.usage import UsageVerbs
from zae_limiter._async.admin.versions import VersionVerbs


class AdminVerbs(AuditVerbs, ConfigVerbs, EntityVerbs, NamespaceVerbs, StatusVerbs, UsageVerbs, VersionVerbs, Naming):
    """Every admin verb, and what stack and table are called."""
