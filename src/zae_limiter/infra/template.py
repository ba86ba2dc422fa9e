"""Read the CloudFormation template of a stack."""

from importlib import resources

MOST_BYTES = 51_200
"""The largest template that can be sent with a call, in bytes."""


def limiter_template() -> str:
    """Return the template whose parameters ``StackOptions`` provides."""
    return resources.files("zae_limiter.infra").joinpath("templates", "limiter.yaml").read_text(encoding="utf-8")
