"""The report on mutants counts every one of them; a mutant that was not surely noticed counts as alive."""

import pytest

from tools.mutants import MODULES, ROOT, main, parse_results

PRINTED = """
    zae_limiter.core.bucket.x_grid__mutmut_1: killed
    zae_limiter.core.bucket.xǁBaselineǁearned__mutmut_1: survived
    zae_limiter.core.bucket.xǁBaselineǁearned__mutmut_2: timeout
    zae_limiter.core.bucket.xǁBaselineǁready_ms__mutmut_9: no tests
"""


def test_mutant_is_killed_if_a_test_failed_or_never_ended() -> None:
    """A change that no test runs is as bad as one that no test notices."""
    tally = parse_results("bucket", PRINTED)

    assert (4, 2, 0.5) == (len(tally.statuses), tally.killed, tally.rate)
    assert ["xǁBaselineǁearned__mutmut_1", "xǁBaselineǁready_ms__mutmut_9"] == [
        name.rpartition(".")[2] for name in tally.alive
    ]
    assert "50.0% of    4: 1 killed, 1 survived, 1 timeout, 1 no tests" in tally.line()


def test_mutants_table_has_every_module_and_existing_test_files() -> None:
    """A renamed file is not left out silently."""
    for module, tests in MODULES.items():
        assert (ROOT / "src/zae_limiter/core" / f"{module}.py").is_file()
        assert [] == [name for name in tests if not (ROOT / "tests" / name).is_file()]


def test_mutants_command_with_an_unknown_module_names_the_known_ones(capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is run."""
    assert 2 == main(["bukket"])
    assert "unknown module: bukket; choose from bucket, " in capsys.readouterr().err
