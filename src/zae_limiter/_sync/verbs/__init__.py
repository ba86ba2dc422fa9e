"""The admin verbs, one room for each kind of record. SyncRepository and limiter have them all."""  # generated from _async by tools/mirror.py; do not edit

from zae_limiter._sync.verbs.audit import AuditVerbs
from zae_limiter._sync.verbs.config import ConfigVerbs
from zae_limiter._sync.verbs.entities import EntityVerbs
from zae_limiter._sync.verbs.namespaces import NamespaceVerbs
from zae_limiter._sync.verbs.naming import Naming
from zae_limiter._sync.verbs.status import StatusVerbs
from zae_limiter._sync.verbs.usage import UsageVerbs
from zae_limiter._sync.verbs.versions import VersionVerbs


class AdminVerbs(AuditVerbs, ConfigVerbs, EntityVerbs, NamespaceVerbs, StatusVerbs, UsageVerbs, VersionVerbs, Naming):
    """Every admin verb, and what stack and table are called."""
