"""The packages of a load test: for this Python from installed files, for AWS from wheels of its runtime."""

import io
import subprocess
import sys
import urllib.error
import urllib.request
import zipfile
from email.parser import HeaderParser
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.tags import Tag, compatible_tags, cpython_tags
from packaging.utils import canonicalize_name, parse_wheel_filename

from tests.loadtest.elf import glibc_of, is_elf, machine_of
from zae_limiter.core.errors import MissingExtraError
from zae_limiter.loadtest import package as package_module
from zae_limiter.loadtest import wheels
from zae_limiter.loadtest.package import (
    LoadPackage,
    build_load_package,
    check_size,
    is_needed_by_workers,
    own_wheel,
)
from zae_limiter.loadtest.requirements import markers_of
from zae_limiter.loadtest.wheels import LAMBDA, PackageError, WheelTarget, load_test_requirements, wheels_for

INDEX = "https://pypi.org/simple/locust/"
TARGET_BYTES = 50 * 1024 * 1024
IMPORTS = """
import sys
sys.path.insert(0, sys.argv[1])
import gevent, locust, locust.main, zmq, zae_limiter, zae_limiter.cli, zae_limiter.loadtest.code_bucket
from botocore.session import Session
for service in ("s3", "lambda", "ecs", "dynamodb", "sts"):
    Session().create_client(service, region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b")
assert all(one.__file__.startswith(sys.argv[1]) for one in (gevent, locust, zmq, zae_limiter))
print(zae_limiter.__version__)
"""


def opened(content: bytes) -> zipfile.ZipFile:
    return zipfile.ZipFile(io.BytesIO(content))


@pytest.fixture(scope="module")
def local() -> LoadPackage:
    return build_load_package(None)


@pytest.fixture(scope="module")
def for_aws() -> LoadPackage:
    """The package for AWS; its wheels are downloaded once and then cached for all runs of the tests."""
    try:
        urllib.request.urlopen(INDEX, timeout=10).close()
    except (urllib.error.URLError, TimeoutError) as error:
        pytest.skip(f"the package index is unreachable: {error}")
    return build_load_package(LAMBDA)


class TestLocal:
    def test_local_package_is_imported_in_an_empty_environment(self, local: LoadPackage, tmp_path: Path) -> None:
        """It contains all that it needs: no site-packages, no environment variables."""
        opened(local.worker).extractall(tmp_path / "task")
        command = [sys.executable, "-I", "-S", "-c", IMPORTS, str(tmp_path / "task")]
        done = subprocess.run(command, env={}, capture_output=True, text=True, check=False)

        assert (metadata.version("zae-limiter"), "") == (done.stdout.strip(), done.stderr)

    def test_local_package_is_small_and_has_no_wheels(self, local: LoadPackage) -> None:
        """The master is a process of this environment."""
        assert len(local.worker) < TARGET_BYTES
        assert local.wheels is None

    def test_same_installation_makes_the_same_bytes(self, local: LoadPackage) -> None:
        assert local.worker == build_load_package(None).worker

    def test_compiled_modules_are_those_of_this_python(self, local: LoadPackage) -> None:
        names = [name for name in opened(local.worker).namelist() if "cpython-" in name and name.endswith(".so")]

        assert names
        assert all(f"cpython-{sys.version_info.major}{sys.version_info.minor}-" in name for name in names)


class TestForAws:
    def test_every_wheel_is_for_the_runtime_of_the_function(self, for_aws: LoadPackage) -> None:
        """Python 3.13 on a platform with at most the glibc of Amazon Linux 2023."""
        assert for_aws.wheels is not None
        allowed = {*cpython_tags((3, 13), platforms=LAMBDA.tags), *compatible_tags((3, 13), "cp313", LAMBDA.tags)}
        found: dict[str, frozenset[Tag]] = {
            name: parse_wheel_filename(name)[3] for name in opened(for_aws.wheels).namelist()
        }

        assert len(found) > 30
        assert [] == [name for name, tags in found.items() if allowed.isdisjoint(tags)]

    def test_every_compiled_module_runs_on_the_runtime_of_the_function(self, for_aws: LoadPackage) -> None:
        """Right machine, and no symbol of a newer glibc than the runtime offers."""
        archive = opened(for_aws.worker)
        compiled = {name: content for name in archive.namelist() if is_elf(content := archive.read(name))}

        assert len(compiled) > 20
        assert {LAMBDA.machine} == {machine_of(content) for content in compiled.values()}
        assert max(glibc_of(content) for content in compiled.values()) <= (2, 34)
        assert [] == [name for name in compiled if "cpython-" in name and "cpython-313-" not in name]

    def test_every_requirement_for_the_function_is_in_the_package(self, for_aws: LoadPackage) -> None:
        """The conditions hold for Python 3.13 on Linux, whatever runs this test."""
        archive = opened(for_aws.worker)
        told = [
            HeaderParser().parsestr(archive.read(name).decode())
            for name in archive.namelist()
            if name.endswith(".dist-info/METADATA")
        ]
        versions = {canonicalize_name(one["Name"]): one["Version"] for one in told}
        needs = [Requirement(text) for one in told for text in one.get_all("Requires-Dist", [])]
        applying = [
            one for one in needs if one.marker is None or one.marker.evaluate({**markers_of("3.13"), "extra": ""})
        ]

        assert [] == [
            str(one) for one in applying if versions.get(canonicalize_name(one.name), "") not in one.specifier
        ]

    def test_package_for_aws_is_below_the_limits_of_lambda(self, for_aws: LoadPackage) -> None:
        """The limit is 250 MB unzipped; the target is 50 MB zipped."""
        assert len(for_aws.worker) < TARGET_BYTES
        assert for_aws.unzipped_bytes < package_module.MOST_UNZIPPED_BYTES

    def test_master_gets_the_web_page_and_this_project(self, for_aws: LoadPackage) -> None:
        """Workers get neither the page nor tests."""
        assert for_aws.wheels is not None
        names = opened(for_aws.wheels).namelist()
        (locust,) = [name for name in names if name.startswith("locust-")]
        page = opened(opened(for_aws.wheels).read(locust)).namelist()

        assert own_wheel().name in names
        assert any(name.startswith("locust/webui/") for name in page)
        assert not any(name.startswith("locust/webui/") for name in opened(for_aws.worker).namelist())

    def test_cached_wheels_need_no_index(self, for_aws: LoadPackage, monkeypatch: pytest.MonkeyPatch) -> None:
        """The same environment gets the same wheels."""
        monkeypatch.setattr(wheels, "_download", None)
        assert for_aws.wheels is not None
        archive = opened(for_aws.wheels)

        assert {one.name: one.content for one in [*wheels_for(LAMBDA, lambda _: None), own_wheel()]} == {
            name: archive.read(name) for name in archive.namelist()
        }


class TestOwnWheel:
    def test_own_wheel_is_installed_without_an_index(self, tmp_path: Path) -> None:
        """It has all modules, the templates and the entry point, and its record is right."""
        wheel = own_wheel()
        path = tmp_path / wheel.name
        path.write_bytes(wheel.content)
        target = ["--no-index", "--no-deps", "--target", str(tmp_path / "site")]
        subprocess.run([sys.executable, "-m", "pip", "install", "-q", *target, str(path)], check=True)
        (site,) = metadata.distributions(name="zae-limiter", path=[str(tmp_path / "site")])

        assert metadata.version("zae-limiter") == site.version
        assert (tmp_path / "site/zae_limiter/infra/templates/load.yaml").is_file()
        assert (tmp_path / "site/zae_limiter_aggregator/handler.py").is_file()
        assert [] == [name for name in opened(wheel.content).namelist() if name.endswith(".pyc")]


class TestContent:
    @pytest.mark.parametrize(
        ("path", "expected"),
        [
            ("locust/main.py", True),
            ("locust/webui/dist/index.html", False),
            ("gevent/tests/test_x.py", False),
            ("gevent/_gevent_c.pxd", False),
            ("botocore/data/dynamodb/2012-08-10/service-2.json.gz", True),
            ("botocore/data/ec2/2016-11-15/service-2.json.gz", False),
            ("botocore/data/endpoints.json", True),
            ("locust-2.47.0.dist-info/METADATA", True),
            ("locust-2.47.0.dist-info/RECORD", False),
            ("../../../bin/locust", False),
            ("zae_limiter/__pycache__/clock.cpython-313.pyc", False),
            ("_editable_impl_zae_limiter.pth", False),
        ],
    )
    def test_workers_get_what_they_need(self, path: str, expected: bool) -> None:
        assert expected is is_needed_by_workers(path)

    def test_package_above_the_limit_of_lambda_names_its_largest_parts(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """It is refused before the upload."""
        monkeypatch.setattr(package_module, "MOST_UNZIPPED_BYTES", 1024 * 1024)

        with pytest.raises(
            PackageError, match=r"2\.0 MB unzipped, and Lambda accepts 1\.0 MB\. Largest: big \(2\.0 MB\)"
        ):
            check_size({"big/a.so": bytes(2 * 1024 * 1024), "small.py": b""})

    def test_requirements_are_those_of_the_project_and_its_extra(self) -> None:
        """Docker is for building images only."""
        names = {one.name for one in load_test_requirements()}

        assert {"botocore", "orjson", "locust", "gevent"} <= names
        assert names.isdisjoint({"docker", "pytest", "ministack"})

    def test_package_without_locust_names_the_extra(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(wheels, "installed", lambda name: None)

        with pytest.raises(MissingExtraError, match="locust is not installed"):
            load_test_requirements()


class TestWheels:
    def test_target_accepts_wheels_of_older_glibc_only(self) -> None:
        tags = WheelTarget("3.12", "manylinux_2_28_aarch64").tags

        assert ("manylinux_2_28_aarch64", "aarch64") == (tags[0], WheelTarget("3.12", "manylinux_2_28_aarch64").machine)
        assert {"manylinux2014_aarch64", "manylinux_2_17_aarch64"} < set(tags)
        assert "manylinux_2_34_aarch64" not in tags

    @pytest.mark.parametrize(("python", "platform"), [("3.13.1", LAMBDA.platform), ("3.13", "win_amd64")])
    def test_target_of_another_form_is_refused(self, python: str, platform: str) -> None:
        with pytest.raises(PackageError, match="is not a target"):
            WheelTarget(python, platform)

    def test_wheels_without_an_index_say_what_to_do(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """The last lines of the installer follow, and nothing is cached."""
        for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS"):
            monkeypatch.setenv(name, str(tmp_path / "nothing"))
        monkeypatch.setenv("PIP_CONFIG_FILE", "/dev/null")
        monkeypatch.setenv("PIP_NO_INDEX", "1")

        with pytest.raises(PackageError, match="make a package index reachable") as caught:
            wheels_for(LAMBDA, lambda _: None, tmp_path / "cache")

        assert caught.value.log_lines
        assert [] == [*(tmp_path / "cache").iterdir()]
