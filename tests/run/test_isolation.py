"""Cages write the right control files: against folders that stand in for cgroup file systems."""

from __future__ import annotations

from pathlib import Path

import pytest

from haibun.run.isolation import CgroupCage, Cgroups, Limits, OpenCages, WorkerLimits, detect

LIMITS = Limits((WorkerLimits((0,), 0.5), WorkerLimits((1,), 0.5)), memory=1 << 30)
V1 = ("freezer", "cpuset", "cpu", "memory")


def host(folder: Path, version: int, own: str = "/") -> Path:
    """A fake /proc whose cgroup mounts lie below ``folder``; returns it."""
    proc = folder / "proc"
    (proc / "self").mkdir(parents=True)
    lines, paths = [], []
    for n, name in enumerate(V1 if version == 1 else ("unified",)):
        point = folder / name
        (point / own.lstrip("/")).mkdir(parents=True)
        kind, options = ("cgroup", f"rw,{name}") if version == 1 else ("cgroup2", "rw")
        lines.append(f"3{n} 20 0:{n} / {point} rw - {kind} {kind} {options}")
        paths.append(f"{n}:{name if version == 1 else ''}:{own}")
    (proc / "self/mountinfo").write_text("\n".join(lines) + "\n")
    (proc / "self/cgroup").write_text("\n".join(paths) + "\n")
    if version == 1:
        for at in (folder / "cpuset", folder / "cpuset" / own.lstrip("/")):
            (at / "cpuset.cpus").write_text("0-1\n")
            (at / "cpuset.mems").write_text("0\n")
    else:
        (folder / "unified" / own.lstrip("/") / "cgroup.controllers").write_text(
            "cpuset cpu io memory pids\n"
        )
    return proc


def text(path: Path) -> str:
    return path.read_text().strip()


def test_version_1_binds_each_worker_by_quota_and_cpu_set(tmp_path: Path) -> None:
    cages = detect("a1", host(tmp_path, 1))
    assert isinstance(cages, Cgroups)
    assert cages.notes == ()
    cage = cages.open("job/1.2", LIMITS)
    at = {c: tmp_path / c / "haibun-a1" / "job_1.2" for c in V1}
    for i in (0, 1):
        assert text(at["cpu"] / f"worker-{i}/cpu.cfs_quota_us") == "5000"
        assert text(at["cpu"] / f"worker-{i}/cpu.cfs_period_us") == "10000"
        assert text(at["cpuset"] / f"worker-{i}/cpuset.cpus") == str(i)
        assert text(at["cpuset"] / f"worker-{i}/cpuset.mems") == "0"
    assert text(at["cpu"] / "cpu.shares") == "2048", "two workers weigh as two processes"
    assert text(at["memory"] / "memory.limit_in_bytes") == str(1 << 30)
    assert cage.joins(1) == tuple(
        str(p / "cgroup.procs")
        for p in (at["freezer"], at["cpuset"] / "worker-1", at["cpu"] / "worker-1", at["memory"])
    )
    cage.freeze()
    assert text(at["freezer"] / "freezer.state") == "FROZEN"
    cage.thaw()
    assert text(at["freezer"] / "freezer.state") == "THAWED"


def test_version_1_lies_below_the_agents_own_group(tmp_path: Path) -> None:
    cages = detect("a1", host(tmp_path, 1, own="/pod/7"))
    assert cages.roots() == tuple(str(tmp_path / c / "pod/7/haibun-a1") for c in V1)


def test_version_2_is_one_tree_with_a_leaf_for_each_worker(tmp_path: Path) -> None:
    cage = detect("a1", host(tmp_path, 2, own="/user")).open("j.1", LIMITS)
    at = tmp_path / "unified/user/haibun-a1/j.1"
    assert text(at / "worker-0/cpu.max") == "5000 10000"
    assert text(at / "worker-1/cpuset.cpus") == "1"
    assert text(at / "cpu.weight") == "200"
    assert text(at / "memory.max") == str(1 << 30)
    assert text(at / "cgroup.subtree_control") == "+cpuset +cpu +memory"
    assert cage.joins(None) == (str(at / "other/cgroup.procs"),)
    cage.freeze()
    assert text(at / "cgroup.freeze") == "1"


def test_members_are_those_of_all_leaves(tmp_path: Path) -> None:
    cage = CgroupCage({"freezer": tmp_path / "f", "cpu": tmp_path / "c"}, 1, LIMITS)
    (tmp_path / "f/cgroup.procs").write_text("3\n5\n")
    (tmp_path / "c/worker-1/cgroup.procs").write_text("5\n7\n")
    assert cage.members() == {3, 5, 7}


@pytest.mark.parametrize(
    ("version", "name", "body"),
    [
        (1, "memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"),
        (2, "memory.events", "oom 3\noom_kill 2\n"),
    ],
)
def test_kills_for_memory_are_counted(tmp_path: Path, version: int, name: str, body: str) -> None:
    cage = CgroupCage({"memory": tmp_path}, version, None)
    assert cage.oom_kills() == 0
    (tmp_path / name).write_text(body)
    assert cage.oom_kills() == 2


def test_a_gpu_job_with_cpus_of_its_own_has_one_quota_for_all(tmp_path: Path) -> None:
    limits = Limits((WorkerLimits((0, 1, 2, 3)),) * 2, cores=3.0)
    CgroupCage({"cpu": tmp_path}, 1, limits)
    assert text(tmp_path / "cpu.cfs_quota_us") == "30000"
    assert not (tmp_path / "worker-0/cpu.cfs_quota_us").exists()


def test_without_cgroups_the_operator_is_told_why(tmp_path: Path) -> None:
    (tmp_path / "self").mkdir()
    (tmp_path / "self/mountinfo").write_text("")
    (tmp_path / "self/cgroup").write_text("")
    cages = detect("a1", tmp_path)
    assert isinstance(cages, OpenCages)
    assert "none is mounted" in cages.notes[0]
    assert cages.open("j", LIMITS).members() is None


def test_cgroups_that_cannot_be_written_are_not_used(tmp_path: Path) -> None:
    proc = host(tmp_path, 1)
    (tmp_path / "cpu/haibun-a1").write_text("in the way")
    cages = detect("a1", proc)
    assert isinstance(cages, OpenCages)
    assert "File exists" in cages.notes[0]
