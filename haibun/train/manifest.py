"""The list of a checkpoint's files with their sizes and digests: what makes damage visible.

SHA-256, because processors compute it in hardware (1.8 GB/s on one core where BLAKE2b, in Python's build,
reaches 0.6).
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
ALGORITHM = "sha256"
FORMAT = 1
THREADS = 4  # hashing and fsync both leave the interpreter free; more than four seldom make a disk faster

Files = dict[str, tuple[int, str]]  # name: (bytes, digest in hex)


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint consists of. ``step``: steps done. ``files``: name to (bytes, digest)."""

    step: int
    epoch: int
    world_size: int
    files: Files
    algorithm: str = ALGORITHM
    format: int = FORMAT
    about: dict[str, Any] = field(default_factory=dict)


class DamagedError(Exception):
    """A checkpoint is not what its manifest says; the message says how."""


def digest(path: Path) -> tuple[int, str]:
    """Size in bytes and digest of a file."""
    with open(path, "rb") as f:
        value = hashlib.file_digest(f, ALGORITHM).hexdigest()
        return f.tell(), value


def flush(path: Path) -> None:
    """Force a file or a folder to the disk."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def settle(paths: Iterable[Path]) -> Files:
    """Force files to the disk, and take their digests meanwhile."""
    paths = list(paths)
    with ThreadPoolExecutor(THREADS) as pool:
        flushing = [pool.submit(flush, p) for p in paths]
        files = {p.name: d for p, d in zip(paths, pool.map(digest, paths), strict=True)}
        for f in flushing:
            f.result()
    return files


def write(folder: Path, manifest: Manifest) -> None:
    """Write the manifest into its folder, and force both to the disk."""
    path = folder / MANIFEST
    path.write_text(json.dumps(asdict(manifest)))
    flush(path)
    flush(folder)


def verify(folder: Path) -> Manifest:
    """Read the manifest and compare each file with it.

    Raises:
        DamagedError: something is missing, cut short, or changed.
    """
    try:
        fields = json.loads((folder / MANIFEST).read_text())
        if fields.get("format") != FORMAT or fields.get("algorithm") != ALGORITHM:
            raise DamagedError("it was written by another version of Haibun")
        manifest = Manifest(
            **{**fields, "files": {k: (int(n), str(d)) for k, (n, d) in fields["files"].items()}}
        )
    except FileNotFoundError:
        raise DamagedError(f"{MANIFEST} is missing") from None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        raise DamagedError(f"{MANIFEST} cannot be read ({error})") from None
    for name, (size, _) in manifest.files.items():
        path = folder / name
        if not path.is_file():
            raise DamagedError(f"{name} is missing")
        if path.stat().st_size != size:
            raise DamagedError(f"{name} has {path.stat().st_size} bytes instead of {size}")
    paths = [folder / name for name in manifest.files]
    with ThreadPoolExecutor(THREADS) as pool:
        try:
            for path, found in zip(paths, pool.map(digest, paths), strict=True):
                if found != manifest.files[path.name]:
                    raise DamagedError(f"{path.name} has changed since it was written")
        except OSError as error:
            raise DamagedError(f"a file cannot be read ({error})") from None
    return manifest
