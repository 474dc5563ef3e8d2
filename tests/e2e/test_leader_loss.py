"""The leader is lost: another agent leads, and all remaining nodes soon run again, but never at the same time as
processes of the old group.

On emulated hosts, with a shared directory and with a real etcd of three members as arbiters. The quick run has short
leases and some of the cases; MUSTER_TEST_SCALE=slow has all of them, with muster's defaults, 30 and 50 s of an absent
arbiter, and 200 random runs (MUSTER_KILLS_CLUSTER).
"""
import os
import random
import signal

import pytest

import cluster as c_
from cluster import DEFAULTS, SHORT, cluster, kills
from harness import SLOWER, alive, children, kill

SLOW = os.environ.get("MUSTER_TEST_SCALE") == "slow"
TIMES = DEFAULTS if SLOW else SHORT
SMALLEST = {2: "1:2", 3: "2:3", 4: "2:4", 5: "3:5"}
AFTER_DEATH = 1.5
SILENT = ["powered off", "frozen", "cut off", "cut from the nodes"]


def bound(how, times):
    """Seconds from the fault to the first instruction of the last worker of the nodes that remain."""
    if how in ("killed", "guardian killed"):
        return AFTER_DEATH * SLOWER
    return (times["lease"] + times["margin"] + 3) * SLOWER


def cases():
    for place in ("dir", "etcd"):
        for nodes in (2, 3, 5):
            for how in ["killed", "guardian killed"] + SILENT:
                quick = nodes == 3 and how not in ("guardian killed", "cut off" if place == "dir" else "frozen") or \
                    (place, nodes, how) in [("dir", 2, "powered off"), ("dir", 5, "killed"), ("dir", 2, "cut off")]
                marks = [] if quick else [pytest.mark.slow]
                yield pytest.param(place, nodes, how, id=f"{place}-{nodes}-{how.replace(' ', '_')}", marks=marks)


def remaining(c, how, lost):
    """The nodes that continue. If two are separated, and both reach the arbiter, the leader stays."""
    if how == "cut from the nodes" and c.nodes == 2:
        return {lost}
    return set(c.agents) - {lost}


def lose_the_leader(c, how, show=print):
    """Loses the leader of a running group; checks which nodes run again, when, and that no others run."""
    first = c.group(nodes=c.nodes)
    leader = c.leader_tag()
    stay = remaining(c, how, leader)
    at = c.lose(leader, how)
    again = c.group(nodes=len(stay), after=first)
    took = again.began - at
    show(f"{c.place} {c.nodes} nodes, leader {how}: {took:.3f} s")
    assert set(again.ranks.values()) == stay, c.said()
    for tag in set(c.agents) - stay - c.frozen:
        assert c.job.held(tag) == [], c.job.culprits()
    assert again.counts == {"0"}, "a lost node is not charged to the budget"
    limit = bound(how, c.times)
    assert took <= limit, f"{took:.3f} s, at most {limit} are allowed\n{c.said()}"
    c.still_works(again)
    return again, leader, stay


@pytest.mark.parametrize("place, nodes, how", cases())
def test_the_leader_is_lost(job, place, nodes, how, record_property):
    with cluster(job, place, nodes, times=TIMES) as c:
        c.start(*range(nodes), nnodes=SMALLEST[nodes], options=["--rdzv-conf=last_call_timeout=60"])
        again, leader, stay = lose_the_leader(c, how, lambda text: record_property("took", text))
        gone = [leader] if leader not in stay else [t for t in c.agents if t not in stay]
        lost = [t for t in gone if how not in ("frozen", "cut off", "cut from the nodes")]
        if not lost:
            c.come_back(leader, how, joins=gone)  # and ends with the job, like all nodes
        c.finish(lost=lost)
        for tag in lost:
            assert c.agents[tag].wait() not in (None, 0), c.said()


@pytest.mark.parametrize("place", ["dir", "etcd"])
def test_the_leader_is_lost_on_hosts_that_have_ipv6_alone(job, place):
    with cluster(job, place, 3, times=SHORT, ipv4=False) as c:
        c.start(0, 1, 2, nnodes="2:3", options=["--rdzv-conf=last_call_timeout=60"])
        _, leader, _ = lose_the_leader(c, "killed")
        c.finish(lost=[leader])


@pytest.mark.parametrize("place", ["dir", pytest.param("etcd", marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ["killed", "powered off", pytest.param("frozen", marks=pytest.mark.slow)])
def test_the_first_successor_lost_costs_nobody_else_a_lease(job, place, how):
    with cluster(job, place, 4, times=TIMES) as c:
        c.start(*range(4), nnodes="2:4", options=["--rdzv-conf=last_call_timeout=60"])
        first = c.group(nodes=4)
        leader, successor = c.leader_tag(), c.successors()[0]
        at = c.lose(successor, how)
        again = c.group(nodes=3, after=first)
        assert again.began - at <= bound(how, c.times), c.said()
        assert set(again.ranks.values()) == set(c.agents) - {successor}
        assert c.leader_tag() == leader, "it leads on"
        for tag in set(c.agents) - {successor}:
            assert "within the lease" not in c.agents[tag].said(), c.said()
            assert c.job.events.all("term", tag=tag, gen=first.generation), f"{tag} was stopped, not fenced\n{c.said()}"
        c.finish(lost=[successor])


@pytest.mark.parametrize("place, nodes", [("dir", 3), ("dir", 5), pytest.param("etcd", 5, marks=pytest.mark.slow)])
def test_leader_and_first_successor_killed_at_once(job, place, nodes, record_property):
    with cluster(job, place, nodes, times=TIMES) as c:
        c.start(*range(nodes), nnodes=f"1:{nodes}", options=["--rdzv-conf=last_call_timeout=60"])
        first = c.group(nodes=nodes)
        leader, successor = c.leader_tag(), c.successors()[0]
        both = [c.agent_child(leader), c.agent_child(successor)]
        at = c.now()
        for signo in signal.SIGSTOP, signal.SIGKILL:  # otherwise the first could claim before it is killed, too
            for pid in both:
                kill(pid, signo)
        again = c.group(nodes=nodes - 2, after=first)
        record_property("took", f"{again.began - at:.3f} s")
        assert again.began - at <= 3 * SLOWER, f"{again.began - at:.3f} s\n{c.said()}"
        c.finish(lost=[leader, successor])


def unnoticed(c, first, seconds, ends):
    """Nothing starts, ends or is killed while the arbiter is away, or when it comes back."""
    pids = c.pids(first)
    c.pause(seconds)
    c.still_works(first)
    ends()
    c.pause(2 * c.times["lease"])
    c.still_works(first)
    assert len(c.groups()) == 1 and not c.job.events.all("term"), c.said()
    assert all(alive(int(pid)) for pid in pids.values()), "the same processes"


@pytest.mark.parametrize("nodes", [2, 3])
def test_the_training_does_not_notice_that_the_directory_hangs(job, nodes):
    with cluster(job, "dir", nodes, times=TIMES) as c:
        c.start(*range(nodes), nnodes=SMALLEST[nodes], options=["--rdzv-conf=last_call_timeout=60"])
        first = c.group(nodes=nodes)
        readers = [c.arbiter_child(tag) for tag in c.agents]
        for pid in readers:
            kill(pid, c_.signal.SIGSTOP)

        def ends():
            for pid in readers:
                kill(pid, c_.signal.SIGCONT)

        unnoticed(c, first, c.times["arbiter_lease"] / 2, ends)
        lose_the_leader_after(c, first)


@pytest.mark.parametrize("how", ["frozen", "killed"])
def test_the_training_does_not_notice_that_etcd_is_away(job, how):
    with cluster(job, "etcd", 3, times=TIMES) as c:
        c.start(0, 1, 2, nnodes="2:3", options=["--rdzv-conf=last_call_timeout=60"])
        first = c.group(nodes=3)
        for i in range(3):
            c.etcd.freeze(i) if how == "frozen" else c.etcd.kill(i)

        def ends():
            for i in range(3):
                c.etcd.thaw(i) if how == "frozen" else c.etcd.restart(i, wait=False)

        unnoticed(c, first, c.times["arbiter_lease"] * 5 / 6 if SLOW else c.times["arbiter_lease"] / 2, ends)
        lose_the_leader_after(c, first)


def lose_the_leader_after(c, first):
    """The arbiter is as good as before."""
    leader = c.leader_tag()
    c.lose(leader, "killed")
    c.group(nodes=c.nodes - 1, after=first)
    c.finish(lost=[leader])


@pytest.mark.parametrize("agent_alone", [True, False], ids=["agent", "host"])
def test_an_agent_restarted_at_a_fixed_endpoint_waits_for_the_old_group_to_end(job, agent_alone):
    """No messages pass between the hosts, and the other nodes don't notice that their leader died: the new leader knows
    about them only from the leader file."""
    with cluster(job, "c10d", 3, times=TIMES) as c:
        c.start(0, 1, 2, nnodes="1:3", options=["--rdzv-conf=last_call_timeout=1"])
        first = c.group(nodes=3)
        assert c.leader_tag() == "h0"
        c.hosts.cut(1)
        c.hosts.cut(2)
        if agent_alone:
            kill(c.agent_child("h0"))
        else:
            c.hosts.crash(0)
        assert c.agents["h0"].wait() not in (None, 0)
        at = c.now()
        c.start(0, nnodes="1:3", options=["--rdzv-conf=last_call_timeout=1"], tag="again")
        again = c.group(nodes=1, after=first)
        assert set(again.ranks.values()) == {"again0"}
        c.apart()
        for tag in ("h1", "h2"):
            assert c.job.held(tag) == [], c.job.culprits()
        assert again.began - at <= (c.times["lease"] + c.times["margin"] + 1.5) * SLOWER, c.said()
        c.finish(lost=["h0", "h1", "h2"])


def test_an_agent_that_comes_after_the_end_ends_with_the_outcome(job):
    with cluster(job, "dir", 2) as c:
        c.start(0, 1)
        c.group(nodes=2)
        c.finish()
        late, = c.start(0, tag="late")
        code, _, err = late.finish(20)
        assert code == 2 and "had finished before this agent was started: it succeeded" in err, err
        assert not c.job.events.all("start", tag="late0")


def test_an_agent_that_comes_after_a_failure_ends_with_it(job):
    with cluster(job, "dir", 2) as c:
        c.start(0, 1, words=("start", "rank=1", "exit=7", "work"))
        c.all_end(1, r"7")
        late, = c.start(1, tag="late")
        code, _, err = late.finish(20)
        assert code == 2 and "had finished before this agent was started: it failed" in err and "--rdzv-id" in err, err
        assert not c.job.events.all("start", tag="late1")


@pytest.mark.parametrize("turn", range(kills()))
def test_random_losses_of_the_leader(job, turn):
    """Any arbiter, number of nodes, kind of loss and moment; MUSTER_SEED repeats one."""
    seed = os.environ.get("MUSTER_SEED") or f"{random.SystemRandom().randrange(1 << 32)}"
    dice = random.Random(seed)
    place, nodes = dice.choice(["dir", "dir", "etcd"]), dice.choice([2, 3, 3, 5])
    how = dice.choice(["killed", "guardian killed"] + SILENT)
    print(f"MUSTER_SEED={seed}: {place}, {nodes} nodes, leader {how}")
    with cluster(job, place, nodes, times=SHORT) as c:
        c.start(*dice.sample(range(nodes), nodes), nnodes=SMALLEST[nodes], nproc=dice.choice([1, 2]),
                options=["--rdzv-conf=last_call_timeout=60"])
        c.group(nodes=nodes)
        if dice.random() < 0.7:
            c.pause(dice.random() * 3)
        again, leader, stay = lose_the_leader(c, how)
        c.finish(lost=set(c.agents) - stay)


@pytest.mark.parametrize("turn", range(kills(2)))
def test_two_random_losses_one_soon_after_the_other(job, turn):
    """Any two of five are lost within two seconds, also while the others still search for the first successor."""
    seed = os.environ.get("MUSTER_SEED") or f"{random.SystemRandom().randrange(1 << 32)}"
    dice = random.Random(seed)
    place = dice.choice(["dir", "dir", "etcd"])
    hows = [dice.choice(["killed", "guardian killed"] + SILENT) for _ in range(2)]
    with cluster(job, place, 5, times=SHORT) as c:
        c.start(*dice.sample(range(5), 5), nnodes=SMALLEST[5], options=["--rdzv-conf=last_call_timeout=60"])
        last = c.group(nodes=5)
        victims = dice.sample([c.leader_tag(), c.leader_tag(), *c.followers()], 2)
        if victims[0] == victims[1]:
            victims[1] = dice.choice(c.followers())
        print(f"MUSTER_SEED={seed}: {place}, leader {c.leader_tag()}, "
              f"{', then '.join(f'{v} {h}' for v, h in zip(victims, hows))}")
        for victim, how in zip(victims, hows):
            at = c.lose(victim, how)
            if victim == victims[0]:
                c.pause(dice.random() * 2)
        while set(last.ranks.values()) & set(victims):
            last = c.group(nodes=3, after=last)
        print(f"{last.began - at:.3f} s")
        c.still_works(last)
        c.finish(lost=victims)


def lose_the_leader_before_the_first_group(c, how, joined):
    """Too few nodes have joined when the leader is lost: host 0, and those in `joined`; soon afterwards all have.
    Returns the seconds."""
    options = ["--rdzv-conf=last_call_timeout=0.5"]
    first, = c.start(0, nnodes=c.nodes - 1, options=options)
    first.wait_said(f"1 of {c.nodes - 1}")
    c.start(*joined, nnodes=c.nodes - 1, options=options)
    c.come(1 + len(joined))
    at = c.lose("h0", how)
    rest = [n for n in range(1, c.nodes) if n not in joined]
    c.start(*rest, nnodes=c.nodes - 1, options=options)
    group = c.group(nodes=c.nodes - 1, seconds=100)
    assert set(group.ranks.values()) == {f"h{n}" for n in range(1, c.nodes)}
    c.finish(lost=["h0"])
    return group.began - at


@pytest.mark.parametrize("place", ["dir", "etcd"])
@pytest.mark.parametrize("how", ["killed", "guardian killed", "powered off"])
def test_the_leader_is_lost_before_the_first_group(job, place, how, record_property):
    """With muster's own times. No successor was named, and none is needed, because nothing was ever started."""
    with cluster(job, place, 4, times=DEFAULTS) as c:
        took = lose_the_leader_before_the_first_group(c, how, joined=[1])
        record_property("took", f"{took:.3f} s")
        assert took <= (10 if how == "powered off" else 3) * SLOWER, f"{took:.3f} s\n{c.said()}"


@pytest.mark.parametrize("place", ["dir", "etcd"])
@pytest.mark.parametrize("how", ["killed", "powered off"])
def test_the_leader_is_lost_before_anybody_else_comes(job, place, how, record_property):
    """New nodes find only its record; they can't know that it is gone."""
    with cluster(job, place, 3, times=DEFAULTS) as c:
        took = lose_the_leader_before_the_first_group(c, how, joined=[])
        record_property("took", f"{took:.3f} s")
        assert took <= 10 * SLOWER, f"{took:.3f} s\n{c.said()}"


def test_children_of_an_agent_are_found(job):
    """The process that the tests above stop is the arbiter's child, and no other."""
    with cluster(job, "dir", 1) as c:
        c.start(0, nnodes="1:2", options=["--rdzv-conf=last_call_timeout=0.1"])
        c.group(nodes=1)
        assert c.arbiter_child("h0") in children(c.agent_child("h0"))
        c.finish()
