"""Somebody who issues keys that expire by a clock of the test's, and who may hang or fail; an empty environment."""

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
    """Issues KEY1, KEY2, ... each good for an hour."""

    METHOD = "issuer"
    CANONICAL_NAME = "issuer"

    def __init__(self) -> None:
        self.session: Any = None
        self.now = datetime(2026, 1, 1, tzinfo=UTC)
        self.issued = 0
        self.account_ids: list[str | None] = [None]
        self.failure: Exception | None = None
        # While it is clear, whoever asks for keys hangs.
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
        """Let time pass until a key of an hour that was issued at the start is good for so long only."""
        self.now += timedelta(seconds=HOUR_S - seconds)


def fresh_session() -> botocore.session.Session:
    """A session that has nothing of another but what was read of botocore's own files, for reading is slow."""
    session = botocore.session.Session()
    session.register_component("data_loader", _LOADER)
    return session


def session_of(issuer: Issuer) -> botocore.session.Session:
    """A session whose keys come from an issuer."""
    session = fresh_session()
    session.get_component("credential_provider").insert_before("env", issuer)
    return session


def account_of(issuer: Issuer, endpoint_url: str | None = "http://127.0.0.1:9") -> Account:
    """An account with keys of an issuer."""
    return Account(EndpointOptions(TABLE, "us-east-1", endpoint_url, 0.5), session_of(issuer))


def bare(monkeypatch: pytest.MonkeyPatch, directory: Path, **variables: str) -> None:
    """An environment without anything of AWS or of proxies but these."""
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
