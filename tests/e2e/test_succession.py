"""A job that outlives its leader: three agents on this machine, each with a listener of its own, and a directory as
arbiter.

Other files test leases, hosts that are lost and separated networks; this one tests only the succession itself.
"""
import contextlib
import json
import os
import signal
import subprocess
import time

import pytest

import etcd
from harness import SLOWER, free_port, kill

NODES = 3
# From the leader's death to the start of the others' workers.
AFTER_DEATH = 1.5
FAMILY = ("family", "start", "go")
QUICK = ("--lease=2", "--heartbeat-interval=0.2")


def agents_of(job, tmp_path, *words, tags="abc", nnodes="1:3", worker=FAMILY, run_id="succession"):
    return [job.agent(tag, f"--nnodes={nnodes}", "--nproc-per-node=1", "--rdzv-backend=dir",
                      f"--rdzv-endpoint={tmp_path / 'arbiter'}", f"--rdzv-id={run_id}", *QUICK, *words, "--no-python",
                      job.worker, *worker) for tag in tags]


def leader_of(job, agents):
    """The leader's node has rank 0 in the first group."""
    first = {e.fields["tag"]: e.fields["node"] for e in job.events.wait("start", NODES, 30, world=NODES)}
    return sorted(agents, key=lambda a: int(first[a.tag]))


@pytest.mark.parametrize("victim", ["agent", "guardian", "told to stop"])
def test_the_others_go_on_when_the_leader_is_gone(job, tmp_path, victim):
    # the others must not need it to notice the loss
    leader, *others = leader_of(job, agents_of(job, tmp_path, "--lease=300"))
    at = time.monotonic()
    if victim == "told to stop":
        leader.signal(signal.SIGTERM)
    else:
        kill(leader.agent_pid() if victim == "agent" else leader.pid)
    again = job.events.wait("start", NODES - 1, 30, world=NODES - 1)
    took = max(int(e.fields["ns"]) for e in again) / 1e9 - at
    job.no_overlap()
    assert job.held(leader.tag) == [], job.culprits()
    assert {e.fields["tag"] for e in again} == {a.tag for a in others}
    assert took <= AFTER_DEATH * SLOWER, f"{took:.3f} s until the others ran"
    others[0].wait_said("leads from now on")
    job.go()
    for agent in others:
        code, _, err = agent.finish()
        assert code == 0, err
    code = leader.wait()
    assert code == 128 + signal.SIGTERM if victim == "told to stop" else code != 0


@contextlib.contextmanager
def meeting_at(place, tmp_path):
    """The options that name a directory, or an etcd of its own."""
    if place == "dir":
        yield ["--rdzv-backend=dir", f"--rdzv-endpoint={tmp_path / 'arbiter'}"]
        return
    with etcd.EtcdCluster(1) as cluster:
        yield [f"--rdzv-endpoint=etcd://{','.join(cluster.endpoints)}/muster"]


def starts_at_once(job, start, tags):
    """The second start of a run: its workers begin without a wait for the first."""
    at = time.monotonic()
    again = start(tags)
    job.events.wait("start", 2 * len(tags), 60)
    took = time.monotonic() - at
    job.no_overlap()
    assert took <= 3 * SLOWER, f"{took:.3f} s\n{again[0].said()}"
    job.go()
    for agent in again:
        code, _, err = agent.finish()
        assert code == 0, err


@pytest.mark.parametrize("place", ["dir", "etcd"])
@pytest.mark.parametrize("tags, nnodes", [("a", "1"), ("abc", "1:3"), ("abc", "2:3")])
def test_agents_that_leave_in_order_leave_nothing_to_wait_for(job, tmp_path, place, tags, nnodes):
    """With muster's own times, with which the next start would otherwise wait for a minute."""
    with meeting_at(place, tmp_path) as meeting:
        def start(tags):
            return [job.agent(tag, f"--nnodes={nnodes}", "--nproc-per-node=1", *meeting, "--rdzv-id=order",
                              "--rdzv-conf=last_call_timeout=20", "--shutdown-timeout=0.5", "--no-python", job.worker,
                              *FAMILY) for tag in tags]

        agents = start(tags)
        job.events.wait("start", len(tags), 30, world=len(tags))
        for agent in agents:
            agent.signal(signal.SIGTERM)
        for agent in agents:
            assert agent.finish()[0] == 128 + signal.SIGTERM, agent.said()
        starts_at_once(job, start, tags.upper())


@pytest.mark.parametrize("place", ["dir", "etcd"])
@pytest.mark.parametrize("first", ["leader", "other"])
def test_too_few_that_stay_leave_nothing_to_wait_for(job, tmp_path, place, first):
    """One of two nodes is told to stop, and much later, after it has ended, the other."""
    with meeting_at(place, tmp_path) as meeting:
        def start(tags):
            return [job.agent(tag, "--nnodes=2", "--nproc-per-node=1", *meeting, "--rdzv-id=few",
                              "--shutdown-timeout=0.5", "--no-python", job.worker, *FAMILY) for tag in tags]

        agents = start("ab")
        node = {e.fields["tag"]: int(e.fields["node"]) for e in job.events.wait("start", 2, 30, world=2)}
        told, stays = sorted(agents, key=lambda a: node[a.tag], reverse=first == "other")
        told.signal(signal.SIGTERM)
        assert told.finish()[0] == 128 + signal.SIGTERM, told.said()
        code, _, err = stays.finish()
        assert code == 75 and "was stopped by SIGTERM; 1 of at least 2 nodes left" in err, err
        starts_at_once(job, start, "AB")


@pytest.mark.parametrize("place", ["dir", "etcd"])
def test_a_second_interrupt_leaves_nothing_to_wait_for_and_a_kill_does(job, tmp_path, place):
    with meeting_at(place, tmp_path) as meeting:
        def start(tag):
            return job.agent(tag, "--nnodes=1", "--nproc-per-node=1", *meeting, *QUICK,
                             "--rdzv-id=twice", "--no-python", job.worker, *FAMILY)

        agent = start("a")
        job.events.wait("start", 1)
        agent.signal(signal.SIGINT)
        agent.wait_said("stopping 1 worker")
        agent.signal(signal.SIGINT)
        assert agent.finish()[0] == 128 + signal.SIGINT, agent.said()
        at = time.monotonic()
        again = start("b")
        job.events.wait("start", 2, 60)
        took = time.monotonic() - at
        assert took <= 2 * SLOWER, f"{took:.3f} s\n{again.said()}"
        kill(again.agent_pid())
        assert again.wait() not in (None, 0)
        third = start("c")
        third.wait_said("workers of the previous leader may still run: waiting")
        assert job.events.all("start", tag="c") == []
        third.signal(signal.SIGTERM)  # and does not keep the agent, either
        assert third.finish(5)[0] == 128 + signal.SIGTERM, third.said()


def test_leaders_die_one_after_the_other(job, tmp_path):
    agents = agents_of(job, tmp_path)
    for world in range(NODES, 1, -1):
        starts = job.events.wait("start", world, 30, world=world)
        rank = {e.fields["tag"]: int(e.fields["node"]) for e in starts}
        present = sorted((a for a in agents if a.tag in rank), key=lambda a: rank[a.tag])
        epoch = NODES - world + 1
        leaders = [a for a in present if epoch == 1 and rank[a.tag] == 0 or "this node leads from now on" in a.said()]
        assert leaders, [a.said() for a in present]
        kill(leaders[-1].agent_pid())
        agents.remove(leaders[-1])
    job.events.wait("start", 1, 30, world=1)
    job.no_overlap()
    job.go()
    code, _, err = agents[0].finish()
    assert code == 0, err


@pytest.mark.parametrize("place", ["dir", "etcd"])
@pytest.mark.parametrize("how", ["succeeded", "failed"])
def test_a_run_that_has_finished_is_not_run_again_and_that_is_no_success(job, tmp_path, place, how):
    with meeting_at(place, tmp_path) as meeting:
        def start(tag, run_id, *worker):
            return job.agent(tag, "--nnodes=2", "--nproc-per-node=1", *meeting, *QUICK, f"--rdzv-id={run_id}",
                             "--no-python", job.worker, *worker)

        words = ("start", "exit=7") if how == "failed" else ("start",)
        for agent in [start(tag, "night", *words) for tag in "ab"]:
            code, _, err = agent.finish()
            assert code == (1 if how == "failed" else 0), err
        code, _, err = start("c", "night", *words).finish()
        assert code == 2, err
        assert f"run 'night' had finished before this agent was started: it {how}" in err, err
        assert "--rdzv-id=night-2" in err, err
        assert job.events.all("start", tag="c") == []
        for agent in [start(tag, "night-2", "start") for tag in "de"]:
            code, _, err = agent.finish()
            assert code == 0, err


def test_a_requeued_job_is_told_how_slurm_names_its_runs(job, tmp_path):
    """It keeps the SLURM_JOB_ID; SLURM_RESTART_COUNT is set from the second start on."""
    def end(**env):
        agent = job.agent("a", "--nnodes=1", "--rdzv-backend=dir", f"--rdzv-endpoint={tmp_path / 'arbiter'}",
                          "--rdzv-id=4711", "--no-python", job.worker, "start", env=env)
        code, _, err = agent.finish()
        return code, err

    assert end()[0] == 0
    code, err = end(SLURM_RESTART_COUNT="1")
    assert code == 2 and '--rdzv-id="4711-${SLURM_RESTART_COUNT:-0}"' in err, err
    code, err = end()
    assert code == 2 and "--rdzv-id=4711-2" in err, err


@pytest.mark.parametrize("place", ["dir", "etcd"])
def test_a_run_to_which_too_few_came_can_be_started_again(job, tmp_path, place):
    """It has not finished: it has not even begun."""
    with meeting_at(place, tmp_path) as meeting:
        def start(tag, timeout):
            return job.agent(tag, "--nnodes=2", "--nproc-per-node=1", *meeting, "--rdzv-id=few",
                             f"--rdzv-conf=join_timeout={timeout}", "--no-python", job.worker, "start")

        code, _, err = start("a", 1).finish()
        assert code == 75 and "only 1 of at least 2 nodes came within 1 s" in err, err
        for agent in [start(tag, 60) for tag in "bc"]:
            code, _, err = agent.finish()
            assert code == 0, err
        assert len(job.events.all("start")) == 2


def test_who_was_started_before_the_end_gets_the_outcome(job, tmp_path):
    """A spare has seen the leader; a node of the job that is only late has not, and is told apart by that."""
    agents = agents_of(job, tmp_path, tags="ab", nnodes="2", worker=("start", "go"))
    job.events.wait("start", 2)
    spare, = agents_of(job, tmp_path, tags="c", nnodes="2", worker=("start", "go"))
    spare.wait_said("the job runs without this node")
    job.go()
    for agent in [*agents, spare]:
        code, _, err = agent.finish()
        assert code == 0, err
    assert job.events.all("start", tag="c") == []


def test_a_leader_is_to_be_found_at_addresses_of_its_machine_alone(job, tmp_path):
    code, out, err = job.run("--nnodes=1", "--rdzv-backend=dir", f"--rdzv-endpoint={tmp_path}/rdzv", "--rdzv-id=e2e",
                             "--no-python", "cat", f"{tmp_path}/rdzv/muster-e2e/epoch-1")
    assert code == 0, err
    known = subprocess.run(["hostname", "-I"], check=True, capture_output=True, text=True).stdout.split()
    assert set(json.loads(out)["addr"].split(",")) <= set(known or ["127.0.0.1"]), (out, known)


def test_one_node_that_is_left_alone_says_what_it_runs(job, tmp_path):
    agents = agents_of(job, tmp_path, tags="ab", nnodes="1:2", worker=("start", "go"))
    node = {e.fields["tag"]: int(e.fields["node"]) for e in job.events.wait("start", 2, 30, world=2)}
    leader, other = sorted(agents, key=lambda a: node[a.tag])
    kill(leader.agent_pid())
    alone, = job.events.wait("start", 1, 30, world=1)
    job.go()
    assert other.wait() == 0, other.said()
    assert "attempt 2: 1 node, 1 worker; this is node 0 with rank 0" in other.said(), (alone, other.said())


def test_a_spare_whose_leader_is_gone_says_that_it_was_there(job):
    endpoint = f"127.0.0.1:{free_port()}"

    def start(tag):
        return job.agent(tag, "--nnodes=1", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=spare",
                         f"--rdzv-endpoint={endpoint}", "--no-python", job.worker, "start", "go")

    leader = start("a")
    job.events.wait("start", 1)
    spare = start("b")
    spare.wait_said("the job runs without this node")
    kill(leader.agent_pid())
    spare.wait_said("nothing listens there any more")
    assert "yet" not in spare.said(), spare.said()


def test_who_found_the_endpoint_taken_leads_there_when_it_is_free(job):
    """The agent that held it was at its end, as that of a run that has just been killed."""
    endpoint = f"127.0.0.1:{free_port()}"

    def start(tag):
        return job.agent(tag, "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", f"--rdzv-endpoint={endpoint}",
                         "--rdzv-id=again", *QUICK, "--no-python", job.worker, "start")

    old = start("a")
    old.wait_said("waiting for nodes: 1 of 2")
    old_agent = old.agent_pid()
    os.kill(old_agent, signal.SIGSTOP)
    agents = [start(tag) for tag in "bc"]
    for agent in agents:
        agent.wait_said("no leader at")
    os.kill(old_agent, signal.SIGKILL)
    old.finish()
    for agent in agents:
        code, _, err = agent.finish()
        assert code == 0, err
    assert len(job.events.all("start")) == 2


def test_a_leader_started_again_at_its_endpoint_waits_for_the_old_group(job):
    """The leader file shows that the other node's workers may still run; none of them overlaps with the new group."""
    endpoint, lease = f"127.0.0.1:{free_port()}", 2.0

    def start(tag):
        return job.agent(tag, "--nnodes=2", "--nproc-per-node=1", "--rdzv-backend=c10d", "--rdzv-id=mark",
                         f"--rdzv-endpoint={endpoint}", f"--lease={lease:g}", "--heartbeat-interval=0.2", "--no-python",
                         job.worker, *FAMILY)

    first = [start(tag) for tag in "ab"]
    node = {e.fields["tag"]: int(e.fields["node"]) for e in job.events.wait("start", 2)}
    leader, other = sorted(first, key=lambda a: node[a.tag])
    at = time.monotonic()
    kill(leader.agent_pid())  # the other node's workers ignore SIGTERM: they live until the lease ends
    job.wait_gone(leader.tag, 10)
    again = [start(tag) for tag in "cd"]
    starts = job.events.wait("start", 4, 30)[2:]
    waited = min(int(e.fields["ns"]) for e in starts) / 1e9 - at
    job.no_overlap()
    assert lease / 2 <= waited <= (lease + 1 + 2) * SLOWER, f"{waited:.3f} s after the leader's death"
    assert any("nothing starts here for" in a.said() for a in again), [a.said() for a in again]
    assert {e.fields["epoch"] for e in starts} == {"2"}
    assert other.wait() == 75, other.said()
    job.go()
    for agent in again:
        code, _, err = agent.finish()
        assert code == 0, err
    # closed: the same run can start again at once
    at = time.monotonic()
    for agent in [start(tag) for tag in "ef"]:
        code, _, err = agent.finish()
        assert code == 0, err
        assert "nothing starts here for" not in err, err
