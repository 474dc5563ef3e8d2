"""Incidents: one line of the event log for each, with fields and a text that need no other line."""
import json
import os
import re
import signal

import pytest

from harness import HERE, TORCH_PYTHON, deadline, free_port, kill
from test_operate import ask, until

pytestmark = pytest.mark.torch

ENV = {"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1"}
KEYS = ["time", "monotonic_ns", "event", "run_id", "host", "symptom", "n", "class", "generation", "new_generation", "node", "rank",
        "local_rank", "exitcode", "signal", "cause", "xid", "gpu", "evidence", "action", "restarts_used", "noticed_ms", "stopped_ms",
        "started_ms", "first_step_ms", "steps_lost", "nodes", "world_size", "text"]


class Train:
    """Agents of a job that trains; what goes wrong, and what is written about it."""

    def __init__(self, job, tags, endpoint, *words, env=None):
        self.job, self.endpoint, self.known = job, endpoint, 0
        self.agents = {tag: job.agent(tag, f"--nnodes=1:{len(tags)}", "--nproc-per-node=2", f"--rdzv-endpoint={endpoint}",
                                      "--rdzv-id=e2e", "--rdzv-conf=last_call_timeout=60", "--max-restarts=9", "--crash-loop=0",
                                      "--exclude-after=0", "--preflight=off", f"--event-log={job.tmp}/{tag}.jsonl", *words,
                                      HERE / "torch_train.py", job.tmp, env={**ENV, **(env or {})}) for tag in tags}
        self.workers = {}
        self.trains(2 * len(tags))

    def trains(self, world):
        """Waits until a group of so many workers has gone thirteen steps, each of a new group."""
        ranks = self.job.events.wait("trains", world + self.known, 120)[self.known:]
        self.known += world
        self.workers = {int(e.fields["rank"]): e.fields for e in ranks}
        assert sorted(self.workers) == list(range(world)), ranks

    def pid(self, rank):
        return int(self.workers[rank]["pid"])

    def incidents(self):
        found = []
        for tag in self.agents:
            for line in (self.job.tmp / f"{tag}.jsonl").read_text().splitlines():
                e = json.loads(line)
                if e["event"] == "incident":
                    assert len(line) <= 2048 and list(e) == KEYS, line
                    found.append(e)
        return sorted(found, key=lambda e: e["time"])

    def check(self, n, status_says, **fields):
        """Of the n-th incident, as status and event log have it."""
        [last] = self.incidents()[n - 1:]
        assert {k: last[k] for k in fields} == fields, last
        assert last["n"] == n and 0 <= last["noticed_ms"] <= last["started_ms"] <= last["first_step_ms"], last
        assert last["text"].startswith(last["symptom"] + ", ") and "group " + last["new_generation"] in last["text"], last["text"]
        s = until(self.job, lambda s: s["state"] == "running" and s["restart_seconds"] is not None, *self.words(), seconds=60)
        assert re.search(status_says, s["incident"]), s["incident"]
        assert s["incidents"][last["class"]] >= 1 and sum(s["incidents"].values()) == n
        return last

    def words(self):
        return [self.endpoint] if self.endpoint.startswith("127.") else ["--rdzv-id=e2e"]

    def end(self, *lost):
        (self.job.tmp / "end").touch()
        for tag in self.agents:
            if tag not in lost:
                code, _, err = self.agents[tag].finish(120)
                assert code == 0, err
        return "".join(a.said() for a in self.agents.values())


def test_workers_that_fail_hang_and_an_excluded_node(job):
    t = Train(job, "ab", f"127.0.0.1:{free_port()}", "--rdzv-backend=c10d")
    tag_of = {rank: w["tag"] for rank, w in t.workers.items()}
    kill(t.pid(3))
    t.trains(4)
    last = t.check(1, "rank 3 .*SIGKILL", **{"class": "worker"}, generation="1.1", new_generation="1.2", rank=3,
                   local_rank=1, signal=9, exitcode=None, action="restart", restarts_used=1, steps_lost=3, nodes=2, world_size=4,
                   xid=None, gpu=None, evidence=None)
    assert "died of SIGKILL" in last["text"] and "Repeated: 3 steps." in last["text"], last["text"]
    (job.tmp / "exit.2").touch()
    t.trains(4)
    t.check(2, "rank 2 ", **{"class": "worker"}, rank=2, exitcode=1, signal=None, action="restart")
    (job.tmp / "crash.1").touch()
    t.trains(4)
    last = t.check(3, "rank 1 .*SIGSEGV", **{"class": "worker"}, rank=1, signal=int(signal.SIGSEGV), restarts_used=3)
    os.kill(t.pid(2), signal.SIGSTOP)
    t.trains(4)
    last = t.check(4, "hangs", **{"class": "hang"}, rank=2, exitcode=None, signal=None, action="restart", restarts_used=4)
    assert last["evidence"] and last["noticed_ms"] >= 5000, last
    other = next(tag for tag in "ab" if tag != tag_of[0])
    host = last["node"].removesuffix("-2")
    code, out, err = ask(job, "exclude", f"{host}-2", *t.words())
    assert code == 0, (out, err)
    t.trains(2)
    t.check(5, "excluded", **{"class": "excluded"}, node=f"{host}-2", rank=None, action="shrink", restarts_used=4, nodes=1)
    said = t.end(other)
    assert re.search(r"5 incidents; workers ran at most \d+\.\d % of .* from first symptoms to new starts; \d+ steps repeated", said), said


def test_an_agent_and_the_leader_are_killed(job):
    t = Train(job, "abc", f"dir:{job.tmp}/shared", env={"TRAIN_QUIET": 1})
    lost = t.workers[5]["tag"]
    kill(t.agents[lost].agent_pid())
    t.trains(4)
    i = t.incidents()[0]
    assert (i["class"], i["action"], i["rank"], i["restarts_used"], i["nodes"], i["n"]) == ("node_lost", "shrink", None, 0, 2, 1), i
    assert i["first_step_ms"] is None and i["steps_lost"] is None and "The lost work is not known" in i["text"], i
    leader = t.workers[0]["tag"]
    kill(t.agents[leader].agent_pid())
    t.trains(2)
    _, i = t.incidents()
    assert (i["class"], i["action"], i["nodes"], i["n"], i["world_size"]) == ("node_lost", "shrink", 1, 2, 2), i
    assert i["node"] is not None and i["new_generation"].endswith(".1") and i["new_generation"] != "1.1", i
    s = until(job, lambda s: s["state"] == "running", "--rdzv-id=e2e", seconds=60)
    assert s["incidents"]["node_lost"] == 2 and "node" in s["incident"], s
    assert abs(sum(s["phase_seconds"].values()) - s["job_seconds"]) < 1, s
    t.end(lost, leader)
