"""Jobs that are paused for longer than a lease, and what happens to them while their workers are held."""
import contextlib
import signal

import pytest

from etcd import EtcdCluster
from harness import kill
from test_faults import LEASE, by_node, everything_below, freeze, pause, together, wait_state
from test_job_control import terminal  # noqa: F401: a fixture

ARBITER_LEASE = 2.5
CONTINUE = r"this node was paused for [2-9]\.\d s; its workers continue"


@contextlib.contextmanager
def etcd_if(place):
    with EtcdCluster(1) if place == "etcd" else contextlib.nullcontext() as cluster:
        yield cluster


@pytest.mark.parametrize("place, how", [("dir", "signal"), ("dir", "freezer"), ("dir", "unified"), ("etcd", "signal"),
                                        ("etcd", "freezer"), ("etcd", "with etcd")])
@pytest.mark.parametrize("nodes", [1, 3])
def test_a_pause_longer_than_the_arbiter_lease(job, place, how, nodes):
    with etcd_if(place) as cluster:
        agents = together(job, place, nodes, f"--arbiter-lease={ARBITER_LEASE}", "--max-restarts=0", etcd=cluster)
        if how == "with etcd":
            kill(cluster.processes[0].pid, signal.SIGSTOP)
        if how in ("freezer", "unified"):
            freeze(agents, 2 * ARBITER_LEASE, how)
        else:
            pause(agents, 2 * ARBITER_LEASE)
        if how == "with etcd":
            kill(cluster.processes[0].pid, signal.SIGCONT)
        for agent in agents:
            agent.wait_said(CONTINUE, 10)
        job.go()
        for agent in agents:
            code, _, err = agent.finish(30)
            assert code == 0 and "are killed" not in err, err
    assert len(job.events.all("start")) == 2 * nodes, "no worker was started again"


def held(job, nodes=3, **more):
    """A job of which all nodes are paused, and one that is not the leader's is continued alone. Its workers are held."""
    agents = by_node(job, together(job, "c10d", nodes, "--max-restarts=1", **more))
    family = {agent: everything_below(agent.pid) for agent in agents}
    for pids in family.values():
        for pid in pids:
            kill(pid, signal.SIGSTOP)
    job.events.until(lambda: False, 2 * LEASE)
    alone = agents[1]
    for pid in family[alone]:
        kill(pid, signal.SIGCONT)
    workers = [int(e.fields["pid"]) for e in job.events.all("start", tag=alone.tag)]
    assert all(wait_state(pid, "T", 1) for pid in workers), "its workers are stopped"
    return agents, alone, family


@pytest.mark.parametrize("what", ["agent", "guardian", "SIGINT", "SIGTERM", "SIGHUP"])
def test_nothing_is_left_of_a_node_that_ends_while_its_workers_are_held(job, what):
    agents, alone, family = held(job)
    if what == "agent":
        kill(alone.agent_pid())
    elif what == "guardian":
        kill(alone.pid)
    else:
        alone.signal(signal.Signals[what])
    code = alone.wait(10)
    assert code not in (None, 0), alone.said()
    job.wait_gone(alone.tag, 2)
    for agent in agents:
        if agent is not alone:
            for pid in family[agent]:
                kill(pid, signal.SIGCONT)
    for agent in agents:
        if agent is not alone:
            agent.signal(signal.SIGTERM)
    for agent in agents:
        assert agent.wait(30) is not None, agent.said()
    assert not any(job.held(a.tag) for a in agents), job.culprits()


def test_workers_are_killed_if_the_leader_is_lost_while_they_are_held(job):
    agents, alone, family = held(job)
    kill(agents[0].pid)
    job.wait_gone(alone.tag, 2 * LEASE + 5)
    for pid in family[agents[2]]:
        kill(pid, signal.SIGCONT)
    for agent in agents[1:]:
        assert agent.wait(30) not in (None, 0), agent.said()
    assert not any(job.held(a.tag) for a in agents), job.culprits()


@pytest.mark.parametrize("place, nodes", [("alone", 1), ("c10d", 3), ("dir", 3)])
def test_a_signal_right_after_a_pause_leaves_workers_their_grace(job, place, nodes):
    """As scancel of a suspended job: SIGCONT and SIGTERM at once."""
    agents = together(job, place, nodes)
    families = [everything_below(agent.pid) for agent in agents]
    for pid in sum(families, []):
        kill(pid, signal.SIGSTOP)
    job.events.until(lambda: False, 2 * LEASE)
    for agent, family in zip(agents, families):
        agent.signal(signal.SIGTERM)
        for pid in family:
            kill(pid, signal.SIGCONT)
    for agent in agents:
        assert agent.wait(30) == 128 + signal.SIGTERM, agent.said()
    assert len(job.events.all("term")) == 2 * nodes, "each worker got SIGTERM"


def test_a_job_that_is_suspended_at_the_terminal_and_paused_continues(job, terminal):  # noqa: F811
    t = terminal()
    t.suspend()
    family = everything_below(t.guardian)[1:]  # the guardian is stopped already
    for pid in family:
        kill(pid, signal.SIGSTOP)
    job.events.until(lambda: False, 3 * LEASE)
    for pid in family:
        kill(pid, signal.SIGCONT)
    t.shell.wait_said("its workers continue")
    t.outlive(2)
    t.shell.type("fg; echo status=$?\n")
    t.outlive(0.5)
    assert t.deputies() == []
    t.end(0)
    assert len(job.events.all("start")) == 2
