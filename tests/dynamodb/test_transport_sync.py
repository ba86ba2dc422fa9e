"""Rules of the sync transport only: forks, greenlets, and a close from another thread."""

import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.dynamodb.callers import Caller, account_at
from tests.dynamodb.echo import Echo, ask, number_of
from zae_limiter.tables.dynamodb.http_parser import HttpResponse

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def echo() -> Iterator[Echo]:
    with Echo() as started:
        yield started


def run_script(text: str, *arguments: str) -> list[str]:
    """Return what a separate program prints."""
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text), *arguments],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'src'}"},
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout.splitlines()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_forked_child_does_not_share_connections(echo: Echo):
    """Parent and child call at the same time on their own connections, and the parent's is used again."""
    printed = run_script(
        """
        import os, sys, time
        from tests.dynamodb.callers import SkippingClock, account_at
        from tests.dynamodb.echo import ask, number_of
        from zae_limiter.transport.threads import Transport
        from zae_limiter.clock import ServerClock

        clock = SkippingClock()
        transport = Transport(account_at(sys.argv[1]), clock, ServerClock(clock))
        def asked(number):
            return number_of(transport.call(ask(number), clock.monotonic_s() + 10).body)
        asked(0)
        child = os.fork()
        found = [asked(number) for number in range(100 * (child == 0), 100 * (child == 0) + 50)]
        right = found == list(range(found[0], found[0] + 50))
        if child == 0:
            transport.close()
            os._exit(0 if right else 1)
        _, status = os.waitpid(child, 0)
        print(right, status, asked(7))
        transport.close()
        """,
        echo.url,
    )

    assert ["True 0 7"] == printed
    assert 2 == echo.counts.accepted


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork here")
def test_a_child_forked_during_a_renewal_renews_its_own_keys(echo: Echo):
    """The thread that renews them does not exist in the child."""
    printed = run_script(
        """
        import os
        from tests.dynamodb.issuer import Issuer, account_of

        issuer = Issuer()
        account = account_of(issuer)
        issuer.open.clear()
        issuer.leave(-1)
        hanging = account._renewal.begin()
        child = os.fork()
        issuer.open.set()
        if child == 0:
            os._exit(0 if account._renewal.begin() is not hanging else 1)
        _, status = os.waitpid(child, 0)
        hanging.result(60)
        print(status, issuer.issued)
        """
    )

    assert ["0 2"] == printed


def test_greenlets_call_at_the_same_time(echo: Echo):
    """With gevent's patches, a call blocks its greenlet and not the thread."""
    pytest.importorskip("gevent")
    printed = run_script(
        """
        from gevent import monkey
        monkey.patch_all()
        import gevent, sys, time
        from tests.dynamodb.callers import SkippingClock, account_at
        from tests.dynamodb.echo import ask, number_of
        from zae_limiter.transport.threads import Transport
        from zae_limiter.clock import ServerClock

        clock = SkippingClock()
        transport = Transport(account_at(sys.argv[1].replace("127.0.0.1", "localhost")), clock, ServerClock(clock))
        def asked(number):
            return number_of(transport.call(ask(number, delay_ms=50), clock.monotonic_s() + 20).body)
        jobs = [gevent.spawn(asked, number) for number in range(100)]
        gevent.joinall(jobs, raise_error=True)
        print([job.value for job in jobs] == list(range(100)))
        transport.close()
        """,
        echo.url,
    )

    assert ["True"] == printed
    assert 1 < echo.counts.most_open <= 64


def test_a_large_request_is_sent_completely(echo: Echo):
    """The socket may take it in several pieces."""
    with Caller("sync", account_at(echo.url)) as caller:
        answer = caller.call(ask(9, padding="x" * 3_000_000))

    assert isinstance(answer, HttpResponse)
    assert (9, True) == (number_of(answer.body), len(answer.body) > 3_000_000)
