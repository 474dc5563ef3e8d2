"""A failure or a loss: whole nodes are killed, and what the survivors report.

Workers that form a ring, of C or of gloo, and fail when a neighbour is gone. No restart is allowed: a loss that counts
as a failure ends the job. MUSTER_KILLS_CLUSTER is the number of runs (200 in the slow suite); SEED repeats one.
"""
import contextlib
import itertools
import os
import random
import re
import time

import pytest

from cluster import SHORT, cluster, kills
from harness import HERE, TORCH_PYTHON, deadline, kill

SEED = int(os.environ["SEED"])  # of conftest.py
LONG_CALL = "--rdzv-conf=last_call_timeout=60"
RING = ("start", "ring")
ORDERS = list(itertools.permutations(("workers", "agent", "guardian")))
# What a survivor must not print when a node was lost, neither early nor later.
BLAME = r"max-restarts|restarts? |died of|exit code|FAILED"


def pause(seconds):
    """Waits for this time, as exactly as possible."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        pass


@contextlib.contextmanager
def undisturbed():
    """No other process takes the CPU: what shall happen at once does, also on a busy machine."""
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        yield
    finally:
        os.sched_setscheduler(0, os.SCHED_OTHER, os.sched_param(0))


def kill_whole(c, tag, workers, order, gap):
    pids = {"workers": workers, "agent": [c.agent_child(tag)], "guardian": [c.agents[tag].pid]}
    with undisturbed():
        at = c.now()
        for part in order:
            for pid in pids[part]:
                kill(pid)
            pause(gap)
    c.faults.append((at, c.now(), f"{tag} killed: {', '.join(order)}, {gap * 1e3:.1f} ms between"))
    return at


def ring(c, world, after=None, seconds=120):
    """Waits until this many workers of a generation form a ring. Returns their pids by agent's tag, and the
    generation."""
    def whole():
        found = {}
        for event in c.job.events._all("ringed", {}):
            if event.fields["gen"] != after:
                found.setdefault(event.fields["gen"], []).append(event.fields)
        return next(((gen, ranks) for gen, ranks in found.items() if len(ranks) == world), None)

    end, found = deadline(seconds), None
    while found is None and time.monotonic() < end:
        found = c.job.events.until(whole, 1)
        if all(agent.process.poll() is not None for agent in c.agents.values()):
            break
    assert found, f"SEED={SEED}: no ring of {world} after {after}\n{c.said()}"
    pids = {}
    for fields in found[1]:
        pids.setdefault(fields["tag"], []).append(int(fields["pid"]))
    return found[0], pids


def lines_with(agent, pattern):
    return [line for line in agent.said().splitlines() if re.search(pattern, line)]


def check_loss(c, victim):
    """Each survivor names the lost node once, and names no failure."""
    host = f"host{c.host_of[victim] + 1}"
    assert host in [n["node"] for n in c.notes("node_lost")], c.said()
    for tag, agent in c.agents.items():
        if tag != victim:
            assert not lines_with(agent, BLAME), c.said()
            assert len(lines_with(agent, rf"node {host} .*(gone|lost|did not connect)")) <= 1, c.said()


def a_kill(job, place, turn, program=None, more=None, env=None, **options):
    rng = random.Random(SEED * 1000 + turn)
    order = ORDERS[0] if turn % 2 == 0 else rng.choice(ORDERS)
    gap = 0.0003 if turn % 4 == 0 else rng.uniform(0, 0.05)
    with cluster(job, place, 3, times=SHORT, **options) as c:
        c.start(0, 1, 2, nnodes="2:3", nproc=2, options=[LONG_CALL], words=RING, program=program, env=env)
        first, pids = ring(c, 6)
        leader = c.leader_tag()
        victim = rng.choice(c.followers()) if place == "c10d" or turn % 3 else leader
        kill_whole(c, victim, pids[victim], order, gap)
        _, left = ring(c, 4, after=first)
        assert sorted(left) == sorted(t for t in c.agents if t != victim), c.said()
        if program is None:
            assert {e.fields["count"] for e in c.job.events.all("start")} == {"0"}, f"SEED={SEED}: it was charged\n{c.said()}"
        if victim != leader:
            check_loss(c, victim)
            for tag in c.agents:
                if tag != victim:
                    pattern = rf"node host{c.host_of[victim] + 1} .*(gone|lost)"
                    c.agents[tag].err.until(lambda: lines_with(c.agents[tag], pattern), 10)
                    assert len(lines_with(c.agents[tag], pattern)) == 1, c.said()
        else:
            for tag in c.agents:
                assert tag == victim or not lines_with(c.agents[tag], BLAME), c.said()
        if program is None:
            c.finish(lost=[victim])
        else:
            job.go()
            for tag in c.agents:
                assert tag == victim or c.agents[tag].wait(60) == 0, c.said()


@pytest.mark.parametrize("turn", range(kills(8)))
@pytest.mark.parametrize("place", ["c10d", "dir"])
def test_a_node_killed_whole_is_lost_and_nothing_is_charged(job, place, turn):
    a_kill(job, place, turn)


@pytest.mark.torch
@pytest.mark.parametrize("turn", range(kills(2)))
def test_a_node_killed_whole_is_lost_for_gloo_too(job, turn):
    env = {"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
    a_kill(job, "dir", turn, program=[HERE / "torch_ring.py"], env=env, names=True)


# ---- a worker that ends too early ----

@pytest.mark.parametrize("nodes", [1, 2])
def test_a_worker_that_ended_before_the_others_failed_is_named(job, nodes):
    """It ended with 0, and the others fail because of that: its own node reports it."""
    words = ("start", "patient", "rank=1", "ring", "rank=0", "ring=1")
    with cluster(job, "c10d", nodes) as c:
        c.start(*range(nodes), nnodes=nodes, nproc=2 // nodes, words=words)
        c.all_end(1, r"rank 1 .*ended with exit code 1")
        said = "".join(agent.said() for agent in c.agents.values())
        assert len(re.findall(r"rank 0 had already exited with status 0 when rank 1 failed", said)) == 1, said
