"""Define the errors of a load test."""

from collections.abc import Sequence

from zae_limiter.core.errors import InfrastructureError


class LoadTestError(InfrastructureError):
    """A load test failed; ``log_lines`` are the last lines of the log of the part that failed."""

    def __init__(self, reason: str, log_lines: Sequence[str] = ()) -> None:
        self.reason = reason
        self.log_lines = tuple(log_lines)
        super().__init__(reason, self.log_lines)

    def __str__(self) -> str:
        return "\n".join([f"Load test: {self.reason}", *(f"  {line}" for line in self.log_lines)])


class MissingPluginError(InfrastructureError):
    """The plugin that forwards ports through AWS Systems Manager is not installed."""

    def __str__(self) -> str:
        return (
            "The session-manager-plugin is not installed, which forwards the port of the web page. Install it: "
            "https://docs.aws.amazon.com/systems-manager/latest/userguide/session-manager-working-with-install-plugin.html"
        )
