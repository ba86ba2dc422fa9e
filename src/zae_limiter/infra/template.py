"""Read the CloudFormation templates of stacks."""

from importlib import resources

MOST_BYTES = 51_200
"""The largest template that can be sent with a call, in bytes."""


def limiter_template() -> str:
    """Return the template whose parameters ``StackOptions`` provides."""
    return _read("limiter.yaml")


def load_template() -> str:
    """Return the template of load tests, whose parameters ``LoadOptions`` provides."""
    return _read("load.yaml")


def _read(name: str) -> str:
    return resources.files("zae_limiter.infra").joinpath("templates", name).read_text(encoding="utf-8")
