"""Define ``zae-limiter cfn-template, lambda-export``: export what other tools deploy."""

import io
import zipfile
from pathlib import Path

import click

from zae_limiter.cli._files import in_bytes, write_file
from zae_limiter.cli._help import examples
from zae_limiter.cli._options import json_option
from zae_limiter.cli._output import Column, Grid, print_grid, print_json
from zae_limiter.infra.lambda_package import HANDLER, build_package
from zae_limiter.infra.template import limiter_template

TEMPLATE = ("zae-limiter cfn-template > template.yaml", "zae-limiter cfn-template --output template.yaml")
EXPORT = (
    "zae-limiter lambda-export --output lambda.zip",
    "zae-limiter lambda-export --info",
    "zae-limiter lambda-export --output lambda.zip --force",
)
PACKAGE = Path("lambda.zip")
FILE = click.Path(dir_okay=False, path_type=Path)


@click.command("cfn-template", short_help="Print the CloudFormation template.", epilog=examples(*TEMPLATE))
@click.option("--output", "-o", type=FILE, help="File to write instead of stdout; an existing file is replaced.")
def cfn_template(output: Path | None) -> None:
    """Print the CloudFormation template of a limiter, to deploy it with your own tools."""
    template = limiter_template()
    if output is None:
        click.echo(template, nl=False)
        return
    write_file(output, template.encode(), "--output")
    click.echo(f"Wrote {output} ({in_bytes(len(template.encode()))}).")


@click.command("lambda-export", short_help="Write the aggregator's package to a file.", epilog=examples(*EXPORT))
@click.option("--output", "-o", type=FILE, help=f"File to write.  [default: {PACKAGE}]")
@click.option("--info", is_flag=True, help="Print the content and the size of the package, but write nothing.")
@click.option("--force", is_flag=True, help="Replace an existing file.")
@json_option
def lambda_export(output: Path | None, info: bool, force: bool, as_json: bool) -> None:
    """Write the aggregator's package to a file, to upload it with your own tools."""
    if info:
        if force or output is not None:
            raise click.UsageError("--info writes no file; omit --output and --force", click.get_current_context())
        print_content(build_package(), as_json)
        return
    path = output or PACKAGE
    if path.is_file() and not force:
        reason = f"{str(path)!r} exists already; pass --force to replace it"
        raise click.BadParameter(reason, click.get_current_context(), param_hint="--output")
    package = build_package()
    write_file(path, package, "--output")
    if as_json:
        print_json({"path": str(path), "bytes": len(package), "handler": HANDLER})
        return
    click.echo(f"Wrote {path} ({in_bytes(len(package))}); handler: {HANDLER}.")


def print_content(package: bytes, as_json: bool) -> None:
    """Print what a package contains, by top-level folder or module, and its size."""
    with zipfile.ZipFile(io.BytesIO(package)) as opened:
        entries = opened.infolist()
    sizes: dict[str, list[int]] = {}
    for one in entries:
        sizes.setdefault(one.filename.partition("/")[0], []).append(one.file_size)
    if as_json:
        content = [{"name": part, "files": len(files), "bytes": sum(files)} for part, files in sizes.items()]
        print_json({"bytes": len(package), "files": len(entries), "handler": HANDLER, "content": content})
        return
    rows = [(part, str(len(files)), in_bytes(sum(files))) for part, files in sizes.items()]
    print_grid(Grid([Column("part"), Column("files", is_number=True), Column("size", is_number=True)], rows))
    click.echo(f"Package: {in_bytes(len(package))} compressed, {len(entries)} files; handler: {HANDLER}.")
