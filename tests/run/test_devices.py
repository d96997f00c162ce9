"""What a host has: GPUs by NVML, else virtual devices that never overlap."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from agent_fakes import FakeGpus
from hypothesis import given
from hypothesis import strategies as st

from haibun.core.vocabulary import DeviceGroup
from haibun.run.devices import Gpu, NvmlProbe, discover, share_cpus, type_name, visible

GB = 1 << 30
H200 = tuple(Gpu(i, f"GPU-{i}{i}", "h200", 141 * GB) for i in range(4))


@pytest.mark.parametrize(
    ("marketing", "name"),
    [
        ("NVIDIA H200", "h200"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("Tesla V100-SXM2-16GB", "v100"),
        ("Tesla K80", "k80"),
        ("NVIDIA GeForce RTX 3090", "rtx3090"),
        ("NVIDIA GeForce RTX 4070 Ti", "rtx4070ti"),
        ("NVIDIA GeForce GTX 1080 Ti", "gtx1080ti"),
        ("NVIDIA RTX A6000", "a6000"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA", "gpu"),
    ],
)
def test_a_gpu_type_is_the_short_name_of_its_model(marketing: str, name: str) -> None:
    assert type_name(marketing) == name


def test_gpus_are_the_devices_where_nvml_finds_them() -> None:
    found = discover("n", probe=FakeGpus(H200), cpus=tuple(range(16)), memory=64 * GB)
    assert found.node.devices == (DeviceGroup("h200", 4, 141 * GB),)
    assert (found.node.cpus, found.node.memory) == (16.0, 64 * GB)
    assert [d.cpus for d in found.devices] == [tuple(range(i, i + 4)) for i in (0, 4, 8, 12)]
    assert all(d.quota is None and d.memory == 16 * GB for d in found.devices)


def test_unequal_gpus_keep_their_order() -> None:
    mixed = (H200[0], Gpu(1, "GPU-b", "k80", 12 * GB), H200[2])
    found = discover("n", probe=FakeGpus(mixed), cpus=(0, 1, 2), memory=3 * GB)
    assert [g.type for g in found.node.devices] == ["h200", "k80", "h200"]


def test_asking_for_virtual_devices_leaves_gpus_alone() -> None:
    found = discover("n", virtual=2, probe=FakeGpus(H200), cpus=(3, 5, 7), memory=GB)
    assert found.node.devices == (DeviceGroup("cpu", 2, 0),)
    assert [d.cpus for d in found.devices] == [(3,), (5, 7)]


def test_a_host_without_gpus_has_a_device_for_each_cpu() -> None:
    assert discover("n", probe=FakeGpus(), cpus=(0, 1), memory=GB).node.devices == (DeviceGroup("cpu", 2, 0),)


def test_the_agents_own_mask_hides_gpus_from_its_jobs() -> None:
    assert [g.index for g in visible(H200, "2,GPU-00")] == [2, 0]
    assert [g.index for g in visible(H200, "1,-1,2")] == [1]
    assert visible(H200, "") == ()
    with pytest.raises(ValueError, match="no GPU 7"):
        visible(H200, "7")


def test_less_than_one_device_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 1 device"):
        discover("n", virtual=0, probe=FakeGpus(), cpus=(0,), memory=GB)


@given(st.sets(st.integers(0, 300), min_size=1, max_size=64), st.integers(1, 100))
def test_virtual_devices_never_overlap_and_never_exceed_a_core(numbers: set[int], devices: int) -> None:
    cpus = tuple(sorted(numbers))
    shares = share_cpus(cpus, devices)
    assert len(shares) == devices
    for cpu in cpus:
        assert sum(cores / len(own) for own, cores in shares if cpu in own) <= 1.0 + 1e-9
    if devices > len(cpus):
        assert len({cores for _, cores in shares}) == 1
    else:
        assert sorted(c for own, _ in shares for c in own) == list(cpus)


def test_nvml_answers_are_read_as_they_come() -> None:
    probe = NvmlProbe()
    probe._nvml = SimpleNamespace(
        nvmlDeviceGetCount=lambda: 1,
        nvmlDeviceGetHandleByIndex=lambda i: f"handle{i}",
        nvmlDeviceGetName=lambda h: b"Tesla P100-PCIE-16GB",
        nvmlDeviceGetUUID=lambda h: "GPU-abc",
        nvmlDeviceGetMemoryInfo=lambda h: SimpleNamespace(total=16 * GB),
        nvmlDeviceGetUtilizationRates=lambda h: SimpleNamespace(gpu=40),
    )
    assert probe.gpus() == (Gpu(0, "GPU-abc", "p100", 16 * GB),)
    assert probe.utilisation(0) == 0.4
    assert probe.utilisation("bad") == 0.4  # type: ignore[arg-type]
