"""Makes ``core_world`` importable to the tests beside it; Hypothesis draws the same examples on every run."""

import os
import sys
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings

sys.path.insert(0, str(Path(__file__).parent))

_QUIET = (HealthCheck.too_slow, HealthCheck.filter_too_much, HealthCheck.data_too_large)
settings.register_profile(
    "ci",
    derandomize=True,
    deadline=None,
    suppress_health_check=_QUIET,
    max_examples=60,
    stateful_step_count=40,
)
settings.register_profile(
    "search",  # other examples on each run, and the first failure as it comes: shrinking takes minutes
    deadline=None,
    max_examples=1500,
    stateful_step_count=60,
    suppress_health_check=_QUIET,
    phases=(Phase.generate,),
    report_multiple_bugs=False,
    database=None,
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
