"""The folder of a job's checkpoints: written whole or not at all, checked before use, old ones collected.

    fence                          the epoch of the newest attempt (fence.py)
    step-00000123/                 a checkpoint: *.distcp, .metadata, manifest.json
    step-00000124.e7.tmp/          one that attempt 7 is writing, or died writing
    step-00000100.damaged/         one that does not match its manifest, kept until newer ones are safe

A checkpoint is durable once its files, its manifest and its folder are on the disk and it has been renamed
to its final name.
"""

from __future__ import annotations

import os
import re
import shutil
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from torch.distributed.checkpoint import state_dict_loader, state_dict_saver
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystem, FileSystemReader, FileSystemWriter

from haibun.train import fence, manifest
from haibun.train.group import Group
from haibun.train.notes import say
from haibun.train.tree import Flat

KEEP = 2  # the newest may turn out damaged; and see fence.py

_NAME = re.compile(r"step-(\d+)")
_TEMPORARY = re.compile(r"step-(\d+)\.e(\d+)\.(?:tmp|old)")
_DAMAGED = re.compile(r"step-(\d+)\.damaged")


class _Report(NamedTuple):
    """How one rank's part of a checkpoint went. ``full``: the disk (or quota) said no; training can go on."""

    files: manifest.Files
    problem: str | None = None
    full: bool = False


class Checkpoints:
    """A job's checkpoints, as one rank of one attempt uses them. All methods but ``read`` are collective."""

    def __init__(self, folder: Path, epoch: int, group: Group) -> None:
        self.folder, self.epoch, self.group = folder, epoch, group
        self._leader = group.rank == 0

    def path(self, step: int) -> Path:
        """Where the checkpoint after ``step`` lies."""
        return self.folder / f"step-{step:08d}"

    def newest(self) -> manifest.Manifest | None:
        """The newest whole checkpoint.

        Shuts out earlier attempts, sets damaged checkpoints aside, and clears leftovers away.

        Raises:
            StaleAttemptError: a later attempt has begun.
        """
        found: manifest.Manifest | None = None
        problem: Exception | None = None
        if self._leader:
            try:
                self._take_over()
                found = self._search()
            except Exception as error:
                problem = error
        found, problem = self.group.broadcast((found, problem))
        if problem is not None:
            raise problem
        return found

    def save(self, step: int, collect: Callable[[], Flat]) -> bool:
        """Make the state after ``step`` durable.

        Args:
            collect: gives this rank's tensors; called on each rank.

        Returns:
            Whether it is durable now. If not, the reason is on stderr, the last durable checkpoint is still
            there, and what was written of this one is gone.

        Raises:
            StaleAttemptError: a later attempt has begun.
            RuntimeError: the ranks are at different steps, or the state cannot be saved.
        """
        flat = self._collect(step, collect)
        temporary = self.folder / f"step-{step:08d}.e{self.epoch}.tmp"
        reports = self.group.gather(self._write(temporary, flat))
        outcome: tuple[bool, Exception | None] = (False, None)
        if self._leader:
            try:
                outcome = (self._conclude(step, temporary, reports), None)
            except Exception as error:
                outcome = (False, error)
            if not outcome[0]:
                shutil.rmtree(temporary, ignore_errors=True)
        durable, problem = self.group.broadcast(outcome)
        if problem is not None:
            raise problem
        return bool(durable)

    def _collect(self, step: int, collect: Callable[[], Flat]) -> Flat:
        """This rank's state, once all ranks have theirs and are at the same step."""
        flat: Flat = {}
        problem: str | None = None
        try:
            flat = collect()
        except Exception as error:
            problem = f"{type(error).__name__}: {error}"
        answers: list[tuple[int, str | None]] = self.group.gather((step, problem))
        if len({s for s, _ in answers}) > 1:
            where = ", ".join(f"rank {r} after step {s}" for r, (s, _) in enumerate(answers))
            raise RuntimeError(
                f"the ranks are at different steps at a checkpoint ({where}): all ranks must take the same "
                "steps, and each step must hold a collective of all of them (DDP's backward does)"
            )
        for rank, (_, problem) in enumerate(answers):
            if problem is not None:
                raise RuntimeError(f"the state of rank {rank} cannot be saved: {problem}")
        return flat

    def _write(self, temporary: Path, flat: Flat) -> _Report:
        """Write this rank's files, and force them to the disk."""
        writer = FileSystemWriter(temporary, sync_files=False)
        writer.fs = files = _WatchedFiles()
        try:
            if self._leader:
                shutil.rmtree(temporary, ignore_errors=True)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that there is no process group, at each save
                state_dict_saver.save(
                    flat,
                    storage_writer=writer,
                    process_group=self.group.process_group,
                    no_dist=self.group.process_group is None,
                )
            mine = list(temporary.glob(f"__{self.group.rank}_*"))
            if self._leader:
                mine.append(temporary / ".metadata")
            return _Report(manifest.settle(mine))
        except CheckpointException as error:
            cause = files.error or next(
                (e for e, _ in error.failures.values() if isinstance(e, OSError)), None
            )
            if cause is None:
                return _Report({}, _first_line(error.failures))
            return _Report({}, str(cause), full=True)
        except OSError as error:
            return _Report({}, str(error), full=True)

    def _conclude(self, step: int, temporary: Path, reports: list[_Report]) -> bool:
        """Leader: commit, or say why not. The outcome for all ranks."""
        problems = [r for r in reports if r.problem is not None]
        reason = next((r.problem for r in problems if r.full), None)
        if reason is None and problems:
            raise RuntimeError(
                f"the checkpoint after step {step} could not be written: {problems[0].problem}"
            )
        if reason is None:
            try:
                self._commit(step, temporary, {k: v for r in reports for k, v in r.files.items()})
            except OSError as error:
                reason = str(error)
        if reason is None:
            self._collect_old(step)
            return True
        say(
            f"warning: no checkpoint after step {step}: {reason}. "
            "Training goes on; the last durable one is kept"
        )
        return False

    def _commit(self, step: int, temporary: Path, files: manifest.Files) -> None:
        manifest.write(
            temporary, manifest.Manifest(step, self.epoch, self.group.world_size, files, about=_versions())
        )
        fence.check(self.folder, self.epoch)
        final = self.path(step)
        old = _vacant(temporary.with_suffix(".old"))
        if final.exists():  # another attempt's, which this one did not start from
            os.replace(final, old)
        os.replace(temporary, final)
        manifest.flush(self.folder)
        shutil.rmtree(old, ignore_errors=True)

    def _take_over(self) -> None:
        try:
            fence.advance(self.folder, self.epoch)
        except OSError as error:
            say(f"warning: cannot write into {self.folder}: {error}")
        for path, match in self._named(_TEMPORARY):
            if int(match[2]) <= self.epoch:
                shutil.rmtree(path, ignore_errors=True)

    def _search(self) -> manifest.Manifest | None:
        for path, _ in sorted(self._named(_NAME), reverse=True):
            try:
                return manifest.verify(path)
            except manifest.DamagedError as damage:
                aside = _vacant(path.with_suffix(".damaged"))
                say(
                    f"warning: checkpoint {path} is damaged: {damage}. "
                    f"It is now {aside.name}; using the one before"
                )
                try:
                    os.replace(path, aside)
                except OSError as error:
                    say(f"warning: could not rename it: {error}")
        return None

    def _collect_old(self, step: int) -> None:
        """Remove all but the newest KEEP checkpoints, and what was set aside before those."""
        steps = sorted((int(m[1]) for _, m in self._named(_NAME) if int(m[1]) <= step), reverse=True)
        oldest = steps[:KEEP][-1]
        for path, match in [*self._named(_NAME), *self._named(_DAMAGED)]:
            if int(match[1]) < oldest:
                shutil.rmtree(path, ignore_errors=True)

    def _named(self, pattern: re.Pattern[str]) -> Iterator[tuple[Path, re.Match[str]]]:
        if not self.folder.is_dir():
            return
        for path in list(self.folder.iterdir()):
            match = pattern.fullmatch(path.name)
            if match and path.is_dir():
                yield path, match

    def read(self, step: int, wanted: Callable[[str], bool], current: Flat) -> Flat:
        """Tensors and skeletons of a checkpoint. Not collective.

        Args:
            wanted: which keys to read.
            current: where a key is sharded, this rank's tensor to read its part into.
        """
        reader = FileSystemReader(self.path(step))
        known = {k: v for k, v in reader.read_metadata().state_dict_metadata.items() if wanted(k)}
        flat: Flat = {k: current.get(k, _empty(v)) for k, v in known.items()}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            state_dict_loader.load(flat, storage_reader=reader, no_dist=True)
        return flat


class _WatchedFiles(FileSystem):
    """Files that remember why a write failed: torch.save calls a full disk ``unexpected pos``."""

    error: OSError | None = None

    @contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        try:
            with super().create_stream(path, mode) as stream:
                yield _Watched(stream, self)
        except OSError as error:
            self.error = error
            raise


class _Watched:
    def __init__(self, stream: Any, files: _WatchedFiles) -> None:
        self._stream, self._files = stream, files

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, data: Any) -> int:
        try:
            return int(self._stream.write(data))
        except OSError as error:
            self._files.error = error
            raise


def _empty(about: Any) -> Any:
    import torch

    if hasattr(about, "properties"):
        return torch.empty(about.size, dtype=about.properties.dtype)
    return b""


def _first_line(failures: dict[int, Any]) -> str:
    rank, (error, _) = next(iter(failures.items()))
    return f"rank {rank}: {type(error).__name__}: {error}".splitlines()[0]


def _vacant(path: Path) -> Path:
    """``path``, after removing what may be there."""
    shutil.rmtree(path, ignore_errors=True)
    return path


def _versions() -> dict[str, Any]:
    import torch

    from haibun import __version__

    return {"torch": torch.__version__, "haibun": __version__}
