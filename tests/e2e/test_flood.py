"""Crowds that take no part: nodes that join as spares and become silent, operators that ask without a pause. No member
has to wait for its lease because of them, and they cost the leader only a share of a core.

The members are those of tests/bench/scale_agents.c, the crowd is tests/bench/flood_agents.c.

    MUSTER_TEST_SCALE=slow …      10,000 joiners and 1,000 operators
"""
import json
import os
import pathlib
import subprocess
import sys
import time

import pytest

import harness

sys.path.insert(0, str(harness.HERE.parent / "bench"))
from bench_scale import cpu_seconds  # noqa: E402

SLOW = os.environ.get("MUSTER_TEST_SCALE") == "slow"
JOINERS, OPERATORS = (10000, 1000) if SLOW else (1500, 200)
MEMBERS = 8
BEAT, LATE = 1.0, 0.5  # the silence of a member in seconds: the heartbeat, and the allowed delay
SHARE = 0.3  # of a core


def program(name):
    built = pathlib.Path(harness.MUSTER).resolve().parents[2] / "tests" / "bench" / name
    return os.environ.get(name.upper(), str(built))


class Crowd:
    """One of the programs of tests/bench."""

    def __init__(self, *words):
        self.process = subprocess.Popen([str(w) for w in words], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.heard = harness.Heard(os.dup(self.process.stdout.fileno()))
        self.process.stdout.close()

    def said(self, word):
        with self.heard.changed:
            return [line.split()[1:] for line in self.heard.lines if line.split()[0] == word]

    def wait(self, word, number=1, seconds=60):
        found = self.heard.until(lambda: len(self.said(word)) >= number and self.said(word), seconds)
        assert found, f"no '{word}' in {seconds} s: {self.heard.lines}"
        return found[-1]

    def ask(self, word):
        """The numbers of the answer."""
        before = len(self.said(word))
        self.process.stdin.write(word.encode() + b"\n")
        self.process.stdin.flush()
        return [int(x) for x in self.wait(word, before + 1)]

    def close(self):
        self.process.kill()
        self.process.wait()
        self.heard.join()
        self.process.stdin.close()


class Beset:
    """A leader with its members, and the crowd that comes to it."""

    def __init__(self, job):
        self.job, self.crowds, self.port = job, [], harness.free_port()
        # Without a run id there is no leader file, and each LEASE ends later than the last: "gap" depends on that.
        self.agent = job.agent("leader", f"--nnodes={MEMBERS + 1}", "--nproc-per-node=1", "--max-restarts=3",
                               "--rdzv-backend=c10d", f"--rdzv-endpoint=127.0.0.1:{self.port}",
                               "--no-python", program("scale_agents"), "worker", job.tmp / "events",
                               program=[*harness.muster(), "run"])
        self.agent.wait_said("waiting for nodes")
        self.members = self.crowd("scale_agents", "agents", self.port, MEMBERS, 1, MEMBERS + 1, MEMBERS + 1, "none")
        self.members.wait("ready")
        self.members.process.stdin.write(f"go {time.monotonic_ns()}\n".encode())
        self.members.process.stdin.flush()
        assert self.members.wait("started")[0] == "1.1"
        self.leader = self.agent.agent_pid()

    def __enter__(self):
        return self

    def __exit__(self, *exc):
        for crowd in self.crowds:
            crowd.close()

    def crowd(self, name, *words):
        self.crowds.append(Crowd(program(name), *words))
        return self.crowds[-1]

    def watch(self, seconds):
        """(the leader's share of a core, the longest silence of a member in seconds) during that time; fails if the
        group ends."""
        self.members.ask("gap")
        cpu, began = cpu_seconds(self.leader), time.monotonic()
        self.members.heard.until(lambda: self.members.said("end") or len(self.members.said("started")) > 1, seconds)
        share = (cpu_seconds(self.leader) - cpu) / (time.monotonic() - began)
        silence = self.members.ask("gap")[0] / 1e9
        print(f"{seconds} s: {share:.2f} of a core, a member's longest silence {silence:.3f} s")
        assert len(self.members.said("started")) == 1 and not self.members.said("end"), self.agent.said()
        assert len(self.job.events.all("start")) == 1, self.agent.said()
        return share, silence

    def bears(self, seconds):
        share, silence = self.watch(seconds)
        assert silence <= BEAT + LATE * harness.SLOWER, silence
        assert share <= SHARE * harness.SLOWER, share


def test_joiners_that_fall_silent_cost_no_member_its_lease(job):
    with Beset(job) as beset:
        joiners = beset.crowd("flood_agents", "join", beset.port, JOINERS, "none")
        joiners.wait("all")
        beset.watch(1)
        for _ in range(4):
            beset.bears(2)


def test_operators_who_ask_without_pause_cost_no_member_its_lease(job):
    with Beset(job) as beset:
        operators = beset.crowd("flood_agents", "ask", beset.port, OPERATORS, "none")
        operators.wait("all")
        beset.watch(1)
        for _ in range(2):
            beset.bears(3)
        answered, _, _ = operators.ask("count")
        assert answered >= 10 * OPERATORS, answered


@pytest.mark.slow
def test_both_at_once(job):
    with Beset(job) as beset:
        beset.crowd("flood_agents", "join", beset.port, JOINERS, "none").wait("all")
        operators = beset.crowd("flood_agents", "ask", beset.port, OPERATORS, "none")
        beset.watch(1)
        for _ in range(4):
            beset.bears(2)
        said = subprocess.run([*harness.muster(), "status", "--json", f"127.0.0.1:{beset.port}"], capture_output=True,
                              text=True, timeout=60)
        assert said.returncode == 0, said
        assert sum(node["place"] == "member" for node in json.loads(said.stdout)["nodes"]) == MEMBERS + 1
