"""``zae-limiter completion``: a real shell completes what is typed."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

BASH = shutil.which("bash")
BIN = Path(sys.executable).parent

PRESS_TAB = """
eval "$(zae-limiter completion bash)"
COMP_WORDS=(zae-limiter "$@"); COMP_CWORD=$#
_zae_limiter_completion zae-limiter
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.skipif(BASH is None, reason="there is no bash")
@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["ent"], ["entity"]),
        (["de"], ["demo", "deploy", "delete"]),
        (["entity", "se"], ["set-limits"]),
        (["entity", "list", "--wi"], ["--with-custom-limits"]),
        (["system", "set-defaults", "--on-unavailable", "a"], ["allow"]),
        (["--ver"], ["--version"]),
    ],
    ids=" ".join,
)
def test_bash_completes_commands_options_and_choices(words, expected):
    """Commands, groups, options and values with few choices are completed."""
    environment = os.environ | {"PATH": f"{BIN}{os.pathsep}{os.environ.get('PATH', os.defpath)}"}
    pressed = [BASH, "--norc", "-c", PRESS_TAB, "bash", *words]
    done = subprocess.run(pressed, capture_output=True, text=True, check=True, env=environment, timeout=60)

    assert (expected, "") == (done.stdout.split(), done.stderr)


@pytest.mark.parametrize("shell", ["zsh", "fish"])
def test_completion_prints_a_script_for_other_shells(run, shell):
    """The script calls the command in the way that click expects of this shell."""
    done = run("completion", shell)

    assert 0 == done.exit_code
    assert f"_ZAE_LIMITER_COMPLETE={shell}_complete" in done.stdout


def test_completion_for_an_unknown_shell_lists_the_supported_ones(run):
    done = run("completion", "tcsh")

    assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
    assert "'bash', 'zsh', 'fish'" in done.stderr
