"""On the PYTHONPATH of a program: it waits for its store for a minute at least, however little it is told to."""

from dataclasses import replace
from typing import Any

from zae_limiter.core import settings

LEAST_S = 60.0

make_settings = settings.make_settings


def make_patient_settings(**chosen: Any) -> settings.Settings:
    made = make_settings(**chosen)
    return replace(made, deadline_s=max(LEAST_S, made.deadline_s))


settings.make_settings = make_patient_settings
