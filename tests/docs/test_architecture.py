"""The architecture page shows the keys that the code makes; it and CONTRIBUTING name what exists."""

import ast
import functools
import re
from pathlib import Path

import pytest

from zae_limiter.schema import keys

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text()
CONTRIBUTING = (ROOT / "CONTRIBUTING.md").read_text()
NS, ENTITY, RESOURCE, WINDOW, SHARD = "{ns}", "{entity}", "{resource}", "{window}", "{shard}"

KEYS = [
    keys.pk_system(NS),
    keys.pk_registry(),
    keys.pk_resource(NS, RESOURCE),
    keys.pk_entity(NS, ENTITY),
    keys.pk_bucket(NS, ENTITY, RESOURCE, SHARD),  # type: ignore[arg-type]  # a placeholder for its number
    keys.pk_audit(NS, ENTITY),
    keys.sk_state(),
    keys.sk_meta(),
    keys.sk_version(),
    keys.sk_resources(),
    keys.sk_entity_config_resources(),
    keys.sk_config(),
    keys.sk_config(RESOURCE),
    keys.sk_usage(RESOURCE, WINDOW),
    keys.sk_warned(RESOURCE),
    keys.sk_audit("{event}"),
    keys.sk_credit("{key}"),
    keys.sk_namespace("{name}"),
    keys.sk_nsid(NS),
    keys.gsi1_pk_parent(NS, "{parent}"),
    keys.gsi1_sk_child(ENTITY),
    keys.gsi2_pk_resource(NS, RESOURCE),
    keys.gsi2_sk_bucket(ENTITY, SHARD),  # type: ignore[arg-type]  # a placeholder for its number
    keys.gsi2_sk_usage(WINDOW, ENTITY),
    keys.gsi3_pk_entity_config(NS, RESOURCE),
    keys.gsi3_sk_entity(ENTITY),
    keys.gsi3_pk_entity(NS, ENTITY),
    keys.gsi3_sk_bucket(RESOURCE, SHARD),  # type: ignore[arg-type]  # a placeholder for its number
    keys.gsi4_pk(NS),
    keys.gsi4_sk_entity(ENTITY),
    keys.gsi4_sk_audit("{event}"),
    keys.gsi4_sk_usage(WINDOW, ENTITY, RESOURCE),
]
SECTION = PAGE.partition("## What is in the table")[2].partition("\n\n| to ")[0]
# Line N of `_sync/x.py` is line N of `_async/x.py`, for every x.
FILES = sorted(
    {
        path
        for path in re.findall(r"[\w/]+\.(?:py|yaml)\b", f"{PAGE}\n{CONTRIBUTING}")
        if not path.endswith("/x.py") and "/" in path
    }
    | set(re.findall(r"`([\w/]+\.(?:py|yaml))", PAGE))
)
FUNCTIONS = sorted(set(re.findall(r"`([\w/]+\.py): ([\w.]+)`", f"{PAGE}\n{CONTRIBUTING}")))
FOLDERS = [ROOT / name for name in ("src", "tests", "tools", "bench")]


@functools.cache
def files_at(path: str) -> list[Path]:
    """Return the files whose path ends as a page gives it."""
    found = [file for folder in FOLDERS for file in folder.rglob(Path(path).name)]
    # Hidden folders are environments that tools make.
    return [
        file
        for file in found
        if file.as_posix().endswith(f"/{path}")
        and not any(part.startswith(".") for part in file.relative_to(ROOT).parts)
    ]


def defined_in(source: str) -> set[str]:
    """Return the functions and classes of a module, and the methods of its classes as ``Class.method``."""
    kinds = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)
    top = [node for node in ast.parse(source).body if isinstance(node, kinds)]
    inner = [
        f"{node.name}.{method.name}"
        for node in top
        if isinstance(node, ast.ClassDef)
        for method in node.body
        if isinstance(method, kinds)
    ]
    return {node.name for node in top} | set(inner)


def test_every_key_of_the_code_is_on_the_page():
    """A reader who looks into a table finds what the page says."""
    shown = set(re.findall(r"`([^`]+)`", SECTION))

    assert set(KEYS) <= shown


def test_every_key_on_the_page_is_made_by_the_code():
    """The page has no other keys."""
    shown = {text for row in re.findall(r"^\|.*", SECTION, re.MULTILINE) for text in re.findall(r"`([^`]+)`", row)}

    assert shown
    assert shown <= set(KEYS)


@pytest.mark.parametrize("path", FILES)
def test_named_file_exists(path: str):
    """A reader can open it."""
    assert files_at(path)


@pytest.mark.parametrize(("path", "name"), FUNCTIONS, ids=str)
def test_named_function_exists_in_its_file(path: str, name: str):
    """A reader who opens the file finds the function there."""
    found = files_at(path)

    assert found
    assert all(name in defined_in(file.read_text(encoding="utf-8")) for file in found)


@pytest.mark.parametrize(
    ("page", "name"),
    [
        (PAGE, "_async/limiter/lease.py: Lease.__aenter__"),
        (PAGE, "core/acquire.py: next_step"),
        (CONTRIBUTING, "core/acquire.py: next_step"),
        (CONTRIBUTING, "schema/bucket_writes.py: take"),
    ],
)
def test_call_path_is_described_by_its_functions(page: str, name: str):
    """Both pages follow an acquire from the lease to the write."""
    assert f"`{name}`" in page
    assert tuple(name.split(": ")) in FUNCTIONS


def test_function_that_does_not_exist_is_found():
    """The check can fail: only names at the top of a module and the methods of its classes count."""
    source = "class A:\n    async def f(self):\n        def inner(): ...\n\n\ndef g(): ...\n"

    assert {"A", "A.f", "g"} == defined_in(source)
