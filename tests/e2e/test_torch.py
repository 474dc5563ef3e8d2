"""Real PyTorch jobs (gloo, CPU) under muster, and what happens to them when a worker is killed."""
import json
import os
import random

import pytest

from harness import HERE, KILLS, TORCH_PYTHON, Job, free_port, kill

pytestmark = pytest.mark.torch

STEPS = 12
ENV = {"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1"}
SEED = int(os.environ["SEED"])  # of conftest.py


@pytest.mark.parametrize("how", ["env", pytest.param("tcp", marks=pytest.mark.slow)])
def test_four_ranks_form_a_group(job, how):
    code, _, err = job.run("--standalone", "--nproc-per-node=4", HERE / "torch_steps.py", STEPS, how, env=ENV,
                           seconds=120)
    assert code == 0, err
    assert len(job.events.all("done")) == 4
    assert len(job.events.all("step")) == 4 * STEPS


def two_agents(job, *words, how="env", nproc=2, env=None):
    meet = ["--nnodes=2", f"--nproc-per-node={nproc}", "--rdzv-backend=c10d",
            f"--rdzv-endpoint=127.0.0.1:{free_port()}", "--rdzv-id=torch", *words]
    return [job.agent(tag, *meet, HERE / "torch_steps.py", STEPS, how, env={**ENV, **(env or {})}) for tag in "ab"]


def test_two_agents_form_one_group(job):
    for agent in two_agents(job, how="tcp"):
        code, _, err = agent.finish(120)
        assert code == 0, err
    assert {e.fields["rank"] for e in job.events.all("done")} == {"0", "1", "2", "3"}


def test_static_rendezvous_of_two_nodes(job):
    port = free_port()
    agents = [job.agent(tag, "--nnodes=2", f"--node-rank={n}", "--nproc-per-node=2", "--master-addr=127.0.0.1",
                        f"--master-port={port}", HERE / "torch_steps.py", STEPS, env=ENV)
              for n, tag in enumerate("ab")]
    for agent in agents:
        code, _, err = agent.finish(120)
        assert code == 0, err
    assert len(job.events.all("done")) == 4


def moments(count, seed):
    """(rank to kill, where): a third before the first collective, the others spread over the training."""
    rng = random.Random(seed)
    for n in range(count):
        early = n % 3 == 0
        yield rng.randrange(4), rng.choice(["begun", "imported", "0"]) if early else str(rng.randrange(1, STEPS))


def kill_at(job, rank, where):
    """Waits until this rank is at that point, and kills it there."""
    if where == "begun":
        event = job.events.wait("begun", 1, 60, rank=rank)[0]
    else:
        event = job.events.wait("held", 1, 120, rank=rank)[0]
    kill(int(event.fields["pid"]))


def one_kill(job, rank, where, program=None, nodes=1, seconds=120):
    """The status of a job in which this rank was killed there; None if it did not end in time."""
    env = dict(ENV, E2E_HOLD_AT=where)
    if nodes == 2:
        agents = two_agents(job, "--max-restarts=1", f"--event-log={job.tmp}/log", env=env)
    else:
        agents = [job.agent("a", "--standalone", "--nproc-per-node=4", "--max-restarts=1", HERE / "torch_steps.py",
                            STEPS, env=env, program=program)]
    kill_at(job, rank, where)
    job.go()  # workers that wait at the same point continue; new ones do not stop there
    codes = [agent.wait(seconds) for agent in agents]
    return max(codes) if None not in codes else None


@pytest.mark.parametrize("rank, where", list(moments(KILLS, SEED)))
def test_a_job_survives_a_worker_killed_at_a_random_moment(job, rank, where):
    """The test's name has the rank and the step at which it was killed. SEED={seed} repeats the same."""
    code = one_kill(job, rank, where)
    said = job.agents[0].said()
    assert code == 0, f"SEED={SEED}: rank {rank} killed at {where}: status {code}\n{said[-3000:]}"
    done = job.events.all("done")
    assert sorted(e.fields["rank"] for e in done if e.fields["count"] == "1") == ["0", "1", "2", "3"]


@pytest.mark.parametrize("rank, where", [pytest.param(0, "0", marks=pytest.mark.slow), (3, "5")])
def test_two_nodes_survive_a_killed_worker(job, rank, where):
    code = one_kill(job, rank, where, nodes=2)
    assert code == 0, "\n".join(a.said()[-3000:] for a in job.agents)
    assert len(job.events.all("done", count=1)) == 4
    failed, = [e for e in map(json.loads, (job.tmp / "log").open()) if e["event"] == "worker_failed"]
    assert (failed["rank"], failed["signal"], failed["restarts_used"]) == (rank, 9, 0) and failed["node"], failed
    assert failed["cause"] == f"rank {rank} (node {failed['node']}) died of SIGKILL", "no line that it wrote before explains a signal"
