"""Keys of an account that are renewed in time: mostly in the background, before any caller needs them."""

from collections.abc import Callable

from zae_limiter._async import runtime
from zae_limiter.aws.account import Account, Freshness
from zae_limiter.tables.dynamodb.signing import Signer

_CHECK_EVERY_S = 5.0
_RENEW_EVERY_S = 60.0


class KeyRenewal:
    """Checks the keys of an account from time to time; the next check is due at ``check_at_s``."""

    __slots__ = ("_account", "_monotonic_s", "_replace_at_s", "check_at_s")

    def __init__(self, account: Account, monotonic_s: Callable[[], float]) -> None:
        self._account = account
        self._monotonic_s = monotonic_s
        self._replace_at_s = monotonic_s()
        self.check_at_s = self._replace_at_s + _CHECK_EVERY_S

    def check_soon(self) -> None:
        """Let the next call check the keys, and replace them if they are refused."""
        self.check_at_s = self._replace_at_s = self._monotonic_s()

    async def check(self, until_s: float) -> None:
        """See to it that keys are renewed: ahead of time in the background, and waited for only where they must be.

        Raises:
            Exception: Whatever the provider of credentials raises.
        """
        again_s = _CHECK_EVERY_S
        match self._account.freshness():
            case Freshness.EXPIRED:
                await runtime.shared(self._account.renew(), max(0, until_s - self._monotonic_s()))
            case Freshness.STALE:
                # They are good for some minutes yet, so no caller waits.
                self._account.renew()
            case Freshness.AGING:
                again_s = _RENEW_EVERY_S
                self._account.renew()
            case Freshness.FRESH:
                if self._account.changes:
                    self._account.renew()
        self.check_at_s = self._monotonic_s() + again_s

    async def replace(self, refused: Signer, until_s: float) -> None:
        """Find keys again, after the server has refused those of a signer as expired.

        Keys that stay the same are looked for only every few seconds.

        Raises:
            Exception: Whatever the provider of credentials raises.
        """
        now_s = self._monotonic_s()
        if refused is self._account.signer and now_s >= self._replace_at_s:
            await runtime.shared(self._account.replace(refused), max(0, until_s - now_s))
            self._replace_at_s = self._monotonic_s() + _CHECK_EVERY_S
