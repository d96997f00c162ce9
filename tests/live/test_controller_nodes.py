"""Two nodes (agents of this host): gangs across both, retries on the other, drains, lost agents."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from up_harness import Haibun, assert_ran_once, haibun_up, steps, until

pytest.importorskip("torch")
pytestmark = pytest.mark.live

DDP = """
import os, sys, time
import torch, torch.distributed as dist
import haibun.train
dist.init_process_group("gloo")
rank = dist.get_rank()
torch.manual_seed(rank)
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
out, total = sys.argv[1], int(open(sys.argv[1] + ".total").read())
run = haibun.train.attach(model=model, optimizer=optimizer, total_steps=total, checkpoint_steps=5)
for step in run.steps():
    optimizer.zero_grad()
    model(torch.full((4, 8), 0.1 * ((rank + step) % 7))).square().mean().backward()
    optimizer.step()
    time.sleep(0.01)
    with open(f"{out}.{rank}", "a") as f:
        f.write(f"{os.getpid()} {os.environ['HAIBUN_EPOCH']} {step}\\n")
print("weight", model.module.weight.sum().item(), "on", os.environ["GROUP_RANK"], "of", os.environ["GROUP_WORLD_SIZE"])
"""


@pytest.fixture(scope="module")
def here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Haibun]:
    with haibun_up(tmp_path_factory.mktemp("nodes"), nodes=2, virtual_devices=1, warm=True) as h:
        (h.scripts / "ddp.py").write_text(DDP)
        yield h


@pytest.fixture(autouse=True)
def _nothing_is_left(here: Haibun) -> Iterator[None]:
    yield
    for view in here.client.ls():
        here.client.cancel(view.id)
    until(here.all_connected, lambda: f"both nodes are back: {here.client.nodes()}", 20)
    here.assert_idle()


def ddp(here: Haibun, out: Path, total: int, **fields: object) -> str:
    Path(f"{out}.total").write_text(str(total))  # a file: it can be changed between two attempts
    argv = ["python", str(here.scripts / "ddp.py"), str(out)]
    return here.client.run(argv, devices=2, num_nodes=2, workdir=str(here.home.parent), **fields)


def test_a_gang_over_two_nodes_trains_as_one_is_paused_and_resumes(here: Haibun, tmp_path: Path) -> None:
    job = ddp(here, tmp_path / "out", 100_000)
    until(lambda: len(steps(tmp_path / "out.1")) > 10, lambda: here.log(job) + here.log(job, rank=1), 60)
    view = here.view(job)
    assert len(view.nodes) == 2
    here.client.pause(job)
    here.until(job, "paused", 30)
    told = [len(steps(tmp_path / f"out.{rank}")) for rank in range(2)]
    assert told[0] == told[1], "both stopped after the same step"
    assert here.view(job).durable == told[0]
    (tmp_path / "out.total").write_text(str(told[0] + 20))
    here.client.resume(job)
    view = here.client.wait(job, 90)
    assert (view.state, view.attempts, view.lost) == ("succeeded", 2, 0.0), view.why
    for rank in range(2):
        assert_ran_once(tmp_path / f"out.{rank}", told[0] + 20, durable_every=1)
    words = [here.log(job, 2, rank).splitlines()[-1].split() for rank in range(2)]
    assert words[0][1] == words[1][1], "the same weights on both"
    assert [w[-3:] for w in words] == [["0", "of", "2"], ["1", "of", "2"]]


def test_when_one_part_of_a_gang_dies_all_of_it_ends_and_is_retried_whole(
    here: Haibun, tmp_path: Path
) -> None:
    job = ddp(here, tmp_path / "out", 40, retries=1)
    until(lambda: len(steps(tmp_path / "out.1")) > 10, lambda: here.log(job) + here.log(job, rank=1), 60)
    os.kill(steps(tmp_path / "out.1")[-1][0], signal.SIGKILL)
    view = here.client.wait(job, 90)
    assert (view.state, view.attempts, view.failures) == ("succeeded", 2, 1), view.why
    for rank in range(2):
        assert_ran_once(tmp_path / f"out.{rank}", 40)


def test_a_gang_survives_the_death_of_the_controller_and_of_one_of_its_agents(
    here: Haibun, tmp_path: Path
) -> None:
    job = ddp(here, tmp_path / "out", 60)
    until(lambda: len(steps(tmp_path / "out.1")) > 10, lambda: here.log(job) + here.log(job, rank=1), 60)
    here.kill()
    here.start()
    assert here.view(job).attempts == 1
    os.kill(here.agent(1), signal.SIGKILL)
    view = here.client.wait(job, 90)
    assert (view.state, view.failures) == ("succeeded", 0), view.why
    for rank in range(2):
        assert_ran_once(tmp_path / f"out.{rank}", 60)


def test_a_retry_goes_to_the_other_node(here: Haibun, tmp_path: Path) -> None:
    job = here.shell("exit 3", retries=1)
    assert here.client.wait(job, 20).state == "failed"
    first, second = here.client.show(job).attempts
    assert first.nodes != second.nodes


def test_a_drained_node_is_left_and_gets_nothing_new(here: Haibun, tmp_path: Path) -> None:
    job = here.stepper(tmp_path / "out", 100)
    until(lambda: len(steps(tmp_path / "out")) > 10, "it makes steps")
    (node,) = here.view(job).nodes
    here.client.drain(node)
    until(lambda: here.view(job).nodes not in ((), (node,)), "it moves")
    other = here.shell("true")
    assert here.client.wait(job, 20).state == "succeeded"
    assert here.client.wait(other, 20).state == "succeeded"
    assert here.client.show(other).attempts[0].nodes != (node,)
    assert_ran_once(tmp_path / "out", 100, durable_every=1)
    here.client.undrain(node)
