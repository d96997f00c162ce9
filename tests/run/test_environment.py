"""What workers find in their environment, and which part of the node each may use."""

from __future__ import annotations

import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from haibun.run import environment
from haibun.run.devices import Gpu, LocalDevice, share_cpus
from haibun.run.environment import common, limits, of_worker, split_devices, threads
from haibun.run.isolation import WorkerLimits
from haibun.run.protocol import Launch

GB = 1 << 30


def virtual(cpus: int, count: int) -> tuple[LocalDevice, ...]:
    return tuple(
        LocalDevice(i, own, cores, GB) for i, (own, cores) in enumerate(share_cpus(tuple(range(cpus)), count))
    )


def gpus(count: int, cpus: int) -> tuple[LocalDevice, ...]:
    shares = enumerate(share_cpus(tuple(range(cpus)), count))
    return tuple(
        LocalDevice(i, own, cores, GB, Gpu(i, f"GPU-{i}", "h200", 141 * GB)) for i, (own, cores) in shares
    )


def launch(**more: object) -> Launch:
    given = {
        "devices": (0, 1),
        "processes": 2,
        "world_size": 4,
        "first_rank": 2,
        "node_rank": 1,
        "nodes": 2,
        **more,
    }
    return Launch(job="j", epoch=3, name="job", cwd="/w", checkpoints="/c", logs="/l", **given)  # type: ignore[arg-type]


def test_workers_have_torchruns_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "77")
    env = common(launch(env={"MINE": "1", "RANK": "99"}), "a1", virtual(4, 4)[:2], 4567)
    worker = of_worker(env, launch(), 1, 2, environment.Path("/b"))
    expected = {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "LOCAL_WORLD_SIZE": "2",
        "GROUP_RANK": "1",
        "GROUP_WORLD_SIZE": "2",
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": "4567",
        "OMP_NUM_THREADS": "2",
        "CUDA_VISIBLE_DEVICES": "",
        "HAIBUN_ATTEMPT": "a1/j/3",
        "HAIBUN_SLOT": "1",
        "HAIBUN_BOARD": "/b",
        "MINE": "1",
    }
    assert {k: worker.get(k) for k in expected} == expected
    assert "HAIBUN_CHECKPOINT_EVERY" not in worker
    assert worker["HOME"] == os.environ["HOME"]


def test_gpus_are_named_by_their_physical_index() -> None:
    env = common(launch(checkpoint_every=2.5), "a1", gpus(4, 8)[2:], 1)
    assert (env["CUDA_VISIBLE_DEVICES"], env["CUDA_DEVICE_ORDER"]) == ("2,3", "PCI_BUS_ID")
    assert env["HAIBUN_CHECKPOINT_EVERY"] == "2.5"


def test_a_gang_on_one_node_talks_over_loopback() -> None:
    assert common(launch(nodes=1), "a", virtual(2, 2), 1)["GLOO_SOCKET_IFNAME"] == "lo"
    assert "GLOO_SOCKET_IFNAME" not in common(launch(), "a", virtual(2, 2), 1)


def test_a_share_of_a_core_is_a_quota_and_a_whole_one_is_not() -> None:
    half = limits(launch(), virtual(2, 4)[:2])
    assert half.workers == (WorkerLimits((0,), 0.5), WorkerLimits((1,), 0.5))
    assert half.memory == 2 * GB
    whole = limits(launch(memory=5), virtual(4, 2))
    assert whole.workers == (WorkerLimits((0, 1)), WorkerLimits((2, 3)))
    assert whole.memory == 5
    one = limits(launch(processes=1), virtual(2, 4)[:2])
    assert one.workers == (WorkerLimits((0, 1), 1.0),)


def test_a_gpu_job_may_name_its_cpus() -> None:
    some = limits(launch(cpus=3.0), gpus(2, 8))
    assert (some.cores, some.workers[0]) == (3.0, WorkerLimits(tuple(range(8))))
    assert threads(launch(cpus=3.0), some.workers[0]) == 1
    assert threads(launch(), limits(launch(), gpus(2, 8)).workers[0]) == 4


@given(st.integers(1, 16), st.integers(1, 16))
def test_every_worker_has_a_device_and_every_device_a_worker(count: int, workers: int) -> None:
    shares = split_devices(virtual(4, count), workers)
    assert len(shares) == workers
    assert all(shares)
    assert {d.number for s in shares for d in s} == set(range(count)) or workers < 1


def test_each_attempt_has_a_fresh_port() -> None:
    assert len({environment.free_port() for _ in range(20)}) > 1
