"""JSON is written and read equally with and without orjson."""

import importlib.util
import sys
from types import ModuleType

import pytest

from zae_limiter.tables.dynamodb import json as notation

VALUES = [{}, {"N": "1"}, ["ü", '"', "\\", "\n", "\u2028"], True, None, {"M": {"a": {"L": []}}}, -7, 1.5, "x" * 5_000]
NOT_JSON = [b"", b"{", b"<html>", b"\xff\xfe{}", b"{'a': 1}", b"[" * 100_000]


@pytest.fixture
def plain(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The module as imported without orjson."""
    monkeypatch.setitem(sys.modules, "orjson", None)
    spec = importlib.util.spec_from_file_location("plain_notation", notation.__file__)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("value", VALUES)
def test_json_is_written_equally_with_and_without_orjson(plain: ModuleType, value: object):
    """The bytes are the same, and each reads what the other wrote."""
    assert "orjson" != plain.dumps.__module__ == "plain_notation"
    assert notation.dumps(value) == plain.dumps(value)
    assert value == plain.loads(notation.dumps(value)) == notation.loads(plain.dumps(value))


@pytest.mark.parametrize("text", NOT_JSON)
def test_invalid_json_raises_the_same_error_with_and_without_orjson(plain: ModuleType, text: bytes):
    """Callers handle one error type."""
    for module in (notation, plain):
        with pytest.raises(notation.JSONDecodeError):
            module.loads(text)


@pytest.mark.parametrize("value", ["\ud800", object(), {"a": {1, 2}}])
def test_text_with_a_lone_surrogate_is_refused_with_and_without_orjson(plain: ModuleType, value: object):
    """Half of a surrogate pair cannot be encoded."""
    for module in (notation, plain):
        with pytest.raises(TypeError):
            module.dumps(value)
