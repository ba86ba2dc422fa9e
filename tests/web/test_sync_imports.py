"""Importing an adapter imports its own framework only, and names the extra if that is missing."""

import subprocess
import sys

import pytest

FRAMEWORKS = ("aiohttp", "asgiref", "django", "fastapi", "flask", "litestar", "rest_framework", "starlette")
OWN = {
    "wsgi": (),
    "flask": ("flask",),
    "django": ("asgiref", "django"),
    "drf": ("asgiref", "django", "rest_framework"),
    "aiohttp": ("aiohttp",),
}
CONFIGURED = "import django.conf\ndjango.conf.settings.configure()\n"


def printed(script: str) -> str:
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.mark.parametrize("adapter", OWN)
def test_adapter_imports_no_other_framework(adapter):
    """A Flask service has no Django."""
    first = CONFIGURED if adapter == "drf" else ""
    script = (
        f"{first}import sys, zae_limiter.web.{adapter}\nprint(*[one for one in {FRAMEWORKS!r} if one in sys.modules])"
    )

    # Flask imports asgiref itself if it is there.
    assert set(OWN[adapter]) | {"asgiref"} >= set(printed(script).split())


def test_adapter_without_its_framework_names_the_extra():
    """The message has the command that installs it."""
    script = """
import importlib, sys
from zae_limiter import MissingExtraError
for adapter, package in (("flask", "flask"), ("django", "django"), ("drf", "rest_framework")):
    sys.modules[package] = None
    try:
        importlib.import_module(f"zae_limiter.web.{adapter}")
    except MissingExtraError as error:
        print(error.extra)
"""

    assert ["flask", "django", "drf"] == printed(script).split()
