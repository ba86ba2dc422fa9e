"""The CloudFormation template of a stack, as text."""

from importlib import resources

MOST_BYTES = 51_200
"""How large a template may be that is sent along with the call."""


def limiter_template() -> str:
    """Return the template that ``StackOptions`` are the parameters of."""
    return resources.files("zae_limiter.infra").joinpath("templates", "limiter.yaml").read_text(encoding="utf-8")
