"""Code from before quotas refuses a table that has them.

``fixtures/before_quotas.zip`` keeps the modules of an embedded client as they were just before quotas. They know
``kinds``. That client would ignore the attributes of a quota, and admit everything.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from zae_limiter import Limit, SyncRateLimiter, SyncRepository

OLD_CODE = Path(__file__).parent / "fixtures" / "before_quotas.zip"
RPM = Limit.per_minute("rpm", 60)

PROGRAM = """
import sys, zae_limiter
assert ".zip" in zae_limiter.__file__, zae_limiter.__file__
try:
    limiter = zae_limiter.SyncRateLimiter(zae_limiter.SyncRepository.open(sys.argv[1]))
    with limiter.acquire("user-1", "gpt-4", {"rpm": 1}) as lease:
        print("admitted", lease.consumed)
except zae_limiter.ZAELimiterError as error:
    print(type(error).__name__, error)
"""


def old_client(url: str) -> str:
    """Return what a client of the time before quotas prints."""
    environment = {**os.environ, "PYTHONPATH": str(OLD_CODE), "PYTHONSAFEPATH": "1"}
    command = [sys.executable, "-c", PROGRAM, url]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    ("limit", "kind"),
    [
        (Limit.quota("spend", 100, every="month"), "quotas"),
        (Limit.per_minute("tpm", 100, enforce=False), "soft"),
        (Limit.quota("trial", 100, enforce=False), "quotas"),
    ],
    ids=["quota", "soft limit", "soft quota"],
)
def test_older_client_refuses_a_table_with_a_newer_kind_of_limit(tmp_path: Path, limit: Limit, kind: str) -> None:
    """The error names the kind, and the version that knows it."""
    url = f"sqlite:///{tmp_path / 'limits.db'}"
    with SyncRepository.open(url) as repo:
        limiter = SyncRateLimiter(repo)
        limiter.set_system_defaults([RPM])
        before = old_client(url)
        limiter.set_system_defaults([RPM, limit])
        after = old_client(url)

    assert "admitted {'rpm': 1}" == before.strip()
    assert after.startswith("UnknownKindError")
    assert kind in after
