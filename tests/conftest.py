"""Hypothesis profiles: no deadlines, since a busy machine is no failure, and the same examples on every CI run.

HYPOTHESIS_PROFILE=search looks for new counterexamples, with many more of them.
"""

import os

from hypothesis import HealthCheck, settings

settings.register_profile(
    "default",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.register_profile("search", settings.get_profile("default"), max_examples=2_000, derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
