"""The page about deploying tells of every command and every flag."""

from pathlib import Path

import pytest

from zae_limiter.cli import COMMANDS
from zae_limiter.cli._stack_options import FLAGS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "infra" / "deployment.md").read_text(encoding="utf-8")
ON_STACKS = [name for name, command in COMMANDS.items() if command.module.endswith((".stack", ".version", ".local"))]


@pytest.mark.parametrize("name", ON_STACKS)
def test_every_command_is_told(name):
    assert f"\n| `{name}` |" in PAGE


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.field)
def test_every_flag_is_told_with_its_option(flag):
    forms = ", ".join(f"`{form}`" for form in flag.form.split("/"))

    assert f"\n| {forms} | `{flag.field}` |" in PAGE
