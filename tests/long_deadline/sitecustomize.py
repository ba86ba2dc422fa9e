"""Give a program with this folder on its PYTHONPATH a deadline of at least a minute for its store."""

from dataclasses import replace
from typing import Any

from zae_limiter.core import settings

LEAST_S = 60.0

make_settings = settings.make_settings


def make_settings_with_long_deadline(**chosen: Any) -> settings.Settings:
    made = make_settings(**chosen)
    return replace(made, deadline_s=max(LEAST_S, made.deadline_s))


settings.make_settings = make_settings_with_long_deadline
