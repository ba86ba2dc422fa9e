"""The deployment page documents every command and every flag."""

from pathlib import Path

import pytest

from zae_limiter.cli import COMMANDS
from zae_limiter.cli._stack_options import FLAGS

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "infra" / "deployment.md").read_text(encoding="utf-8")
ON_STACKS = [
    name for name, command in COMMANDS.items() if command.module.endswith((".stack", ".export", ".version", ".local"))
]


@pytest.mark.parametrize("name", ON_STACKS)
def test_deployment_page_documents_every_stack_command(name):
    assert f"\n| `{name}` |" in PAGE


@pytest.mark.parametrize("flag", FLAGS, ids=lambda flag: flag.field)
def test_deployment_page_documents_every_flag_with_its_option(flag):
    forms = ", ".join(f"`{form}`" for form in flag.form.split("/"))

    assert f"\n| {forms} | `{flag.field}` |" in PAGE
