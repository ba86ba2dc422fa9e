"""Workers that gunicorn forks from a process with an open limiter grant what is stored."""

import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest

from tests.copies.test_forks import stored
from tests.copies.worker import CHILDREN
from tests.dynamodb.engines import fresh_table_name
from tests.dynamodb.ledgers import quick_engine, table_url

PATIENCE_S = 300
REQUESTS = 12
AMOUNT = 300

pytest.importorskip("gunicorn", reason="the dev extra installs it")


def preloaded(url: str) -> AbstractContextManager[str]:
    """Return the address of the service, once it listens."""
    return preloaded_by("tests.copies.service:application", url, Path.cwd())


@contextmanager
def preloaded_by(application: str, url: str, directory: Path) -> Iterator[str]:
    """Return the address of a service with several workers, once it listens."""
    command = [sys.executable, "-m", "gunicorn", "--preload", "--workers", str(CHILDREN), "--worker-class", "sync"]
    command += ["--bind", "127.0.0.1:0", "--timeout", str(PATIENCE_S), application]
    environment = {"ZAE_LIMITER_URL": url, "PYTHONPATH": f"{directory}:{Path.cwd()}"}
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=_with(environment))
    try:
        assert server.stderr is not None
        listening = next(line for line in server.stderr if "Listening at:" in line)
        yield listening.partition("Listening at: ")[2].partition(" ")[0]
    finally:
        server.terminate()
        server.communicate(timeout=PATIENCE_S)


def _with(more: dict[str, str]) -> dict[str, str]:
    import os

    return {**os.environ, **more}


def asked(address: str) -> tuple[int, int]:
    """Return the worker that answered a request, and what it granted."""
    with urllib.request.urlopen(f"{address}/{AMOUNT}", timeout=PATIENCE_S) as answer:
        worker, granted = json.loads(answer.read())
    return worker, granted


def test_workers_of_a_preloaded_service_grant_what_is_stored():
    """Each worker has its own nonces and tokens, although all inherited one open repository."""
    table = fresh_table_name()
    url = table_url(table, quick_engine().url)
    with preloaded(url) as address, ThreadPoolExecutor(REQUESTS) as clients:
        answers = list(clients.map(asked, [address] * REQUESTS))
    granted = sum(amount for _, amount in answers)

    assert CHILDREN == len({worker for worker, _ in answers})
    assert 3 * AMOUNT == granted
    assert 2 + granted == stored(table, url)
