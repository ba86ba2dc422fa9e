"""A provider of expiring keys with a clock of the test, which may hang or fail, and an empty environment."""

import os
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import botocore.credentials
import botocore.session
import pytest

from zae_limiter.aws.account import Account, EndpointOptions

HOUR_S = 3600.0
TABLE = "limiter-table"

_LOADER = botocore.session.Session().get_component("data_loader")


class Issuer(botocore.credentials.CredentialProvider):
    """Issue KEY1, KEY2, ..., each valid for an hour."""

    METHOD = "issuer"
    CANONICAL_NAME = "issuer"

    def __init__(self) -> None:
        self.session: Any = None
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.issued = 0
        self.account_ids: list[str | None] = [None]
        self.failure: Exception | None = None
        # While it is cleared, requests for keys hang.
        self.open = threading.Event()
        self.open.set()
        self.asked = threading.Semaphore(0)

    def issue(self) -> dict[str, str | None]:
        self.asked.release()
        assert self.open.wait(60)
        if self.failure is not None:
            raise self.failure
        self.issued += 1
        return {
            "access_key": f"KEY{self.issued}",
            "secret_key": f"secret-{self.issued}",
            "token": f"token-{self.issued}",
            "expiry_time": (self.now + timedelta(seconds=HOUR_S)).isoformat(),
            "account_id": self.account_ids[min(self.issued, len(self.account_ids)) - 1],
        }

    def load(self) -> botocore.credentials.RefreshableCredentials:
        first = self.issue()
        expiry = datetime.fromisoformat(str(first.pop("expiry_time")))
        return botocore.credentials.RefreshableCredentials(
            **first, expiry_time=expiry, refresh_using=self.issue, method="issuer", time_fetcher=lambda: self.now
        )

    def leave(self, seconds: float) -> None:
        """Advance the clock until a key issued at the start is valid for only this many seconds."""
        self.now += timedelta(seconds=HOUR_S - seconds)


def fresh_session() -> botocore.session.Session:
    """Return a new session that shares only botocore's parsed data files, since parsing is slow."""
    session = botocore.session.Session()
    session.register_component("data_loader", _LOADER)
    return session


def session_of(issuer: Issuer) -> botocore.session.Session:
    """Return a session whose keys come from an issuer."""
    session = fresh_session()
    session.get_component("credential_provider").insert_before("env", issuer)
    return session


def account_of(issuer: Issuer, endpoint_url: str | None = "http://127.0.0.1:9") -> Account:
    """Return an account with keys of an issuer."""
    return Account(EndpointOptions(TABLE, "us-east-1", endpoint_url, 0.5), session_of(issuer))


def bare(monkeypatch: pytest.MonkeyPatch, directory: Path, **variables: str) -> None:
    """Clear all AWS and proxy variables of the environment except these."""
    for name in list(os.environ):
        if name.startswith("AWS_") or name.lower().endswith("_proxy"):
            monkeypatch.delenv(name)
    (directory / "config").touch()
    (directory / "credentials").touch()
    monkeypatch.setenv("AWS_CONFIG_FILE", str(directory / "config"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(directory / "credentials"))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
