"""The admin verbs, one room for each kind of record. SyncRepository and limiter have them all."""  # generated from _async by tools/mirror.py; do not edit

from zae_limiter._sync.admin.audit import AuditVerbs
from zae_limiter._sync.admin.config import ConfigVerbs
from zae_limiter._sync.admin.entities import EntityVerbs
from zae_limiter._sync.admin.namespaces import NamespaceVerbs
from zae_limiter._sync.admin.naming import Naming
from zae_limiter._sync.admin.status import StatusVerbs
from zae_limiter._sync.admin.usage import UsageVerbs
from zae_limiter._sync.admin.versions import VersionVerbs


class AdminVerbs(AuditVerbs, ConfigVerbs, EntityVerbs, NamespaceVerbs, StatusVerbs, UsageVerbs, VersionVerbs, Naming):
    """Every admin verb, and what stack and table are called."""
