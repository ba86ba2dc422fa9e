"""The local AWS as a process: it runs once, keeps its state, and explains why it does not start."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.infra.local_servers import BROKEN, SILENT, STUBBORN, always_stopped, anywhere, in_place_of_ministack
from zae_limiter.core.errors import LocalAwsError
from zae_limiter.infra import local
from zae_limiter.infra.local import LocalAws, Wanted, session_of
from zae_limiter.infra.local_files import LocalFiles, LogReader, Server

AN_UP = """
import sys, pathlib
from zae_limiter.infra.local import LocalAws, Wanted
print(LocalAws(pathlib.Path(sys.argv[1])).up(Wanted(port=int(sys.argv[2]))).pid)
"""


@pytest.fixture
def aws(tmp_path):
    with always_stopped(tmp_path / "local") as aws:
        yield aws


def client(service: str, server):
    return session_of(server).create_client(service, endpoint_url=server.endpoint_url)


def process_lives(pid: int) -> bool:
    """Return whether a process runs; a zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends(lives: Callable[[], object]) -> bool:
    """Return whether a terminating process ends soon."""
    deadline_s = time.monotonic() + 60
    while lives() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return not lives()


class TestUpAndDown:
    def test_local_aws_keeps_its_state_across_a_restart(self, aws):
        """Tables and objects outlive the process."""
        wanted = anywhere()
        first = aws.up(wanted)
        schema = {"KeySchema": [{"AttributeName": "PK", "KeyType": "HASH"}], "BillingMode": "PAY_PER_REQUEST"}
        kinds = {"AttributeDefinitions": [{"AttributeName": "PK", "AttributeType": "S"}]}
        client("dynamodb", first.server).create_table(TableName="kept", **schema, **kinds)
        client("dynamodb", first.server).put_item(TableName="kept", Item={"PK": {"S": "a"}, "n": {"N": "7"}})
        client("s3", first.server).create_bucket(Bucket="kept")
        client("s3", first.server).put_object(Bucket="kept", Key="k", Body=b"object")
        aws.down()
        second = aws.up(wanted)

        item = client("dynamodb", second.server).get_item(TableName="kept", Key={"PK": {"S": "a"}})["Item"]
        assert {"PK": {"S": "a"}, "n": {"N": "7"}} == item
        assert b"object" == client("s3", second.server).get_object(Bucket="kept", Key="k")["Body"].read()
        assert first.pid != second.pid

    def test_local_aws_starts_empty_after_a_wipe(self, aws):
        """The state can be reset."""
        wanted = anywhere()
        client("s3", aws.up(wanted).server).create_bucket(Bucket="gone")
        aws.down(wipe=True)

        assert [] == client("s3", aws.up(wanted).server).list_buckets()["Buckets"]

    def test_a_wipe_that_fails_raises_an_error(self, aws, tmp_path):
        """Success is not reported while the state exists."""
        aws.directory.mkdir()
        (tmp_path / "elsewhere").mkdir()
        (aws.directory / "state").symlink_to(tmp_path / "elsewhere")

        with pytest.raises(LocalAwsError, match=r"remove .*state by hand"):
            aws.down(wipe=True)

    def test_a_wipe_without_state_succeeds(self, aws):
        assert aws.down(wipe=True) is None

    def test_local_up_keeps_a_running_local_aws(self, aws):
        """Without a port, any running server is accepted."""
        first = aws.up(anywhere())

        assert first == aws.up(Wanted()) == aws.status()

    def test_local_up_of_a_local_aws_that_runs_on_another_port_is_refused(self, aws):
        """The requested port is not silently replaced."""
        running = aws.up(anywhere()).server

        with pytest.raises(LocalAwsError, match=f"on port {running.port}, in region us-east-1, as a process; stop it"):
            aws.up(Wanted(port=running.port - 1, region="eu-west-1", in_docker=True))

    def test_two_concurrent_starts_of_a_local_aws_share_one_server(self, aws, tmp_path):
        """One starts it; the other waits for it."""
        port = str(anywhere().port)
        command = [sys.executable, "-c", AN_UP, str(aws.directory), port]
        starters = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        printed = [starter.communicate(timeout=300)[0] for starter in starters]

        assert [f"{aws.status().pid}\n"] * 3 == printed

    def test_local_down_stops_the_local_aws_and_can_be_repeated(self, aws):
        """The second call has nothing to stop."""
        running = aws.up(anywhere())

        assert (running.server, None, None) == (aws.down(), aws.status(), aws.down())
        assert ends(lambda: process_lives(running.pid))

    def test_local_down_kills_an_unresponsive_local_aws_and_its_children(self, aws, tmp_path, monkeypatch):
        """Lambda functions are processes too, and none is left."""
        monkeypatch.setenv("PYTHONPATH", in_place_of_ministack(tmp_path, STUBBORN))
        monkeypatch.setattr(local, "_STOP_S", 1.0)
        running = aws.up(anywhere())
        child = int((aws.directory / "state" / "child").read_text())
        aws.down()

        # Signalled processes end some time later.
        ended = [ends(lambda pid=pid: process_lives(pid)) for pid in (child, running.pid)]

        assert ([True, True], None) == (ended, aws.status())


class TestStaleRecords:
    def test_a_stale_pid_file_does_not_identify_a_server(self, aws):
        """Its number may belong to another process, here the test itself, which is not ended."""
        aws.up(anywhere())
        aws.down()
        (aws.directory / "server.pid").write_text(f"{os.getpid()}\n")

        assert (None, None) == (aws.status(), aws.down())
        assert aws.up(anywhere()).answers

    def test_a_killed_local_aws_can_be_started_again(self, aws):
        """No manual cleanup is necessary."""
        killed = aws.up(anywhere())
        os.kill(killed.pid, signal.SIGKILL)
        # Its threads end one after the other.
        ended = ends(lambda: aws.status() is not None)

        assert ended
        assert aws.up(anywhere()).answers

    @pytest.mark.parametrize("text", ["", "[]", "{", '{"port": "x"}', '{"kind": "process"}'])
    def test_a_damaged_record_without_a_server_is_ignored(self, aws, text):
        """Only a running server needs a record."""
        aws.directory.mkdir()
        (aws.directory / "server.json").write_text(text)

        assert aws.status() is None

    def test_a_server_without_a_record_is_reported(self, aws):
        """It is neither used nor started again."""
        running = aws.up(anywhere())
        record = aws.directory / "server.json"
        text = record.read_text()
        record.unlink()
        try:
            with pytest.raises(LocalAwsError, match=f"process {running.pid} is running"):
                aws.up(anywhere())
        finally:
            record.write_text(text)


class TestFailedStart:
    def test_local_up_on_a_port_in_use_names_the_port_and_an_alternative(self, aws):
        """No process is left."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(LocalAwsError, match=f"port {port} cannot be used .*zae-limiter local up --port"):
                aws.up(Wanted(port=port))

        assert aws.status() is None

    def test_local_up_of_a_server_that_ends_during_the_start_shows_its_log(self, aws, tmp_path, monkeypatch):
        """Only the log of this start is shown. A later start works."""
        with monkeypatch.context() as patch:
            patch.setenv("PYTHONPATH", in_place_of_ministack(tmp_path, BROKEN))
            with pytest.raises(LocalAwsError, match="it ended during startup; the end of its log:") as caught:
                aws.up(anywhere())
            with pytest.raises(LocalAwsError) as again:
                aws.up(anywhere())

        assert ("no such luck",) == caught.value.log_lines == again.value.log_lines
        assert aws.up(anywhere()).answers

    def test_an_interrupt_during_the_start_leaves_no_process(self, aws, tmp_path, monkeypatch):
        """It comes at the first moment after the process was started."""
        monkeypatch.setenv("PYTHONPATH", in_place_of_ministack(tmp_path, SILENT))
        start = local.local_process.start

        def interrupted(files: LocalFiles, server: Server, python: Path) -> None:
            start(files, server, python)
            raise KeyboardInterrupt

        monkeypatch.setattr(local.local_process, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            aws.up(anywhere())

        assert (None, False) == (aws.status(), (aws.directory / "server.json").exists())

    def test_local_up_with_a_directory_that_cannot_be_created_names_it(self, tmp_path):
        """A file has the same path."""
        (tmp_path / "file").write_text("")

        with pytest.raises(LocalAwsError, match=f"cannot create the directory {tmp_path}/file/local"):
            LocalAws(tmp_path / "file" / "local").up(anywhere())


def test_functions_of_the_local_aws_see_no_credentials_of_the_user(monkeypatch, tmp_path, aws):
    """They see no profile, endpoint or region either."""
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL", "GATEWAY_PORT"):
        monkeypatch.setenv(name, "mine")
    running = aws.up(anywhere())

    seen = Path(f"/proc/{running.pid}/environ").read_bytes().decode().split("\0")
    assert [] == [line for line in seen if line.endswith("=mine")]
    assert f"GATEWAY_PORT={running.server.port}" in seen


class TestLog:
    def test_the_log_of_a_local_aws_is_followed_to_its_end(self, aws):
        """It starts with the last lines and has no gap until the server ends."""
        aws.up(anywhere())
        lines = iter(aws.follow(3))
        followed = [next(lines)]
        follower = threading.Thread(target=lambda: followed.extend(lines), daemon=True)
        follower.start()
        aws.down()
        follower.join(60)

        assert not follower.is_alive()
        assert aws.logs(10_000)[-len(followed) :] == followed
        assert 3 < len(followed)

    def test_the_log_before_the_first_start_is_empty(self, aws):
        """A missing log is not an error."""
        assert ([], []) == (aws.logs(), list(aws.follow()))

    def test_the_log_is_read_in_complete_lines(self, tmp_path):
        """A partial line is left for the next read."""
        log = tmp_path / "log"
        log.write_text("one\ntwo\nthr")
        reader = LogReader(log)
        last = reader.last(1)
        log.write_text("one\ntwo\nthree\n")

        assert (["two"], ["three"], []) == (last, reader.new(), reader.new())

    def test_a_rotated_log_is_read_from_its_beginning(self, tmp_path):
        """A long log is rotated at a start."""
        log = tmp_path / "log"
        log.write_text("long\n" * 100)
        reader = LogReader(log)
        reader.last(1)
        log.write_text("new\n")

        assert ["new"] == reader.new()

    def test_a_long_log_is_rotated(self, aws):
        """One old log is kept."""
        aws.directory.mkdir()
        log = aws.directory / "server.log"
        log.write_text("x" * 6_000_000)
        aws.up(anywhere())

        assert 6_000_000 == (aws.directory / "server.log.1").stat().st_size
        assert log.stat().st_size < 1_000_000
