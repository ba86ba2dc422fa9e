"""Renew the keys of an account in time, usually in the background before a caller needs them."""

from collections.abc import Callable

from zae_limiter.aws.account import Account, Freshness
from zae_limiter.aws.shared_call import SharedResult
from zae_limiter.tables.dynamodb.signing import Signer

_CHECK_EVERY_S = 5.0
_RENEW_EVERY_S = 60.0


class KeyRenewal:
    """Check the keys of an account regularly; the next check is due at ``check_at_s``."""

    __slots__ = ("_account", "_monotonic_s", "_replace_at_s", "_replacement", "check_at_s")

    def __init__(self, account: Account, monotonic_s: Callable[[], float]) -> None:
        self._account = account
        self._monotonic_s = monotonic_s
        self._replace_at_s = monotonic_s()
        self._replacement: SharedResult[None] | None = None
        self.check_at_s = self._replace_at_s + _CHECK_EVERY_S

    def check_soon(self) -> None:
        """Make the next call check the keys, and replace them if they are refused."""
        self.check_at_s = self._replace_at_s = self._monotonic_s()

    def check(self) -> SharedResult[None] | None:
        """Renew keys early, in the background; return the renewal that the caller must wait for, or None."""
        freshness = self._account.freshness()
        if freshness is Freshness.EXPIRED:
            # The next call checks again, because this renewal may fail.
            return self._account.renew()
        if freshness is not Freshness.FRESH or self._account.changes:
            # The keys are valid for some minutes, so no caller waits.
            self._account.renew()
        again_s = _RENEW_EVERY_S if freshness is Freshness.AGING else _CHECK_EVERY_S
        self.check_at_s = self._monotonic_s() + again_s
        return None

    def replace(self, refused: Signer) -> SharedResult[None] | None:
        """Find keys again, after the server refused those of a signer; return what the caller must wait for.

        None if other keys are in use by now, or if the last search was a few seconds ago.
        """
        if refused is not self._account.signer:
            return None
        now_s = self._monotonic_s()
        if now_s >= self._replace_at_s:
            self._replace_at_s = now_s + _CHECK_EVERY_S
            self._replacement = self._account.replace(refused)
            # Return it even if it has ended already, so that the caller gets its error.
            return self._replacement
        replacement = self._replacement
        # Callers that arrive while it is in flight share it.
        return None if replacement is None or replacement.done() else replacement
