"""Read and write the objects of one run in the bucket of a load test. Blocking."""

import io
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from zae_limiter.core.errors import ValidationError
from zae_limiter.loadtest.code_bucket import LOCUSTFILES_KEY, CodeBucket
from zae_limiter.loadtest.run_config import (
    CURRENT_RUN_KEY,
    MASTER_ID,
    RESULT_NAME,
    RunConfig,
    RunMode,
    check_file,
    failure_name,
    progress_name,
    run_key,
    stop_name,
)

_FAILURE = "failure-"


@dataclass(frozen=True, slots=True)
class RunFailure:
    """Why a worker or the master failed, and the last lines of its log."""

    worker_id: str
    reason: str
    log_lines: tuple[str, ...]


class RunObjects:
    """The objects of one run."""

    def __init__(self, bucket: CodeBucket, config: RunConfig) -> None:
        self._bucket = bucket
        self.config = config

    def begin(self) -> None:
        """Write the configuration, and make it the run that a master executes, if it needs one."""
        self._bucket.put_json(run_key(self.config.run_id), self.config.to_dict())
        if self.config.mode is not RunMode.HEADLESS:
            self._bucket.put_json(CURRENT_RUN_KEY, {"run_id": self.config.run_id})

    def report_progress(self, worker_id: str, progress: dict[str, Any]) -> None:
        """Replace what a worker reports."""
        self._bucket.put_json(self.config.key(progress_name(worker_id)), progress)

    def progress(self, worker_id: str = MASTER_ID) -> dict[str, Any] | None:
        """Return what a worker reported last; None if it has not started."""
        return self._read(progress_name(worker_id))

    def report_failure(self, failure: RunFailure) -> None:
        """Write why a worker failed."""
        said = {"reason": failure.reason, "log_lines": list(failure.log_lines)}
        self._bucket.put_json(self.config.key(failure_name(failure.worker_id)), said)

    def failed_workers(self) -> list[str]:
        """Return the ids of all workers that failed."""
        prefix = self.config.key(_FAILURE)
        return [key.removeprefix(prefix).removesuffix(".json") for key in self._bucket.list(prefix)]

    def failure(self, worker_id: str) -> RunFailure | None:
        """Return why a worker failed; None if it did not."""
        said = self._read(failure_name(worker_id))
        return None if said is None else RunFailure(worker_id, said["reason"], tuple(said["log_lines"]))

    def report_result(self, result: dict[str, Any]) -> None:
        """Write the result, which ends the run."""
        self._bucket.put_json(self.config.key(RESULT_NAME), result)

    def result(self) -> dict[str, Any] | None:
        """Return the result; None if the run has not ended."""
        return self._read(RESULT_NAME)

    def request_stop(self, worker_id: str | None = None) -> None:
        """Let one worker, or the whole run, end soon."""
        self._bucket.put_json(self.config.key(stop_name(worker_id)), {})

    def is_stop_requested(self, worker_id: str | None = None) -> bool:
        """Return whether the worker, or the whole run, has to end."""
        names = [stop_name()] if worker_id is None else [stop_name(), stop_name(worker_id)]
        return any(self._bucket.exists(self.config.key(name)) for name in names)

    def unpack_locust_files(self, folder: Path) -> None:
        """Write the pushed locust files to a folder.

        Raises:
            ValidationError: The file of the run was not pushed.
        """
        unpack_locust_files(self._bucket, self.config.file, folder)

    def _read(self, name: str) -> dict[str, Any] | None:
        found = self._bucket.get_json(self.config.key(name))
        return None if found is None else dict(found)


def open_run(bucket: CodeBucket, run_id: str) -> RunObjects:
    """Return the objects of a run that has begun.

    Raises:
        ValidationError: There is no such run.
    """
    found = bucket.get_json(run_key(run_id))
    if found is None:
        raise ValidationError("run_id", run_id, "there is no such run")
    return RunObjects(bucket, RunConfig.from_dict(found))


def current_run_id(bucket: CodeBucket) -> str | None:
    """Return the run that a master executes; None if there was none."""
    found = bucket.get_json(CURRENT_RUN_KEY)
    return None if found is None else str(found["run_id"])


def unpack_locust_files(bucket: CodeBucket, file: str, folder: Path) -> None:
    """Write the pushed locust files to a folder.

    Raises:
        ValidationError: The file was not pushed.
    """
    with _locust_files(bucket) as files:
        check_file(file, files.namelist())
        files.extractall(folder)


def require_locust_file(bucket: CodeBucket, file: str) -> None:
    """Require that a locust file was pushed.

    Raises:
        ValidationError: The file was not pushed.
    """
    with _locust_files(bucket) as files:
        check_file(file, files.namelist())


def _locust_files(bucket: CodeBucket) -> zipfile.ZipFile:
    packed = bucket.get_file(LOCUSTFILES_KEY)
    if packed is None:
        raise ValidationError("bucket", bucket.name, "has no locust files; push them: zae-limiter loadtest push")
    return zipfile.ZipFile(io.BytesIO(packed))
