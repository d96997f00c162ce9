"""Keeps the checkpoints of a job from an attempt that was given up and does not know it.

The folder of a job's checkpoints holds a file ``fence`` with the epoch of the newest attempt, as text. An
attempt of a lower epoch commits nothing. The check comes immediately before the rename that commits. A
commit that slips in between is a whole checkpoint of this very job, as if it had come just before the
fence; the second one will be refused, and because two are kept, the first cannot have collected what the
newer attempt is reading.
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

FENCE = "fence"


class StaleAttemptError(RuntimeError):
    """This attempt was replaced by one of a higher epoch, and must not commit."""


def read(folder: Path) -> int:
    """The epoch of the newest attempt; 0 if there is no fence.

    Raises:
        RuntimeError: the file holds no number.
    """
    try:
        text = (folder / FENCE).read_text()
    except FileNotFoundError:
        return 0
    try:
        return int(text.strip() or 0)
    except ValueError:
        raise RuntimeError(f"{folder / FENCE} must hold the epoch of an attempt, not {text[:40]!r}") from None


def check(folder: Path, epoch: int) -> None:
    """Refuse if a newer attempt than ``epoch`` is at work.

    Raises:
        StaleAttemptError: there is one.
    """
    newest = read(folder)
    if newest > epoch:
        raise StaleAttemptError(
            f"attempt {epoch} may no longer write checkpoints into {folder}: attempt {newest} has taken over"
        )


def advance(folder: Path, epoch: int) -> None:
    """Shut out all attempts before ``epoch``. A fence never goes back.

    Raises:
        StaleAttemptError: a newer attempt than ``epoch`` was here.
        OSError: the fence cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    check(folder, epoch)
    if read(folder) == epoch:
        return
    # A name of its own: the agents of a gang's other nodes advance the same fence at the same time.
    temporary = folder / f"{FENCE}.e{epoch}.{secrets.token_hex(4)}.new"
    try:
        temporary.write_text(f"{epoch}\n")
        os.replace(temporary, folder / FENCE)
    except OSError:
        temporary.unlink(missing_ok=True)
        raise
