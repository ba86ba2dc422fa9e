"""``status`` of a file whose write-ahead log cannot be shortened."""

import sqlite3
from pathlib import Path

from tests.cli.aws import invoke, printed_json
from zae_limiter.core.checkpoint import LIMIT_BYTES
from zae_limiter.schema.operations import Put
from zae_limiter.tables.sqlite.table import SqliteTable


def test_status_reports_a_log_that_a_foreign_reader_keeps_from_shrinking(tmp_path: Path) -> None:
    """Text and JSON show its size, until the reader closes the file."""
    path = tmp_path / "limiter.db"
    table = SqliteTable(path)
    reader = sqlite3.connect(path, isolation_level=None)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM items").fetchone()
    for number in range(15):
        table.write(Put({"PK": "part", "SK": str(number), "text": f"{number:02}" * 2**19}))
    held = printed_json(invoke("status", "--url", f"sqlite:///{path}", "--json"))
    plain = invoke("status", "--url", f"sqlite:///{path}").stdout
    reader.close()
    free = printed_json(invoke("status", "--url", f"sqlite:///{path}", "--json"))
    table.close()

    assert True is held["log_held_back"]
    assert LIMIT_BYTES // 4 < held["log_size_bytes"] < LIMIT_BYTES
    assert "held back by another program" in plain
    assert False is free["log_held_back"]
    # The checkpoint leaves the first page of the next log.
    assert 100 * free["log_size_bytes"] < held["log_size_bytes"]
