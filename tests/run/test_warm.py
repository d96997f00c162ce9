"""Which commands may start warm: only those where nobody could tell."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from haibun.run.processes import Request
from haibun.run.warm import Script, changes_start, fit, python_command, same_interpreter, shadows

BIN = str(Path(sys.executable).parent)
ZYGOTE: Any = SimpleNamespace(
    env={"OMP_NUM_THREADS": "1", "LANG": "C"}, modules={"torch": "/t/__init__.py", "queue": ""}
)


@pytest.mark.parametrize(
    ("argv", "script"),
    [
        (("python", "a.py", "-x"), Script("python", ("a.py", "-x"), False, False)),
        (("/usr/bin/python3.11", "-u", "a.py"), Script("/usr/bin/python3.11", ("a.py",), False, True)),
        (("python3", "-m", "pkg.mod", "1"), Script("python3", ("pkg.mod", "1"), True, False)),
        (("python", "-c", "print()"), None),
        (("python", "-O", "a.py"), None),
        (("python", "-"), None),
        (("python",), None),
        (("python", "-m"), None),
        (("torchrun", "a.py"), None),
        (("pythonista", "a.py"), None),
    ],
)
def test_python_commands_are_taken_apart(argv: tuple[str, ...], script: Script | None) -> None:
    assert python_command(argv, None) == script


@pytest.mark.parametrize(
    ("run", "warm"),
    [
        ("python train.py --lr 'a b'\n", True),
        ("python train.py > out", False),
        ("X=1 python train.py", False),
        ("cd x && python train.py", False),
        ("python train.py\npython eval.py", False),
        ("python train.py $HOME", False),
        ("python 'train.py", False),
        ("echo hello", False),
    ],
)
def test_a_shell_script_of_one_plain_command_is_such_a_command(run: str, warm: bool) -> None:
    assert (python_command(None, run) is not None) == warm


def test_only_the_pools_own_interpreter_counts(tmp_path: Path) -> None:
    assert same_interpreter("python", "/", {"PATH": BIN})
    assert same_interpreter(sys.executable, "/", {})
    assert not same_interpreter("python", "/", {"PATH": "/no/such/folder"})
    (tmp_path / "python").symlink_to(sys.executable)  # the same file, but another environment around it
    assert not same_interpreter("python", "/", {"PATH": f"{tmp_path}:{BIN}"})
    assert not same_interpreter("./python", str(tmp_path), {"PATH": BIN})


@pytest.mark.parametrize(
    ("name", "value", "changes"),
    [
        ("PYTHONHASHSEED", "0", True),
        ("LD_PRELOAD", "x.so", True),
        ("TORCH_LOGS", "all", True),
        ("LANG", "C", False),
        ("LANG", "de_DE", True),
        ("OMP_NUM_THREADS", "4", False),
        ("PYTHONUNBUFFERED", "1", False),
        ("LEARNING_RATE", "1", False),
    ],
)
def test_what_an_interpreter_reads_at_its_start_makes_it_cold(name: str, value: str, changes: bool) -> None:
    assert (changes_start({"LANG": "C", name: value}, ZYGOTE.env) is not None) == changes


def test_what_the_zygote_had_and_the_job_has_not_makes_it_cold() -> None:
    assert changes_start({}, {"MALLOC_ARENA_MAX": "1"}) == "MALLOC_ARENA_MAX"


def test_a_module_that_would_hide_one_of_ours_makes_it_cold(tmp_path: Path) -> None:
    modules = {"torch": str(tmp_path / "torch/__init__.py"), "queue": "/lib/queue.py", "sys": ""}
    (tmp_path / "torch").mkdir()
    (tmp_path / "queue").mkdir()
    (tmp_path / "queue.txt").touch()
    (tmp_path / "mine.py").touch()
    assert shadows([str(tmp_path), "/no/such"], modules) is None  # an empty folder hides nothing
    (tmp_path / "torch/__init__.py").touch()
    assert shadows([str(tmp_path)], modules) is None  # it is ours
    (tmp_path / "queue.py").touch()
    assert shadows([str(tmp_path)], modules) == "queue.py"
    (tmp_path / "queue.py").unlink()
    (tmp_path / "sitecustomize.py").touch()
    assert shadows([str(tmp_path)], modules) == "sitecustomize.py"


def test_a_fitting_request_says_how_to_run_the_script(tmp_path: Path) -> None:
    (tmp_path / "a.py").touch()
    env = {"PATH": BIN, "LANG": "C", "OMP_NUM_THREADS": "3", "PYTHONPATH": f"lib{os.pathsep}/x"}
    request = Request(("python", "a.py"), env, str(tmp_path), "log")
    warm = fit(request, python_command(request.argv, None), ZYGOTE)
    assert warm is not None
    assert (warm.python, warm.arguments, warm.threads) == (True, ("a.py",), 3)
    assert warm.python_path == (str(tmp_path / "lib"), "/x")
    assert fit(request, None, ZYGOTE) is None
    missing = Request(("python", "b.py"), env, str(tmp_path), "log")
    assert fit(missing, python_command(missing.argv, None), ZYGOTE) is None
