"""The AWS CDK that tools/cdk.sh installs outside the environment, and the settings to run it."""

import os
import shutil
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / ".engines" / "cdk"


def missing() -> str | None:
    """Return why the CDK is missing; None if it is installed."""
    if not (FOLDER / "REQUIREMENTS").is_file():
        return "make test-cdk installs the AWS CDK; it is large"
    return None if shutil.which("node") else "the AWS CDK needs node"


def environment(folder: Path) -> dict[str, str]:
    """Return the environment that `cdk synth` sets, with the output folder; CDK unpacks its files only once."""
    node = Path(shutil.which("node") or "")
    return {
        "CDK_OUTDIR": str(folder),
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(FOLDER / "unpacked"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(node.parent)]),
    }
