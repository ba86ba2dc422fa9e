"""``cfn-template, lambda-export``: what other tools deploy, on stdout or in a file."""

import io
import resource
import subprocess
import sys
import zipfile

import pytest

from tests.cli.aws import printed_json
from zae_limiter.infra.lambda_package import HANDLER, build_package
from zae_limiter.infra.template import limiter_template


class TestExport:
    def test_cfn_template_prints_the_template(self, run):
        """It can be deployed by other tools, and needs neither a region nor keys."""
        assert limiter_template() == run("cfn-template").stdout

    def test_lambda_export_writes_a_zip_with_the_handler(self, run, tmp_path):
        place = tmp_path / "lambda.zip"
        done, facts = (
            run("lambda-export", "-o", str(place)),
            printed_json(run("lambda-export", "-o", str(place), "--force", "--json")),
        )
        names = zipfile.ZipFile(io.BytesIO(place.read_bytes())).namelist()

        assert f"Wrote {place} (" in done.stdout
        assert (str(place), place.stat().st_size) == (facts["path"], facts["bytes"])
        assert f"{facts['handler'].rpartition('.')[0].replace('.', '/')}.py" in names

    def test_lambda_export_that_fails_midway_leaves_the_old_file(self, tmp_path):
        """A partial package is never left in place."""
        place = tmp_path / "lambda.zip"
        place.write_text("before")
        few = (100_000, 100_000)
        done = subprocess.run(
            [sys.executable, "-m", "zae_limiter", "lambda-export", "-o", str(place), "--force"],
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, few),
            capture_output=True,
            text=True,
            check=False,
        )

        assert (2, True) == (done.returncode, "cannot write" in done.stderr)
        assert {place: "before"} == {path: path.read_text() for path in tmp_path.iterdir()}

    def test_lambda_export_to_an_unwritable_file_prints_one_line(self, run, tmp_path):
        done = run("lambda-export", "-o", str(tmp_path / "nowhere" / "lambda.zip"))

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "cannot write" in done.stderr

    def test_lambda_export_keeps_an_existing_file_without_force(self, run, tmp_path):
        """The error names the option that replaces it."""
        place = tmp_path / "lambda.zip"
        place.write_text("before")
        done, forced = run("lambda-export", "-o", str(place)), run("lambda-export", "-o", str(place), "--force")

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "exists already; pass --force to replace it" in done.stderr
        assert (0, True) == (forced.exit_code, zipfile.is_zipfile(place))

    def test_lambda_export_writes_to_a_device_without_force(self, run):
        """A pipe or a device has no content to lose."""
        assert 0 == run("lambda-export", "-o", "/dev/null").exit_code

    def test_lambda_export_info_prints_the_content_and_writes_nothing(self, run, tmp_path, monkeypatch):
        """Sizes and numbers of files are those of the package."""
        monkeypatch.chdir(tmp_path)
        plain, facts = run("lambda-export", "--info"), printed_json(run("lambda-export", "--info", "--json"))
        package = build_package()
        names = zipfile.ZipFile(io.BytesIO(package)).namelist()

        assert [] == list(tmp_path.glob("*.zip"))
        assert (len(package), len(names), HANDLER) == (facts["bytes"], facts["files"], facts["handler"])
        assert {name.partition("/")[0] for name in names} == {part["name"] for part in facts["content"]}
        assert len(names) == sum(part["files"] for part in facts["content"])
        assert f"compressed, {len(names)} files; handler: {HANDLER}.\n" in plain.stdout
        assert "zae_limiter_aggregator" in plain.stdout

    @pytest.mark.parametrize("flags", [("--force",), ("-o", "lambda.zip")])
    def test_lambda_export_info_refuses_options_for_a_file(self, run, flags):
        """They would have no effect."""
        done = run("lambda-export", "--info", *flags)

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
        assert "--info writes no file" in done.stderr

    def test_cfn_template_writes_the_template_to_a_file(self, run, tmp_path):
        """An existing file is replaced."""
        place = tmp_path / "template.yaml"
        place.write_text("before")
        done = run("cfn-template", "-o", str(place))

        assert (0, limiter_template()) == (done.exit_code, place.read_text(encoding="utf-8"))
        assert f"Wrote {place} (" in done.stdout

    def test_cfn_template_to_an_unwritable_file_prints_one_line(self, run, tmp_path):
        done = run("cfn-template", "--output", str(tmp_path / "nowhere" / "template.yaml"))

        assert (2, "", 1) == (done.exit_code, done.stdout, done.stderr.count("\n"))
