"""The package under examples/policy-package: found by name, and a policy like ours."""

from __future__ import annotations

import importlib
import importlib.util
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from haibun.app import UnknownPolicyError, make_engine, make_policy, policies
from haibun.core.state import UnitRates
from haibun.core.vocabulary import Cluster, DeviceGroup, Job, Node, Shape
from haibun.twin.replay import Replay

PACKAGE = Path(__file__).parents[2] / "examples" / "policy-package"


@pytest.fixture(params=["its metadata on the path", "pip"])
def installed(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[None]:
    """The package as pip leaves it, without a network: by pip where its build backend is at hand."""
    if request.param == "pip":
        if importlib.util.find_spec("hatchling") is None or importlib.util.find_spec("pip") is None:
            pytest.skip("hatchling and pip are needed to build the package without a network")
        pip = [sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, "--no-build-isolation", "--target", str(tmp_path), str(PACKAGE)], check=True)
    else:
        project = tomllib.loads((PACKAGE / "pyproject.toml").read_text())["project"]
        info = tmp_path / f"haibun_las-{project['version']}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(
            f"Metadata-Version: 2.1\nName: {project['name']}\nVersion: {project['version']}\n"
        )
        lines = [
            f"[{group}]\n" + "".join(f"{name} = {target}\n" for name, target in points.items())
            for group, points in project["entry-points"].items()
        ]
        (info / "entry_points.txt").write_text("\n".join(lines))
        monkeypatch.syspath_prepend(PACKAGE)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.invalidate_caches()
    yield
    sys.modules.pop("las", None)


def test_a_third_partys_policy_is_found_by_name_beside_ours(installed: None) -> None:
    assert {"fifo", "las", "srtf", "tiresias"} <= set(policies())
    assert make_policy("las", {"quantum": 5.0}).name == "las"
    with pytest.raises(UnknownPolicyError, match="quantum must be"):
        make_policy("las", {"quantum": 0.0})


def test_it_schedules(installed: None) -> None:
    cluster = Cluster((Node("n", (DeviceGroup("gpu", 1),)),))
    engine = make_engine(cluster, "las", {"quantum": 5.0}, rates=UnitRates())
    jobs = [Job(str(i), (Shape(1),), total_steps=seconds) for i, seconds in enumerate((12.0, 4.0, 7.0))]
    Replay(engine, iter(jobs), [0.0, 0.0, 0.0]).run()
    # quanta of five: job 0, then 1 whole, then 2; 0 again; the rest of 2, the rest of 0
    assert engine.state.jobs.columns.ended_at[:3].tolist() == pytest.approx([23.0, 9.0, 21.0], abs=0.02)


def test_without_the_package_nobody_knows_it() -> None:
    with pytest.raises(UnknownPolicyError, match="there is no policy 'las'"):
        make_policy("las")
