"""Hypothesis draws the same examples on every run; ``HYPOTHESIS_PROFILE=search`` looks further."""

import os

from hypothesis import HealthCheck, Phase, settings

_QUIET = (HealthCheck.too_slow, HealthCheck.filter_too_much)
settings.register_profile(
    "ci", derandomize=True, deadline=None, suppress_health_check=_QUIET, max_examples=150
)
settings.register_profile(
    "search",
    deadline=None,
    suppress_health_check=_QUIET,
    max_examples=int(os.environ.get("HYPOTHESIS_EXAMPLES", "2000")),
    phases=(Phase.generate,),
    database=None,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
