"""The same verbs as the command line's, from Python.

from haibun.client import Client

with Client() as haibun:
    job = haibun.run(["python", "train.py"], devices=2)
    for line in haibun.logs(job, follow=True):
        print(line.text)
    print(haibun.wait(job).state)
"""

from haibun.client.client import Client, LogLine
from haibun.client.errors import (
    ClientError,
    Conflict,
    Invalid,
    NotFound,
    ProblemField,
    ServerNotRunning,
    Unauthorised,
    Unavailable,
)
from haibun.client.finding import find_server, home_folder

__all__ = [
    "Client",
    "ClientError",
    "Conflict",
    "Invalid",
    "LogLine",
    "NotFound",
    "ProblemField",
    "ServerNotRunning",
    "Unauthorised",
    "Unavailable",
    "find_server",
    "home_folder",
]
