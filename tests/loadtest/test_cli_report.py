"""``zae-limiter loadtest run --driver native``: what it prints, writes and returns."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from tests.loadtest.test_report import measured_from
from zae_limiter.cli import main
from zae_limiter.cli.loadtest._report import show_report
from zae_limiter.cli.loadtest._run_options import NativeOptions
from zae_limiter.loadtest.measurements import Measurements
from zae_limiter.loadtest.recorder import ACQUIRE, Recorder

SHORT = ("--driver", "native", "-c", "rps:1", "--duration", "1", "--users", "2", "--entities", "2")


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["loadtest", "run", *words], prog_name="zae-limiter", catch_exceptions=False)


def options(html: Path | None = None, *, as_json: bool = False) -> NativeOptions:
    return NativeOptions(1, "api", {"rps": 1}, (), None, False, False, 1, 1, as_json, html)


def test_native_run_prints_the_report(tmp_path: Path) -> None:
    """On a file, with limits of the command."""
    done = run("--url", f"sqlite:///{tmp_path / 'load.db'}", *SHORT, "-l", "rps:5/s", "--cascade", "--adjust")

    assert 0 == done.exit_code, done.stderr
    assert "RATE_LIMITED" in done.stdout
    assert done.stdout.rstrip().splitlines()[-1].startswith("The promise held: 3 limits checked")


def test_native_run_prints_json_and_writes_a_page(tmp_path: Path) -> None:
    """The path of the page is on stderr, so that stdout is JSON alone."""
    page = tmp_path / "load.html"

    done = run("--url", "memory://", *SHORT, "--rate", "20", "--json", "--html", str(page))
    again = run("--url", "memory://", *SHORT, "--rate", "20", "--json", "--html", str(page))

    report = json.loads(done.stdout)
    assert report["promise_held"] is True
    assert "scheduled time" == report["latency_basis"]
    assert 20 == report["calls"] + report["unsent"]
    assert f"Wrote {page}" in done.stderr
    assert 0 == again.exit_code
    assert page.read_text(encoding="utf-8").startswith("<!doctype html>")


def test_native_run_without_limits_names_the_command_that_stores_them(tmp_path: Path) -> None:
    """And the option that replaces them."""
    url = f"sqlite:///{tmp_path / 'load.db'}"

    done = run("--url", url, "--driver", "native", "-c", "rpm:1", "--resource", "gpt-4", "--duration", "1")

    assert 2 == done.exit_code
    assert "pass -l rpm:1000/s, or store them: zae-limiter resource set-defaults gpt-4 -l rpm:1000/s" in done.stderr
    assert f"--url {url}" in done.stderr


def test_run_does_not_replace_a_file_that_is_no_report(tmp_path: Path) -> None:
    """It is refused before the test."""
    other = tmp_path / "index.html"
    other.write_text("mine", encoding="utf-8")

    done = run("--url", "memory://", *SHORT, "--html", str(other))

    assert 2 == done.exit_code
    assert "is not a report of a load test" in done.stderr
    assert "mine" == other.read_text(encoding="utf-8")


@pytest.mark.parametrize(("taken_of_10_000", "exit_code"), [(10_000, 0), (9_800, 1), (10_526, 1)])
def test_report_of_a_broken_promise_returns_1(
    taken_of_10_000: int, exit_code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """So that a pipeline fails."""
    assert exit_code == show_report(measured_from(taken_of_10_000))
    assert ("The promise held" in capsys.readouterr().out) is (exit_code == 0)


@pytest.mark.parametrize(
    ("measured", "exit_code"), [(Measurements(), 130), (measured_from(), 130), (measured_from(10_526), 1)]
)
def test_report_of_an_interrupted_test_returns_130_unless_a_limit_broke(measured: Measurements, exit_code: int) -> None:
    """Also if it was interrupted before its first call."""
    assert exit_code == show_report(measured, is_interrupted=True)


def test_report_without_calls_returns_1(capsys: pytest.CaptureFixture[str]) -> None:
    """A test that did nothing proves nothing."""
    assert 1 == show_report(Measurements(), options())
    assert "No call was made." in capsys.readouterr().out


def test_report_of_failed_calls_alone_returns_1(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without limits in force every call fails, so no limit was checked; the page says the same."""
    page, recorder = tmp_path / "load.html", Recorder()
    recorder.failed(ACQUIRE, ValueError("no limits are in force"), 1.0, 1.1)

    assert 1 == show_report(recorder.take_measurements(), options(page))
    printed = capsys.readouterr().out
    assert "No limit was checked, because no call took anything." in printed
    assert "The promise held" not in printed + page.read_text(encoding="utf-8")


def test_report_of_many_limits_prints_the_worst(capsys: pytest.CaptureFixture[str]) -> None:
    """The others are in the JSON and on the page."""
    measured = measured_from()
    tally = next(iter(measured.limits.values()))
    for number in range(14):
        copied = measured.tally_of(tally.key._replace(entity_id=f"idle-{number}"), is_ancestor=False)
        assert copied is not None
        copied.limits |= tally.limits

    assert 0 == show_report(measured)
    captured = capsys.readouterr()
    assert 9 == captured.out.count("idle-")
    assert "5 limits more, all no worse" in captured.err
