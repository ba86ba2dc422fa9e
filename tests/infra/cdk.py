"""The AWS CDK that tools/cdk.sh installs beside the environment, and what it is to run with."""

import os
import shutil
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / ".engines" / "cdk"


def missing() -> str | None:
    """Why there is no CDK here; None if there is."""
    if not (FOLDER / "REQUIREMENTS").is_file():
        return "make test-cdk installs the AWS CDK; it is large"
    return None if shutil.which("node") else "the AWS CDK needs node"


def environment(folder: Path) -> dict[str, str]:
    """As `cdk synth` sets it, with the folder that stacks are written to; and what CDK unpacks is unpacked once."""
    node = Path(shutil.which("node") or "")
    return {
        "CDK_OUTDIR": str(folder),
        "JSII_RUNTIME_PACKAGE_CACHE_ROOT": str(FOLDER / "unpacked"),
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), str(node.parent)]),
    }
