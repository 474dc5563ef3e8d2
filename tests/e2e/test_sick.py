"""Nodes that are left out because they are sick: Xids of their GPUs. NVML is a fake one (tests/tools/fake_nvml.c), whose
script each node has for itself, and whose events are the lines of a file."""
import json
import os
import pathlib
import re
import select
import signal

import pytest

from harness import free_port, kill, nvml_env
from test_operate import until

GPUS = ('driver 550.54\ncount 8\ngpu 0-7 name "NVIDIA H100 80GB HBM3" cc 9.0\n' +
        "".join(f"gpu {i} busid 00000000:{0x99 + i:02X}:00.0 uuid GPU-{i}\n" for i in range(8)))
GPU_4 = r"GPU 4 \(0000:9d:00\.0\)"


class Node:
    def __init__(self, job, tag, meet, nnodes, lines, words, worker, env):
        self.tag, self.events = tag, job.tmp / f"xids-{tag}"
        self.events.touch()
        self.env = nvml_env(job.tmp, f"{GPUS}events {self.events}\n{lines}")
        self.script = pathlib.Path(self.env["FAKE_NVML_SCRIPT"])
        self.agent = job.agent(tag, f"--nnodes={nnodes}", "--nproc-per-node=2", "--rdzv-backend=c10d", f"--rdzv-endpoint={meet}",
                               "--rdzv-id=e2e", "--bind=none", "--nccl-env=off", "--max-restarts=9", *words, "--no-python", job.worker,
                               *worker, env={**self.env, **env})

    def xid(self, number, gpu=4):
        """The GPU reports an Xid, and the agent knows it."""
        with self.events.open("a") as f:
            f.write(f"{gpu} {number}\n")
        self.agent.wait_said(rf"Xid {number} on GPU {gpu}")


def start(job, tags="abc", nnodes="2", lines="", words=(), worker=("start", "go"), **env):
    """The first node leads. All but the first two are spares. Returns {tag: node} and the first group's workers."""
    meet, nodes = f"127.0.0.1:{free_port()}", {}
    for tag in tags:
        if tag > "b":
            job.events.wait("start", 4, world=4)
        nodes[tag] = Node(job, tag, meet, nnodes, lines, ("-v", *words), worker, env)
        if tag != "b":
            nodes[tag].agent.wait_said("1 of 2" if tag == "a" else "waits for a place")
    return nodes, job.events.wait("start", 4, world=4)


def abort(workers, tag, local=0):
    """A worker of this node dies."""
    kill(int(next(w.fields["pid"] for w in workers if w.fields["tag"] == tag and w.fields["local"] == str(local))), signal.SIGABRT)


def tags(workers):
    return {w.fields["tag"] for w in workers}


def finish(job, nodes):
    job.go()
    for tag, node in nodes.items():
        assert node.agent.finish()[0] == 0, node.agent.said()


def incident(job):
    """The only one, with the event log of all nodes, which are on one machine."""
    lines = [json.loads(line) for line in (job.tmp / "log.jsonl").read_text().splitlines()]
    [found] = [line for line in lines if line["event"] == "incident"]
    return found


# --- the check before the start, of a job with one node ----------------------------------------------------------------


@pytest.mark.parametrize("bind", ["none", "numa"])
def test_a_single_node_checks_its_gpus(job, bind):
    env = nvml_env(job.tmp, GPUS + "gpu 4 recovery 1\ngpu 5 ecc 3\n")
    words = ("--nproc-per-node=1", f"--bind={bind}", "--nccl-env=off", "--no-python", job.worker, "start", "go")
    code, _, err = job.run("--preflight=strict", *words, env=env)
    assert code == 1 and re.search(rf"preflight \(--preflight=strict\): GPU-RECOVERY: {GPU_4} needs a reset", err), err
    assert job.events.all("start") == []
    env = nvml_env(job.tmp, GPUS + "gpu 4 recovery 1\ngpu 5 ecc 3\nfail nvmlDeviceGetFieldValues 7 15\n")
    agent = job.agent("a", *words, env=env)
    agent.wait_said(rf"warning: preflight: GPU-RECOVERY: {GPU_4} needs a reset")
    agent.wait_said(r"warning: preflight: GPU-ECC: GPU 5 \(0000:9e:00\.0\) has had uncorrected ECC errors")
    job.go()
    code, _, err = agent.finish()
    assert code == 0 and "preflight: GPU-LOST" not in err, err  # which other rules report
    code, _, err = job.run("--preflight=off", *words, env=env)
    assert code == 0 and "GPU-" not in err, err


# --- Xids ------------------------------------------------------------------------------------------------------------


def test_a_node_whose_gpu_fell_off_the_bus_is_left_out(job):
    nodes, first = start(job, words=(f"--event-log={job.tmp}/log.jsonl",))
    nodes["b"].xid(79)
    abort(first, "b")
    again = job.events.wait("start", 8, world=4)[4:]
    assert tags(again) == {"a", "c"}
    nodes["a"].agent.wait_said(rf"died of SIGABRT [0-9]+ ms after Xid 79 on {GPU_4}; node \S+ is left out, \S+ takes its place")
    finish(job, nodes)
    i = incident(job)
    assert [i[key] for key in ("class", "xid", "gpu", "signal", "action", "nodes")] == ["health", 79, 4, signal.SIGABRT, "spare", 2], i
    assert re.search(rf"died of SIGABRT [0-9]+ ms after Xid 79 on {GPU_4}; node \S+ is left out, \S+ takes its place\. ", i["text"]), i


def test_without_a_spare_sick_nodes_are_taken(job):
    nodes, first = start(job, tags="ab", words=(f"--event-log={job.tmp}/log.jsonl",))
    nodes["a"].xid(79)
    nodes["b"].xid(79)
    abort(first, "b")
    assert tags(job.events.wait("start", 8, world=4)[4:]) == {"a", "b"}
    nodes["a"].agent.wait_said(rf"warning: .* after Xid 79 on {GPU_4}; node \S+ is sick and takes part, as there are too few other nodes")
    finish(job, nodes)
    i = incident(job)
    assert (i["class"], i["action"]) == ("health", "restart") and "the same nodes start again, and node " in i["text"], i


def test_an_xid_after_the_exit_counts_until_the_workers_are_gone(job):
    nodes, first = start(job, worker=("ignore", "start", "go"), words=("--shutdown-timeout=3",))
    abort(first, "b")
    nodes["a"].agent.wait_said("SIGABRT")
    nodes["b"].xid(119)
    assert tags(job.events.wait("start", 8, 60, world=4)[4:]) == {"a", "c"}
    nodes["a"].agent.wait_said(rf"died of SIGABRT [0-9]+ ms before Xid 119 on {GPU_4}; node \S+ is left out")
    finish(job, nodes)


@pytest.mark.parametrize("number, action, out", [(119, 0, False), (74, 1, True), (79, 0, True), (119, 2, True)])
def test_the_recovery_action_of_nvml_is_worth_more_than_the_number(job, number, action, out):
    nodes, first = start(job, lines="gpu 0-7 recovery 0\n")
    nodes["b"].script.write_text(nodes["b"].script.read_text() + f"gpu 4 recovery {action}\n")
    nodes["b"].xid(number)
    abort(first, "b")
    assert tags(job.events.wait("start", 8, world=4)[4:]) == ({"a", "c"} if out else {"a", "b"})
    finish(job, nodes)


def test_a_gpu_that_is_lost_when_a_worker_fails_needs_no_xid(job):
    nodes, first = start(job, worker=("ignore", "start", "go"), words=("--shutdown-timeout=3",))
    nodes["b"].script.write_text(nodes["b"].script.read_text() + "fail nvmlDeviceGetFieldValues 4 15\n")
    abort(first, "b")
    assert tags(job.events.wait("start", 8, 60, world=4)[4:]) == {"a", "c"}
    nodes["a"].agent.wait_said(rf"{GPU_4} is lost: the driver can't reach it")
    finish(job, nodes)


def test_an_older_verdict_is_not_that_of_a_new_failure(job):
    nodes, first = start(job, tags="ab", words=(f"--event-log={job.tmp}/log", "--crash-loop=0"))
    at = next(w for w in nodes["a"].agent.words if w.startswith("--rdzv-endpoint=")).split("=")[1]
    script = nodes["b"].script
    fit = script.read_text()
    script.write_text(fit + "gpu 4 recovery 1\n")
    abort(first, "b")
    second = job.events.wait("start", 8, world=4)[4:]
    until(job, lambda s: any(n["why"] and "needs a reset" in n["why"] for n in s["nodes"]), at)
    script.write_text(fit)
    abort(second, "b")
    job.events.wait("start", 12, world=4)
    finish(job, nodes)
    incidents = [e for e in map(json.loads, (job.tmp / "log").read_text().splitlines()) if e["event"] == "incident"]
    assert [e["class"] for e in incidents] == ["worker", "worker"], incidents


@pytest.mark.parametrize("number", [13, 31, 43, 94, 999])
def test_an_xid_of_the_program_leaves_no_node_out(job, number):
    nodes, first = start(job)
    nodes["b"].xid(number)
    abort(first, "b")
    assert tags(job.events.wait("start", 8, world=4)[4:]) == {"a", "b"}
    assert "left out" not in nodes["a"].agent.said()
    finish(job, nodes)


def test_an_xid_alone_stops_nothing(job):
    nodes, first = start(job)
    nodes["b"].xid(79)
    nodes["a"].xid(119)
    finish(job, nodes)
    assert len(job.events.all("start")) == len(first)


@pytest.mark.parametrize("line", ["hang nvmlEventSetWait_v2", "crash nvmlEventSetWait_v2", "missing nvmlEventSetCreate"])
def test_a_watch_of_xids_that_hangs_or_dies_changes_nothing(job, line):
    nodes, first = start(job, lines=line + "\n")
    abort(first, "b")
    assert tags(job.events.wait("start", 8, world=4)[4:]) == {"a", "b"}
    finish(job, nodes)


def test_gpus_of_another_job_do_not_count(job):
    nodes, first = start(job, CUDA_VISIBLE_DEVICES="3,4")
    with nodes["b"].events.open("a") as f:
        f.write("5 79\n")
    nodes["b"].xid(13, gpu=3)  # it comes after the other one
    abort(first, "b")
    assert tags(job.events.wait("start", 8, world=4)[4:]) == {"a", "b"}
    assert "Xid 79" not in nodes["b"].agent.said()
    finish(job, nodes)


def xid_children(agent):
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            stat = pathlib.Path(f"/proc/{pid}/stat").read_text()
        except OSError:
            continue
        name, parent = re.fullmatch(r"\d+ \((.*)\) \S (\d+) .*\n?", stat, re.S).groups()
        if name == "muster-xid" and int(parent) == agent.agent_pid():
            found.append(int(pid))
    return found


def test_without_the_preflight_no_xids_are_received(job):
    nodes, first = start(job, tags="ab", words=("--preflight=off",))
    with nodes["b"].events.open("a") as f:
        f.write("4 79\n")
    abort(first, "b")
    job.events.wait("start", 8, world=4)
    assert xid_children(nodes["a"].agent) == [] and "Xid" not in nodes["b"].agent.said()
    finish(job, nodes)


def test_the_watch_of_xids_dies_with_the_agent(job):
    nodes, _ = start(job, tags="ab")
    child, = xid_children(nodes["b"].agent)
    end = os.pidfd_open(child)
    os.kill(nodes["b"].agent.agent_pid(), signal.SIGKILL)
    assert select.select([end], [], [], 30)[0]
    os.close(end)
    job.go()
    nodes["a"].agent.finish()
