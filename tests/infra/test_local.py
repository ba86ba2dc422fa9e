"""The local AWS as a process: it is there once, keeps what it holds, and says why it is not there."""

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

from tests.infra.local_servers import BROKEN, SILENT, STUBBORN, anywhere, in_place_of_ministack, stopped_in_the_end
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
    with stopped_in_the_end(tmp_path / "local") as aws:
        yield aws


def client(service: str, server):
    return session_of(server).create_client(service, endpoint_url=server.endpoint_url)


def process_lives(pid: int) -> bool:
    """Whether a process runs; one that has ended and waits to be reaped does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def ends(lives: Callable[[], object]) -> bool:
    """Whether something that is dying is dead soon."""
    deadline_s = time.monotonic() + 60
    while lives() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return not lives()


class TestUpAndDown:
    def test_what_it_holds_is_there_after_a_restart(self, aws):
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

    def test_wiped_it_starts_empty(self, aws):
        """Whoever wants to begin anew can."""
        wanted = anywhere()
        client("s3", aws.up(wanted).server).create_bucket(Bucket="gone")
        aws.down(wipe=True)

        assert [] == client("s3", aws.up(wanted).server).list_buckets()["Buckets"]

    def test_what_cannot_be_wiped_is_said_so(self, aws, tmp_path):
        """It is not said to be gone while it is there."""
        aws.directory.mkdir()
        (tmp_path / "elsewhere").mkdir()
        (aws.directory / "state").symlink_to(tmp_path / "elsewhere")

        with pytest.raises(LocalAwsError, match=r"remove .*state by hand"):
            aws.down(wipe=True)

    def test_wiping_nothing_is_no_error(self, aws):
        assert aws.down(wipe=True) is None

    def test_up_leaves_one_that_runs_alone(self, aws):
        """Also when asked without a port, for whatever there is."""
        first = aws.up(anywhere())

        assert first == aws.up(Wanted()) == aws.status()

    def test_one_that_runs_otherwise_than_wanted_is_said_so(self, aws):
        """It is not silently another port than the one asked for."""
        running = aws.up(anywhere()).server

        with pytest.raises(LocalAwsError, match=f"on port {running.port}, in region us-east-1, as a process; stop it"):
            aws.up(Wanted(port=running.port - 1, region="eu-west-1", in_docker=True))

    def test_two_who_start_it_at_once_get_the_same(self, aws, tmp_path):
        """One starts it, the other waits and finds it."""
        port = str(anywhere().port)
        command = [sys.executable, "-c", AN_UP, str(aws.directory), port]
        starters = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(3)]
        told = [starter.communicate(timeout=300)[0] for starter in starters]

        assert [f"{aws.status().pid}\n"] * 3 == told

    def test_down_stops_it_and_can_be_repeated(self, aws):
        """The second finds nothing to stop."""
        running = aws.up(anywhere())

        assert (running.server, None, None) == (aws.down(), aws.status(), aws.down())
        assert ends(lambda: process_lives(running.pid))

    def test_what_does_not_end_is_ended_with_all_it_started(self, aws, tmp_path, monkeypatch):
        """Functions of Lambda are processes too, and none is left behind."""
        monkeypatch.setenv("PYTHONPATH", in_place_of_ministack(tmp_path, STUBBORN))
        monkeypatch.setattr(local, "_STOP_S", 1.0)
        running = aws.up(anywhere())
        child = int((aws.directory / "state" / "child").read_text())
        aws.down()

        # Told to end, they end when the machine comes round to them.
        ended = [ends(lambda pid=pid: process_lives(pid)) for pid in (child, running.pid)]

        assert ([True, True], None) == (ended, aws.status())


class TestLeftBehind:
    def test_a_pid_file_that_was_left_behind_names_no_server(self, aws):
        """Its number may be another process's by now, here our own: that is let live."""
        aws.up(anywhere())
        aws.down()
        (aws.directory / "server.pid").write_text(f"{os.getpid()}\n")

        assert (None, None) == (aws.status(), aws.down())
        assert aws.up(anywhere()).answers

    def test_a_server_that_was_killed_is_started_anew(self, aws):
        """Nothing needs to be cleaned up by hand."""
        killed = aws.up(anywhere())
        os.kill(killed.pid, signal.SIGKILL)
        # Its threads end one after the other.
        ended = ends(lambda: aws.status() is not None)

        assert ended
        assert aws.up(anywhere()).answers

    @pytest.mark.parametrize("text", ["", "[]", "{", '{"port": "x"}', '{"kind": "process"}'])
    def test_a_damaged_record_of_nothing_is_nothing(self, aws, text):
        """Only a server that runs needs one."""
        aws.directory.mkdir()
        (aws.directory / "server.json").write_text(text)

        assert aws.status() is None

    def test_a_server_without_a_record_is_named(self, aws):
        """It is neither taken over nor started twice."""
        running = aws.up(anywhere())
        record = aws.directory / "server.json"
        text = record.read_text()
        record.unlink()
        try:
            with pytest.raises(LocalAwsError, match=f"process {running.pid} is running"):
                aws.up(anywhere())
        finally:
            record.write_text(text)


class TestNotUp:
    def test_a_port_in_use_is_named_with_a_way_out(self, aws):
        """And nothing is left running."""
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
            with pytest.raises(LocalAwsError, match=f"port {port} cannot be used .*zae-limiter local up --port"):
                aws.up(Wanted(port=port))

        assert aws.status() is None

    def test_one_that_ends_while_it_starts_has_its_last_words_shown(self, aws, tmp_path, monkeypatch):
        """Those of this start only; afterwards it can be started."""
        with monkeypatch.context() as patch:
            patch.setenv("PYTHONPATH", in_place_of_ministack(tmp_path, BROKEN))
            with pytest.raises(LocalAwsError, match="it ended during startup; the end of its log:") as caught:
                aws.up(anywhere())
            with pytest.raises(LocalAwsError) as again:
                aws.up(anywhere())

        assert ("no such luck",) == caught.value.log_lines == again.value.log_lines
        assert aws.up(anywhere()).answers

    def test_an_interrupt_while_it_is_started_leaves_nothing_behind(self, aws, tmp_path, monkeypatch):
        """At whatever moment it comes, here the first after the process is there."""
        monkeypatch.setenv("PYTHONPATH", in_place_of_ministack(tmp_path, SILENT))
        start = local.local_process.start

        def interrupted(files: LocalFiles, server: Server) -> None:
            start(files, server)
            raise KeyboardInterrupt

        monkeypatch.setattr(local.local_process, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            aws.up(anywhere())

        assert (None, False) == (aws.status(), (aws.directory / "server.json").exists())

    def test_without_ministack_it_is_said_how_to_get_it(self, aws, monkeypatch):
        """It is an extra."""
        monkeypatch.setitem(sys.modules, "ministack", None)

        with pytest.raises(LocalAwsError, match=r'pip install "zae-limiter\[local\]"'):
            aws.up(anywhere())

    def test_a_directory_that_cannot_be_made_is_named(self, tmp_path):
        """A file stands in its place."""
        (tmp_path / "file").write_text("")

        with pytest.raises(LocalAwsError, match=f"cannot create the directory {tmp_path}/file/local"):
            LocalAws(tmp_path / "file" / "local").up(anywhere())

    def test_no_environment_leads_to_what_does_not_run(self, aws):
        """The error says how to start it."""
        with pytest.raises(LocalAwsError, match="zae-limiter local up"):
            aws.environment()


def test_its_functions_see_no_credentials_of_the_users(monkeypatch, tmp_path, aws):
    """Nor a profile, an endpoint or a region."""
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "AWS_ENDPOINT_URL", "GATEWAY_PORT"):
        monkeypatch.setenv(name, "mine")
    running = aws.up(anywhere())

    seen = Path(f"/proc/{running.pid}/environ").read_bytes().decode().split("\0")
    assert [] == [line for line in seen if line.endswith("=mine")]
    assert f"GATEWAY_PORT={running.server.port}" in seen


class TestLog:
    def test_it_is_followed_to_the_end(self, aws):
        """From the last lines on, without a gap, until the server has ended."""
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

    def test_there_is_none_before_the_first_start(self, aws):
        """That is no error."""
        assert ([], []) == (aws.logs(), list(aws.follow()))

    def test_only_whole_lines_are_read(self, tmp_path):
        """A line that is being written is left for the next look."""
        log = tmp_path / "log"
        log.write_text("one\ntwo\nthr")
        reader = LogReader(log)
        last = reader.last(1)
        log.write_text("one\ntwo\nthree\n")

        assert (["two"], ["three"], []) == (last, reader.new(), reader.new())

    def test_one_that_was_put_aside_is_read_from_its_beginning(self, tmp_path):
        """A long log is turned at a start."""
        log = tmp_path / "log"
        log.write_text("long\n" * 100)
        reader = LogReader(log)
        reader.last(1)
        log.write_text("new\n")

        assert ["new"] == reader.new()

    def test_a_long_log_is_put_aside(self, aws):
        """One is kept."""
        aws.directory.mkdir()
        log = aws.directory / "server.log"
        log.write_text("x" * 6_000_000)
        aws.up(anywhere())

        assert 6_000_000 == (aws.directory / "server.log.1").stat().st_size
        assert log.stat().st_size < 1_000_000
