"""Define the errors about versions of client, table and aggregator.

::

    VersionError
    ├── VersionMismatchError
    ├── IncompatibleSchemaError
    ├── UnknownKindError
    └── KindNotAllowedError
"""

from zae_limiter.core.errors import ZAELimiterError


class VersionError(ZAELimiterError):
    """The versions of client, table and aggregator are incompatible.

    ``client_outdated`` is True if the client must be updated, and False if the limiter must be
    upgraded. ``upgrade_command`` is the command that upgrades the limiter.
    """

    client_outdated: bool = False
    upgrade_command: str = "zae-limiter upgrade"

    @property
    def remedy(self) -> str:
        """What to do."""
        if self.client_outdated:
            return "Install a newer version of this client."
        return f"Upgrade the limiter: {self.upgrade_command}"


class VersionMismatchError(VersionError):
    """The client and the deployed stack have incompatible versions."""

    def __init__(
        self,
        client_version: str,
        stack_version: str,
        reason: str,
        client_outdated: bool = False,
        upgrade_command: str = "zae-limiter upgrade",
    ) -> None:
        self.client_version = client_version
        self.stack_version = stack_version
        self.reason = reason
        self.client_outdated = client_outdated
        self.upgrade_command = upgrade_command
        super().__init__(client_version, stack_version, reason, client_outdated, upgrade_command)

    def __str__(self) -> str:
        versions = f"Client {self.client_version} and stack {self.stack_version}"
        return f"{versions} are incompatible: {self.reason}. {self.remedy}"


class IncompatibleSchemaError(VersionError):
    """This client cannot use the table's schema."""

    def __init__(
        self,
        client_schema: str,
        table_schema: str,
        client_outdated: bool = False,
        upgrade_command: str = "zae-limiter upgrade",
    ) -> None:
        self.client_schema = client_schema
        self.table_schema = table_schema
        self.client_outdated = client_outdated
        self.upgrade_command = upgrade_command
        super().__init__(client_schema, table_schema, client_outdated, upgrade_command)

    def __str__(self) -> str:
        order = "newer" if self.client_outdated else "older"
        return (
            f"The table has schema {self.table_schema}, {order} than this client's {self.client_schema}. {self.remedy}"
        )


class UnknownKindError(VersionError):
    """The table stores items of a kind that this client would misread; ``required`` is the version that knows it."""

    client_outdated = True

    def __init__(self, kind: str, required: str, client_version: str) -> None:
        self.kind = kind
        self.required = required
        self.client_version = client_version
        super().__init__(kind, required, client_version)

    def __str__(self) -> str:
        return (
            f"The table stores items of the kind {self.kind!r}, which version {self.client_version} does not know. "
            f"Install version {self.required} or later."
        )


class KindNotAllowedError(VersionError):
    """The table does not allow items of this kind yet, and this client may not change that."""

    def __init__(self, kind: str) -> None:
        self.kind = kind
        super().__init__(kind)

    def __str__(self) -> str:
        return (
            f"The table does not allow items of the kind {self.kind!r} yet, so that older clients cannot misread them. "
            f"Update all clients, then run as an operator: zae-limiter upgrade --allow {self.kind}"
        )
