"""JSON is written and read alike with and without orjson."""

import importlib.util
import sys
from types import ModuleType

import pytest

from zae_limiter.tables.dynamodb import json as notation

VALUES = [{}, {"N": "1"}, ["ü", '"', "\\", "\n", "\u2028"], True, None, {"M": {"a": {"L": []}}}, -7, 1.5, "x" * 5_000]
NOT_JSON = [b"", b"{", b"<html>", b"\xff\xfe{}", b"{'a': 1}", b"[" * 100_000]


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as it is where there is no orjson."""
    monkeypatch.setitem(sys.modules, "orjson", None)
    spec = importlib.util.spec_from_file_location("plain_notation", notation.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("value", VALUES)
def test_both_write_the_same(plain: ModuleType, value: object):
    """Byte by byte, and each reads what the other wrote."""
    assert "orjson" != plain.dumps.__module__ == "plain_notation"
    assert notation.dumps(value) == plain.dumps(value)
    assert value == plain.loads(notation.dumps(value)) == notation.loads(plain.dumps(value))


@pytest.mark.parametrize("text", NOT_JSON)
def test_neither_reads_what_is_no_json(plain: ModuleType, text: bytes):
    """It is the same error."""
    for module in (notation, plain):
        with pytest.raises(notation.JSONDecodeError):
            module.loads(text)


@pytest.mark.parametrize("value", ["\ud800", object(), {"a": {1, 2}}])
def test_neither_writes_what_is_no_json(plain: ModuleType, value: object):
    """A lone half of a character is none."""
    for module in (notation, plain):
        with pytest.raises(TypeError):
            module.dumps(value)
