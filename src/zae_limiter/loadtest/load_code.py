"""Upload the code of a load test: locust files, the package of the workers and the wheels of the master. Blocking."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from zae_limiter.core.errors import ValidationError
from zae_limiter.infra.clients import Clients
from zae_limiter.infra.function import LambdaFunction, UploadedPackage
from zae_limiter.infra.lambda_package import zip_of
from zae_limiter.loadtest.code_bucket import LOCUSTFILES_KEY, WHEELS_KEY, WORKER_KEY, CodeBucket
from zae_limiter.loadtest.load_options import LoadOutputs, load_stack_name
from zae_limiter.loadtest.package import LoadPackage, build_load_package, in_megabytes
from zae_limiter.loadtest.wheels import LAMBDA

_MOST_LOCUSTFILE_BYTES = 20 * 1024 * 1024
_SKIPPED = frozenset({"__pycache__", "node_modules", "venv"})


@dataclass(frozen=True, slots=True)
class PushedCode:
    """What was uploaded; False for what the stack had already. Sizes are in bytes, zipped and unzipped."""

    locust_files: tuple[str, ...]
    locust_files_changed: bool
    worker_changed: bool
    wheels_changed: bool
    worker_bytes: int
    worker_unzipped_bytes: int


def read_locust_files(folder: Path) -> dict[str, bytes]:
    """Return the files of a folder by their path in it, without hidden files and environments.

    Raises:
        ValidationError: The folder has no Python file, or is too large to be one of locust files.
    """
    found = {path.relative_to(folder).as_posix(): path for path in sorted(folder.rglob("*")) if path.is_file()}
    chosen = {name: path for name, path in found.items() if _is_code(Path(name))}
    if not any(name.endswith(".py") for name in chosen):
        raise ValidationError("directory", str(folder), "must have at least one locust file (*.py)")
    size = sum(path.stat().st_size for path in chosen.values())
    if size > _MOST_LOCUSTFILE_BYTES:
        limit = in_megabytes(_MOST_LOCUSTFILE_BYTES)
        reason = f"has {in_megabytes(size)}, and at most {limit} are uploaded; choose the folder of locust files only"
        raise ValidationError("directory", str(folder), reason)
    return {name: path.read_bytes() for name, path in chosen.items()}


def build_for(clients: Clients, say: Callable[[str], None]) -> LoadPackage:
    """Return the packages for the Lambda runtime, or for the Python that runs this if the AWS is a local one.

    Raises:
        MissingExtraError: The extra for load tests is not installed.
        PackageError: A wheel is missing, or the package is too large for Lambda.
    """
    return build_load_package(None if clients.is_local("lambda") else LAMBDA, say)


def push_code(
    outputs: LoadOutputs,
    clients: Clients,
    locust_files: dict[str, bytes],
    package: LoadPackage,
    say: Callable[[str], None],
) -> PushedCode:
    """Upload locust files and packages that differ from those of the stack.

    Raises:
        StorageError: The bucket cannot be written.
        StackOperationError: The function does not start.
    """
    bucket = CodeBucket(clients, outputs.bucket_name)
    say("uploading the locust files")
    files_changed = bucket.replace_file(LOCUSTFILES_KEY, zip_of(locust_files))
    say(f"uploading the package of the workers ({in_megabytes(len(package.worker))})")
    bucket.replace_file(WORKER_KEY, package.worker)
    function = LambdaFunction(outputs.function_name, load_stack_name(outputs.limiter_name), clients)
    worker_changed = function.upload(package.worker, uploaded=UploadedPackage(outputs.bucket_name, WORKER_KEY))
    wheels_changed = False
    if package.wheels is not None:
        say(f"uploading the wheels of the master ({in_megabytes(len(package.wheels))})")
        wheels_changed = bucket.replace_file(WHEELS_KEY, package.wheels)
    return PushedCode(
        tuple(sorted(locust_files)),
        files_changed,
        worker_changed,
        wheels_changed,
        len(package.worker),
        package.unzipped_bytes,
    )


def _is_code(path: Path) -> bool:
    hidden = any(part.startswith(".") for part in path.parts)
    return not hidden and not _SKIPPED.intersection(path.parts) and path.suffix != ".pyc"
