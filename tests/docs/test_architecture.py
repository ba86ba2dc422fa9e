"""The architecture page shows the keys that the code makes, and names files that there are."""

import re
from pathlib import Path

import pytest

from zae_limiter.schema import keys

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
NS, ENTITY, RESOURCE, WINDOW, SHARD = "{ns}", "{entity}", "{resource}", "{window}", "{shard}"

KEYS = [
    keys.pk_system(NS),
    keys.pk_registry(),
    keys.pk_resource(NS, RESOURCE),
    keys.pk_entity(NS, ENTITY),
    keys.pk_bucket(NS, ENTITY, RESOURCE, SHARD),  # type: ignore[arg-type]  # a stand-in for its number
    keys.pk_audit(NS, ENTITY),
    keys.sk_state(),
    keys.sk_meta(),
    keys.sk_version(),
    keys.sk_resources(),
    keys.sk_entity_config_resources(),
    keys.sk_config(),
    keys.sk_config(RESOURCE),
    keys.sk_usage(RESOURCE, WINDOW),
    keys.sk_audit("{event}"),
    keys.sk_namespace("{name}"),
    keys.sk_nsid(NS),
    keys.gsi1_pk_parent(NS, "{parent}"),
    keys.gsi1_sk_child(ENTITY),
    keys.gsi2_pk_resource(NS, RESOURCE),
    keys.gsi2_sk_bucket(ENTITY, SHARD),  # type: ignore[arg-type]  # a stand-in for its number
    keys.gsi2_sk_usage(WINDOW, ENTITY),
    keys.gsi3_pk_entity_config(NS, RESOURCE),
    keys.gsi3_sk_entity(ENTITY),
    keys.gsi3_pk_entity(NS, ENTITY),
    keys.gsi3_sk_bucket(RESOURCE, SHARD),  # type: ignore[arg-type]  # a stand-in for its number
    keys.gsi4_pk(NS),
]
SECTION = PAGE.partition("## What is in the table")[2].partition("\n\n| to ")[0]
FILES = sorted(set(re.findall(r"`([\w/]+\.(?:py|yaml))", PAGE)))


def test_every_key_is_shown_as_it_is_made():
    """Whoever looks into a table finds what the page says."""
    shown = set(re.findall(r"`([^`]+)`", SECTION))

    assert set(KEYS) <= shown


def test_every_key_that_is_shown_is_made():
    """And nothing that is not there."""
    shown = {text for row in re.findall(r"^\|.*", SECTION, re.MULTILINE) for text in re.findall(r"`([^`]+)`", row)}

    assert shown
    assert shown <= set(KEYS)


@pytest.mark.parametrize("path", FILES)
def test_a_file_that_is_named_is_there(path):
    """A newcomer opens it."""
    rooms = (ROOT / "src", ROOT / "tests", ROOT / "tools", ROOT / "bench")

    assert any(found.as_posix().endswith(f"/{path}") for room in rooms for found in room.rglob(Path(path).name))
