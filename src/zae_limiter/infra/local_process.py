"""Run the local AWS as a background process: ministack, without docker. It saves its state when it is stopped."""

import json
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from zae_limiter.core.errors import LocalAwsError
from zae_limiter.infra.local_files import LocalFiles, Server, holds_within

_KILL_S = 10.0

# Writes its process id into the pid file, whose lock it has inherited, and becomes the server. The
# outer shell ends immediately, so that the server is not a child of the caller.
_LAUNCH = 'sh -c \'echo $$ >"$0"; exec "$@"\' "$@" &'

# The environment variables that the server inherits: no credentials, no endpoint, no profile.
_PASSED_ON = ("PATH", "HOME", "LANG", "LC_ALL", "TMPDIR")
# They belong to the environment of the caller, and so to the server only if it runs there.
_OF_ENVIRONMENT = ("PYTHONPATH", "VIRTUAL_ENV")


def start(files: LocalFiles, server: Server, python: Path) -> bool:
    """Start the server in the background with an interpreter that has it; False if one is already running.

    Raises:
        LocalAwsError: The port is in use.
    """
    with files.claiming() as lock:
        if lock is None:
            return False
        _require_free(server.port)
        files.pid_file.write_text("")
        files.write_record(server)
        _rewind_streams(files.state)
        with files.log.open("ab") as log:
            launched = subprocess.run(
                ["sh", "-c", _LAUNCH, "sh", str(files.pid_file), *_command(python, server.port)],
                env=_environment(files.state, server, python),
                cwd="/",
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                pass_fds=(lock,),
                check=False,
            )
    if launched.returncode:
        raise LocalAwsError("the shell could not start it", files.tail())
    return True


def stop(files: LocalFiles, patience_s: float) -> None:
    """Stop the server and its child processes; it saves its state if that takes at most ``patience_s`` seconds.

    Raises:
        LocalAwsError: It does not stop, or its process belongs to another user.
    """
    if not files.lives():
        return
    pid = files.pid()
    try:
        group = os.getpgid(pid)
        os.kill(pid, signal.SIGTERM)
    except ProcessLookupError:
        return
    except PermissionError as error:
        raise LocalAwsError(f"process {pid} belongs to another user, which must stop it") from error
    ended = holds_within(patience_s, lambda: not files.lives())
    with suppress(ProcessLookupError, PermissionError):
        # Its Lambda functions are processes of the same group.
        os.killpg(group, signal.SIGKILL)
    if not ended and not holds_within(_KILL_S, lambda: not files.lives()):
        raise LocalAwsError(f"process {pid} does not stop", files.tail())


def _command(python: Path, port: int) -> list[str]:
    server = [str(python), "-m", "hypercorn", "ministack.app:app", "--workers", "0", "--keep-alive", "75"]
    return [*server, "--bind", f"127.0.0.1:{port}", "--log-level", "INFO"]


def _environment(state: Path, server: Server, python: Path) -> dict[str, str]:
    passed_on = (*_PASSED_ON, *_OF_ENVIRONMENT) if python == Path(sys.executable) else _PASSED_ON
    known = {name: os.environ[name] for name in passed_on if name in os.environ}
    kept = {"PERSIST_STATE": "1", "STATE_DIR": str(state), "S3_PERSIST": "1", "S3_DATA_DIR": str(state / "s3")}
    # Keep unused ports closed, and do not search for a container engine.
    off = {"SFTP_ENABLED": "0", "IOT_MTLS_ENABLED": "0", "DOCKER_HOST": "unix:///nonexistent"}
    return {**known, **kept, **off, "GATEWAY_PORT": str(server.port), "MINISTACK_REGION": server.region}


def _rewind_streams(state: Path) -> None:
    """Make functions read streams from their beginning.

    ministack saves how far they had read, but not the streams. So it would skip as many new
    records. State in another format is left as it is.
    """
    kept = state / "lambda.json"
    try:
        held = json.loads(kept.read_text(encoding="utf-8"))
        del held["payload"]["dynamodb_stream_positions"]
    except (OSError, ValueError, LookupError, TypeError):
        return
    fresh = kept.with_suffix(".new")
    fresh.write_text(json.dumps(held), encoding="utf-8")
    fresh.replace(kept)


def _require_free(port: int) -> None:
    with socket.socket() as tried:
        # As the server does, ignore connections that have just closed.
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            way_out = f"choose another: zae-limiter local up --port {port + 1 if port < 65535 else 4566}"
            raise LocalAwsError(f"port {port} cannot be used ({error.strerror}); {way_out}") from error
