"""Nodes that find each other by Slurm's variables alone. The agents are on this machine, and get the variables that srun
sets for the tasks of a step; with a real Slurm it is tried in test_slurm.py."""
import json
import subprocess
import uuid

import pytest

import harness


class Step:
    """A step whose nodes are all this machine. Its number is its own, and so are its ports."""

    def __init__(self, job, nodes, tasks=1):
        self.job, self.nodes, self.tasks = job, nodes, tasks
        self.number = uuid.uuid4().int % 10**9 + 1

    def env(self, node, proc=None, local=0, **more):
        count = self.nodes * self.tasks
        return {"SLURM_JOB_ID": self.number, "SLURM_CLUSTER_NAME": "here", "SLURM_STEP_ID": 0,
                "SLURM_STEP_NODELIST": "localhost", "SLURM_STEP_NUM_NODES": self.nodes, "SLURM_STEP_NUM_TASKS": count,
                "SLURM_STEP_TASKS_PER_NODE": f"{self.tasks}(x{self.nodes})", "SLURM_NNODES": self.nodes,
                "SLURM_NTASKS": count, "SLURM_NODEID": node, "SLURM_PROCID": node if proc is None else proc,
                "SLURM_LOCALID": local, "CUDA_VISIBLE_DEVICES": "\0unset", "ROCR_VISIBLE_DEVICES": "\0unset", **more}

    def agent(self, tag, node, *words, options=(), **more):
        return self.job.agent(tag, *options, "--no-python", *(words or (self.job.worker, "start", "go")),
                              env=self.env(node, **more))


@pytest.fixture
def step(job):
    return Step(job, 2)


def finish(agents):
    for agent in agents:
        code, _, err = agent.finish()
        assert code == 0, err


def test_the_step_is_the_group_and_ranks_go_by_the_tasks(job, step):
    # as with srun -m arbitrary: node 0 has the last rank, and leads all the same
    agents = [step.agent("a", 0, proc=1, SLURM_GPUS_ON_NODE=2, options=["-v", f"--event-log={job.tmp}/a.log"]),
              step.agent("b", 1, proc=0, options=[f"--event-log={job.tmp}/b.log"])]
    starts = job.events.wait("start", 3, world=3)
    job.go()
    finish(agents)
    ranks = sorted((event.fields["tag"], event.fields["rank"]) for event in starts)
    assert ranks == [("a", "1"), ("a", "2"), ("b", "0")], starts
    assert (job.tmp / "a.log").read_text() and not (job.tmp / "b.log").read_text()
    said = agents[0].said()
    for part in ("nnodes: 2, from SLURM_STEP_NUM_NODES", "nproc_per_node: 2, from SLURM_GPUS_ON_NODE",
                 f"rdzv_id: here.{step.number}.0, from SLURM_CLUSTER_NAME, SLURM_JOB_ID, SLURM_STEP_ID",
                 "rdzv_endpoint: localhost:", "node_rank: 1, from SLURM_PROCID"):
        assert part in said, said


def test_what_a_process_manager_told_muster_is_not_for_its_workers(job, step):
    names = ["PMI_RANK", "PMI_FD", "PMIX_RANK", "PMIX_MCA_gds", "SLURM_NODEID", "TORCHELASTIC_RUN_ID"]
    words = [job.worker, "start", *(f"env={name}" for name in names), "go"]
    agents = [step.agent(tag, node, *words, PMI_RANK=node, PMI_FD=9, PMIX_RANK=node, PMIX_MCA_gds="hash")
              for node, tag in enumerate("ab")]
    told = job.events.wait("env", 2 * len(names))
    job.go()
    finish(agents)
    of_0 = {event.fields["name"]: event.fields.get("value") for event in told
            if event.fields["rank"] == "0" and event.fields["set"] == "1"}
    assert of_0 == {"PMIX_MCA_gds": "hash", "SLURM_NODEID": "0", "TORCHELASTIC_RUN_ID": f"here.{step.number}.0"}


def test_a_group_that_may_shrink_goes_on_without_its_last_node(job, step):
    options = ["--nnodes=1:2", "--lease=1", "--heartbeat-interval=0.2"]
    agents = [step.agent(tag, node, options=options) for node, tag in enumerate("ab")]
    job.events.wait("start", 2, world=2)
    for pid in [agents[1].agent_pid(), agents[1].pid]:
        harness.kill(pid)
    job.events.wait("start", 1, world=1)
    job.go()
    finish(agents[:1])


def test_a_line_of_torchruns_is_a_job_as_the_line_says(job):
    step = Step(job, 2, tasks=2)  # four agents, as the line wants them
    meet = ["--nnodes=4", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{harness.free_port()}",
            "--rdzv-id=mine"]
    agents = [step.agent("abcd"[proc], proc // 2, proc=proc, local=proc % 2, options=meet) for proc in range(4)]
    job.events.wait("start", 4, world=4)
    job.go()
    finish(agents)


def test_a_task_that_sees_too_few_gpus_is_refused_with_the_line_to_write(job):
    step = Step(job, 2, tasks=2)
    code, _, err = step.agent("a", 0, SLURM_GPUS_ON_NODE=2, CUDA_VISIBLE_DEVICES=0).finish()
    assert code == 2 and "srun --ntasks-per-node=1 --gpus-per-node=2 muster run" in err, err
    code, _, err = step.agent("b", 1, proc=3, local=1, SLURM_GPUS_ON_NODE=2, CUDA_VISIBLE_DEVICES=0).finish()
    assert code == 2 and err == "", err  # once for the step


def test_print_config_says_where_each_value_is_from(job, step):
    found = subprocess.run([*harness.command(), "--print-config", "x.py"], env=job.env("a", step.env(1)), cwd=job.tmp,
                           capture_output=True, text=True, check=True)
    config = json.loads(found.stdout)
    assert (config["max_nodes"], config["node_rank"], config["is_host"]) == (2, 1, 0)
    assert config["endpoint_host"] == "localhost" and 12000 <= config["endpoint_port"] <= 28999
    assert "nproc_per_node: 1, from SLURM_STEP_TASKS_PER_NODE" in config["derived"]


def test_a_batch_script_that_was_submitted_inside_a_step_is_not_taken_for_it(job):
    env = Step(job, 1).env(0)  # what leaked; the job has two nodes
    env.update(SLURM_NNODES=2, SLURM_NTASKS=2, SLURM_TASKS_PER_NODE="1(x2)", SLURM_JOB_NODELIST="localhost")
    found = subprocess.run([*harness.command(), "--print-config", "x.py"], env=job.env("a", env), cwd=job.tmp,
                           capture_output=True, text=True, check=True)
    config = json.loads(found.stdout)
    assert config["standalone"] and not any("STEP" in line for line in config["derived"]), config


def test_check_meets_by_the_step_too(job, step):
    agents = [job.agent(tag, "--nnodes=2", program=[*harness.muster(), "check"], env=step.env(node))
              for node, tag in enumerate("ab")]
    for agent in agents:
        code, out, err = agent.finish()
        assert code in (0, 1) and "--rdzv-endpoint" not in err, err  # 1: this machine may have faults
    assert "2 nodes" in agents[0].output(), agents[0].output() + agents[0].said()
