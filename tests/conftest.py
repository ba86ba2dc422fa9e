"""Setup of all tests: a working interrupt handler, and profiles of Hypothesis.

Profiles: no deadlines, since a busy machine is no failure, and the same examples on every CI run.

HYPOTHESIS_PROFILE=search looks for new counterexamples, with many more of them. ``lean`` only asks
whether there is a failure, with fewer examples, and does not make it small: it is for ``tools/mutants.py``.
"""

import os
import signal

from hypothesis import HealthCheck, Phase, settings

# A process that a shell runs in the background ignores interrupts, and so do its children.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile(
    "default",
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
    derandomize="CI" in os.environ,
)
settings.register_profile("search", settings.get_profile("default"), max_examples=2_000, derandomize=False)
settings.register_profile(
    "lean",
    settings.get_profile("default"),
    max_examples=25,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate),
    report_multiple_bugs=False,
    # One process runs the tests of a class several times.
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.differing_executors],
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))
