"""``haibun simulate``: traces replayed in the twin, under one policy or several, and what came of it."""

from haibun.simulate.files import OutputFile
from haibun.simulate.inputs import InputError, Inputs, Request, prepare
from haibun.simulate.outcome import Outcome, write_jobs
from haibun.simulate.replay import replay, replay_all

__all__ = [
    "InputError",
    "Inputs",
    "Outcome",
    "OutputFile",
    "Request",
    "prepare",
    "replay",
    "replay_all",
    "write_jobs",
]
