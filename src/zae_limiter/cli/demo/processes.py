"""Start a process for each key, read its reports, and stop it."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from typing import Self

from zae_limiter.cli.demo.reports import Report, from_line
from zae_limiter.cli.demo.scenario import TRAFFIC_DEADLINE_S
from zae_limiter.core.errors import InfrastructureError

# As long as a call may wait for the file, so that no completed call is lost from the counts.
_STOP_WITHIN_S = TRAFFIC_DEADLINE_S


class KeyProcess:
    """The process of one key."""

    def __init__(self, key_id: str, process: Process) -> None:
        self.key_id = key_id
        self._process = process

    @classmethod
    async def start(cls, path: str, key_id: str, seed: int) -> Self:
        """Start a process that calls the model for a key, on the file at this path.

        It has its own session, so that Ctrl-C in a terminal only reaches the demo.
        """
        command = [sys.executable, "-P", "-m", "zae_limiter.cli.demo.worker", path, key_id, str(seed)]
        # The same modules as here, and none from the current directory.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
        process = await asyncio.create_subprocess_exec(
            *command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment, start_new_session=True
        )
        return cls(key_id, process)

    async def wait_until_ready(self) -> None:
        """Wait for the first report, which says that the process has opened the file."""
        if self._process.stdout is not None:
            await self._process.stdout.readline()

    async def read(self, record: Callable[[str, Report], None]) -> None:
        """Hand over every report until the process ends.

        Raises:
            InfrastructureError: The process failed.
        """
        stdout, stderr = self._process.stdout, self._process.stderr
        if stdout is None or stderr is None:
            raise AssertionError("the process was started without pipes")
        async for line in stdout:
            record(self.key_id, from_line(line.decode()))
        errors = (await stderr.read()).decode().strip()
        if await self._process.wait() != 0:
            raise InfrastructureError(f"the process of {self.key_id} failed: {errors.rpartition(chr(10))[2]}")

    async def close(self) -> None:
        """Kill the process if it still runs, because the demo failed."""
        if self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def stop(self) -> None:
        """Let the process complete its calls and end; kill it if it does not."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        try:
            await asyncio.wait_for(self._process.wait(), _STOP_WITHIN_S)
        except TimeoutError:
            await self.close()
