import http.client
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.dynamodb import engines, raw
from tests.dynamodb.engines import Command, Engine, EngineAbsentError

TRIES_S = 20.0

ORPHAN = """
import sys
from tests.dynamodb import engines
print(engines.start("ministack").url, flush=True)
sys.stdin.read()
"""


def item(**attributes: object) -> dict[str, object]:
    return {"PK": {"S": "part"}, "SK": {"S": "sort"}, **attributes}


def stops_answering(url: str) -> bool:
    end = time.monotonic() + TRIES_S
    while time.monotonic() < end:
        try:
            raw.call(url, "ListTables", {})
        except (OSError, http.client.HTTPException):
            return True
        time.sleep(engines.POLL_S)
    return False


class TestRunning:
    def test_an_engine_stores_an_item(self, engine: Engine, table_name: str):
        """A table can be created, written and read by plain HTTP."""
        created = raw.create_table(engine.url, table_name)
        written = raw.call(engine.url, "PutItem", {"TableName": table_name, "Item": item(n={"N": "1"})})
        read = raw.call(engine.url, "GetItem", {"TableName": table_name, "Key": item(), "ConsistentRead": True})

        assert [200, 200, 200] == [created.status, written.status, read.status]
        assert item(n={"N": "1"}) == read.json["Item"]

    def test_an_engine_runs_once_per_process(self, engine: Engine):
        """Every caller gets the same engine."""
        assert engine is engines.running(engine.name)

    def test_an_engine_keeps_a_connection_open(self, engine: Engine):
        """A second call uses the connection of the first."""
        connection = raw.connect(engine.url)
        raw.ask(connection, "ListTables", {})
        first = connection.sock
        raw.ask(connection, "ListTables", {})

        assert first is connection.sock
        connection.close()

    def test_engine_responses_have_a_date_and_a_checksum(self, engine: Engine):
        """The clock and the transport depend on them."""
        answer = raw.call(engine.url, "ListTables", {})

        assert {"date", "x-amz-crc32"} <= answer.headers.keys()

    def test_fresh_table_names_are_long_and_unique(self):
        """Dynoxide requires at least 11 characters; tests share an engine."""
        names = [engines.fresh_table_name() for _ in range(100)]

        assert 100 == len(set(names))
        assert all(len(name) >= 11 for name in names)


class TestStopping:
    def test_a_stopped_engine_leaves_no_process_and_no_port(self, engine: Engine):
        """The whole process group has ended."""
        own = engines.start(engine.name)
        own.stop()

        with pytest.raises(ProcessLookupError):
            os.killpg(own.process.pid, 0)
        with pytest.raises(ConnectionRefusedError):
            raw.call(own.url, "ListTables", {})

    def test_an_engine_ends_with_a_killed_parent(self):
        """A test run that dies leaves no engine."""
        with subprocess.Popen(
            [sys.executable, "-c", ORPHAN], cwd=engines.ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as parent:
            url = parent.stdout.readline().strip()
            answered = raw.call(url, "ListTables", {}).status
            parent.send_signal(signal.SIGKILL)

        assert 200 == answered
        assert stops_answering(url)


class TestFailing:
    def test_an_engine_that_ends_during_the_start_raises_its_output(self, monkeypatch: pytest.MonkeyPatch):
        """The error has its last output, and is raised before the deadline."""
        monkeypatch.setitem(engines.ENGINES, "broken", lambda port: Command(["sh", "-c", "echo no disk; exit 3"], {}))

        with pytest.raises(RuntimeError, match="broken does not answer; it said:\nno disk"):
            engines.start("broken")

    def test_a_missing_engine_binary_is_explained(self, monkeypatch: pytest.MonkeyPatch):
        """The skip reason says how to install it."""
        monkeypatch.setattr(engines, "INSTALLED", engines.ROOT / "nowhere")
        monkeypatch.setenv("PATH", "/nonexistent")

        with pytest.raises(EngineAbsentError, match=r"tools/engines\.sh installs it"):
            engines.start("dynoxide")
