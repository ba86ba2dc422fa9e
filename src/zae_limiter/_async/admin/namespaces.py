"""The admin methods for namespaces.

Namespaces belong to the table, so every repository of the table sees all of them.
"""

from collections.abc import Callable, Iterable

from zae_limiter._async.store.namespaces import NamespaceStore
from zae_limiter._async.store.scope import Scope
from zae_limiter.core.errors import ValidationError
from zae_limiter.core.namespace import DEFAULT_NAMESPACE, Namespace


class NamespaceVerbs:
    """Registers, lists, deletes, recovers and purges namespaces."""

    _scope: Scope

    async def register_namespace(self, name: str, principal: str | None = None) -> str:
        """Register a namespace unless it exists, and return its id.

        Raises:
            InvalidNameError: The name is invalid.
        """
        return (await self._namespaces().register(name, principal)).id

    async def register_namespaces(self, names: Iterable[str], principal: str | None = None) -> dict[str, str]:
        """Register namespaces unless they exist, and return their ids by name.

        Raises:
            InvalidNameError: A name is invalid; nothing was registered.
        """
        if isinstance(names, str) or not isinstance(names, Iterable):
            raise ValidationError("names", names, "must be a list of names")
        found = await self._namespaces().register_all(list(names), principal)
        return {name: namespace.id for name, namespace in found.items()}

    async def get_namespace(self, name: str) -> Namespace:
        """Return an active namespace.

        Raises:
            NamespaceNotFoundError: No active namespace has that name.
        """
        return await self._namespaces().find(name)

    async def list_namespaces(self) -> list[Namespace]:
        """Return all active namespaces, in the order of their names."""
        return await self._namespaces().active()

    async def delete_namespace(self, name: str, principal: str | None = None) -> Namespace:
        """Hide a namespace and free its name; its data is kept for ``recover_namespace`` or ``purge_namespace``.

        Clients that use it get NamespaceNotFoundError when they next read their limits. The default namespace cannot be
        deleted, because a repository opens it if no namespace is given.

        Raises:
            NamespaceNotFoundError: No active namespace has that name.
            ValidationError: It is the default namespace.
        """
        if name == DEFAULT_NAMESPACE:
            raise ValidationError("namespace", name, "the default namespace always exists and cannot be deleted")
        return await self._namespaces().delete(name, principal)

    async def recover_namespace(self, namespace_id: str, principal: str | None = None) -> Namespace:
        """Restore a deleted namespace with all its data.

        Raises:
            NamespaceNotFoundError: No namespace has that id, or it was purged.
            NamespaceStateError: It is active or being purged, or another namespace has its name now.
        """
        return await self._namespaces().recover(namespace_id, principal)

    async def list_orphan_namespaces(self) -> list[Namespace]:
        """Return the namespaces that are deleted and not purged yet, in the order of their deletion."""
        return await self._namespaces().orphans()

    async def purge_namespace(
        self, namespace_id: str, principal: str | None = None, progress: Callable[[int], None] | None = None
    ) -> int:
        """Remove a deleted namespace and all its items permanently, and return the number of items removed.

        Call it again to complete an interrupted purge. ``progress`` is called after each step with the number of items
        that the step removed.

        Raises:
            NamespaceNotFoundError: No namespace has that id, or it was purged.
            NamespaceStateError: It is active; delete it first.
        """
        return await self._namespaces().purge(namespace_id, principal, progress)

    def _namespaces(self) -> NamespaceStore:
        return NamespaceStore(self._scope.client)
