"""The admin verbs, one module for each kind of record. SyncRepository and limiter have them all."""  # generated from _async by tools/mirror.py; do not edit

from abc import abstractmethod

from zae_limiter._sync.admin.entities import EntityVerbs
from zae_limiter._sync.admin.limits import LimitVerbs
from zae_limiter._sync.admin.namespaces import NamespaceVerbs
from zae_limiter._sync.admin.reports import ReportVerbs
from zae_limiter.core.location import deployed_at
from zae_limiter.infra.naming import table_name


class AdminVerbs(EntityVerbs, LimitVerbs, NamespaceVerbs, ReportVerbs):
    """Every admin verb, and the names of stack and table."""

    @property
    @abstractmethod
    def name(self) -> str:
        """Where the data is kept."""

    @property
    def stack_name(self) -> str:
        """The name of its stack.

        Raises:
            UnsupportedByBackendError: It is a file, or memory, which have none.
        """
        return deployed_at(self.name, "stack_name").name

    @property
    def table_name(self) -> str:
        """The name of its table.

        Raises:
            UnsupportedByBackendError: It is a file, or memory, which have none.
        """
        return table_name(deployed_at(self.name, "table_name").name)
