"""The page about the stack documents every option and every policy."""

import re
from dataclasses import fields
from pathlib import Path

import pytest

from zae_limiter.infra import naming
from zae_limiter.infra.options import StackOptions

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "infra" / "stack.md").read_text(encoding="utf-8")
ROWS = {
    name: [part.strip() for part in default.split(", ")]
    for names, default in re.findall(r"^\| (`[a-z_]+`(?:, `[a-z_]+`)*) \| ([^|]+) \|", PAGE, re.MULTILINE)
    for name in names.replace("`", "").split(", ")
}


@pytest.mark.parametrize("name", [one.name for one in fields(StackOptions)])
def test_the_page_documents_every_option_with_its_default(name: str) -> None:
    default = getattr(StackOptions(), name)
    documented = "none" if name == "tags" else f'`"{default}"`' if isinstance(default, str) else str(default)

    assert documented in ROWS[name]


@pytest.mark.parametrize("name", [naming.policy_name("my-app", policy) for policy in naming.POLICIES])
def test_the_page_documents_every_policy(name: str) -> None:
    assert f"`{name}`" in PAGE
