"""Namespaces, as users register, list, delete, recover and purge them.

They are the table's, so every repository of it sees the same ones, whichever namespace it looks through.
"""  # generated from _async by tools/mirror.py; do not edit

from collections.abc import Callable, Iterable

from zae_limiter._sync.store.namespaces import NamespaceStore
from zae_limiter._sync.store.scope import Scope
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.namespace import DEFAULT_NAMESPACE, Namespace


class NamespaceVerbs:
    """Registers, lists, deletes, recovers and purges namespaces."""

    _scope: Scope

    def register_namespace(self, name: str, principal: str | None = None) -> str:
        """Return the id of the namespace of that name, a new one if there was none.

        Raises:
            InvalidNameError: The name breaks the rule for names.
        """
        return (self._namespaces().register(name, principal)).id

    def register_namespaces(self, names: Iterable[str], principal: str | None = None) -> dict[str, str]:
        """Return the ids of the namespaces of these names, new ones where there were none.

        Raises:
            InvalidNameError: A name breaks the rule for names; nothing was registered.
        """
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise ValidationError("names", names, "must be a list of names")
        found = self._namespaces().register_all(list(names), principal)
        return {name: namespace.id for name, namespace in found.items()}

    def get_namespace(self, name: str) -> Namespace:
        """Return an active namespace.

        Raises:
            NamespaceNotFoundError: There is none of that name.
        """
        return self._namespaces().find(name)

    def list_namespaces(self) -> list[Namespace]:
        """Return all active namespaces, in the order of their names."""
        return self._namespaces().active()

    def delete_namespace(self, name: str, principal: str | None = None) -> Namespace:
        """Hide a namespace and free its name; its data stays, for ``recover_namespace`` or ``purge_namespace``.

        Clients at work in it are told when they next read their limits. The default namespace cannot be deleted:
        whoever opens a repository without naming one is in it.

        Raises:
            NamespaceNotFoundError: There is none of that name.
            ValidationError: It is the default namespace.
        """
        if name == DEFAULT_NAMESPACE:
            raise ValidationError("namespace", name, "the default namespace is always there and cannot be deleted")
        return self._namespaces().delete(name, principal)

    def recover_namespace(self, namespace_id: str, principal: str | None = None) -> Namespace:
        """Bring a deleted namespace back, with all its data.

        Raises:
            NamespaceNotFoundError: There is none of that id, or no more.
            NamespaceStateError: It is active or being purged, or another one has its name now.
        """
        return self._namespaces().recover(namespace_id, principal)

    def list_orphan_namespaces(self) -> list[Namespace]:
        """Return the namespaces that were deleted and are not purged yet, the longest deleted first."""
        return self._namespaces().orphans()

    def purge_namespace(
        self, namespace_id: str, principal: str | None = None, progress: Callable[[int], None] | None = None
    ) -> int:
        """Remove a deleted namespace and every item of it for good, and return how many items were removed.

        One that was interrupted is finished by calling it again. ``progress`` is told after each of many steps how many
        items it removed.

        Raises:
            NamespaceNotFoundError: There is none of that id, or no more.
            NamespaceStateError: It is active; delete it first.
        """
        return self._namespaces().purge(namespace_id, principal, progress)

    def _namespaces(self) -> NamespaceStore:
        return NamespaceStore(self._scope.client)
