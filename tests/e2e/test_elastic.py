"""Groups that shrink, grow and are refilled: spares, units, safe points, budgets, back-off, and what a lost node costs.

On emulated hosts, with C workers. tests/bench/bench_recovery.py measures times and compares them with torchrun's.
"""
import contextlib
import os
import re

import pytest

from cluster import DEFAULTS, SHORT, cluster, kills
from harness import SLOWER, TORCH_PYTHON, HERE, kill

SLOW = os.environ.get("MUSTER_TEST_SCALE") == "slow"
TIMES = DEFAULTS if SLOW else SHORT
QUICK_CALL = "--rdzv-conf=last_call_timeout=0.3"
LONG_CALL = "--rdzv-conf=last_call_timeout=60"
places = pytest.mark.parametrize("place", ["c10d", "dir"])


@contextlib.contextmanager
def gates(job, *names):
    """FIFOs at which workers wait; open(name) lets all of them pass."""
    held = []
    for name in names:
        os.mkfifo(job.tmp / name)
    try:
        yield lambda name: held.append(os.open(job.tmp / name, os.O_RDWR))
    finally:
        for fd in held:
            os.close(fd)


def tags_of(group):
    return list(dict.fromkeys(group.ranks.values()))


# ---- a node is lost ----

@places
@pytest.mark.parametrize("how", ["killed", "guardian killed", "powered off", "frozen"])
def test_the_others_go_on_without_a_lost_node(job, place, how, record_property):
    """An agent's death is noticed at once; a host's silence when its lease is over, and then its workers are dead."""
    with cluster(job, place, 4, times=TIMES) as c:
        c.start(*range(4), nnodes="3:4", options=[LONG_CALL])
        first = c.group(nodes=4)
        leader, victim = c.leader_tag(), c.followers()[-1]
        at = c.lose(victim, how)
        again = c.group(nodes=3, after=first)
        took = again.began - at
        record_property("took", f"{place} {how}: {took:.3f} s")
        if how != "frozen":
            assert c.job.held(victim) == [], c.job.culprits()
        assert tags_of(again) == [t for t in tags_of(first) if t != victim], "the order closes up"
        assert again.counts == {"0"}, "a lost node is not charged to the budget"
        assert c.leader_tag() == leader
        limit = 0.5 if how.endswith("killed") else c.times["lease"] + c.times["margin"] + 0.5
        assert took <= limit * SLOWER, f"{took:.3f} s, at most {limit}\n{c.said()}"
        c.finish(lost=[victim])


def test_a_spare_takes_the_lost_nodes_rank(job):
    with cluster(job, "dir", 4) as c:
        c.start(0, 1, 2, nnodes=3)
        first = c.group(nodes=3)
        c.start(3, nnodes=3)
        c.agents["h3"].wait_said("the job runs without this node")
        c.no_group(first, 0.5)
        victim = first.ranks[1]
        c.lose(victim, "killed")
        again = c.group(nodes=3, after=first)
        assert again.ranks == {r: "h3" if t == victim else t for r, t in first.ranks.items()}
        c.finish(lost=[victim])


def test_spares_take_two_lost_places_at_once(job):
    with cluster(job, "c10d", 5) as c:
        c.start(0, 1, 2, nnodes="2:3", options=[LONG_CALL])
        first = c.group(nodes=3)
        c.start(3, 4, nnodes="2:3", options=[LONG_CALL])
        c.come(5)
        victims = [t for t in tags_of(first) if t != c.leader_tag()]
        for pid in [c.agent_child(t) for t in victims]:
            kill(pid)
        last = c.group(nodes=3, after=first)
        while last.ranks[1] in victims or last.ranks[2] in victims:
            last = c.group(nodes=3, after=last)
        assert last.ranks[0] == c.leader_tag() and set(last.ranks.values()) == {c.leader_tag(), "h3", "h4"}
        c.finish(lost=victims)


def test_no_more_spares_than_wanted_may_wait(job):
    with cluster(job, "c10d", 3) as c:
        c.start(0, 1, nnodes=2, options=["--spares=0"])
        first = c.group(nodes=2)
        extra, = c.start(2, nnodes=2, options=["--spares=0", "--rdzv-conf=join_timeout=2"])
        extra.wait_said("as many spares as it wants")
        assert extra.wait(20) not in (None, 0), "it asks again until its join timeout, and gives up"
        c.still_works(first)
        assert len(c.groups()) == 1 and len(c.notes("node_joined")) == 2
        c.finish(lost=["h2"])


def test_a_fifth_agent_on_a_full_job_of_four_harms_nothing(job):
    with cluster(job, "dir", 5) as c:
        c.start(0, 1, 2, 3, nnodes=4)
        first = c.group(nodes=4)
        pids = c.pids(first)
        c.start(4, nnodes=4)
        c.come(5)
        c.still_works(first)
        kill(c.agent_child("h4"))
        c.no_group(first, 0.5)
        c.still_works(first)
        assert c.pids(first) == pids and not c.job.events.all("term")
        c.finish(lost=["h4"])


@places
def test_a_unit_of_two_never_forms_an_odd_group(job, place):
    with cluster(job, place, 5) as c:
        options = ["--node-unit=2", "--rdzv-conf=last_call_timeout=1"]
        c.start(0, 1, 2, 3, 4, nnodes="2:5", options=options)
        first = c.group()
        if len(tags_of(first)) == 2:  # some came after the last call
            first = c.group(nodes=4, after=first)
        c.come(5)  # the last one can be late for the group, and is a spare only after it has come
        spare, = set(c.agents) - set(tags_of(first))
        c.agents[spare].wait_said("waits for a place", 60)
        lost, last = [], first
        # the fifth, a spare, takes the place; then there is one too many; that one takes the place
        for nodes in (4, 2, 2):
            lost.append(tags_of(last)[-1])
            c.lose(lost[-1], "killed")
            last = c.group(nodes=nodes, after=last)
        assert all(len(tags_of(g)) % 2 == 0 for g in c.groups())
        c.finish(lost=lost)


# ---- growing ----

def test_it_grows_at_a_safe_point_and_not_before(job):
    words = ("start", "rank=0", "gate=saved", "rank=0", "notify=MUSTER_SAFE_POINT=1", "work")
    with cluster(job, "dir", 3) as c, gates(job, "saved") as open_gate:
        c.start(0, 1, nnodes="2:3", options=[QUICK_CALL], words=words)
        first = c.group(nodes=2)
        c.start(2, nnodes="2:3", options=[QUICK_CALL], words=words)
        c.come(3)
        c.no_group(first, 1)
        open_gate("saved")
        again = c.group(nodes=3, after=first)
        assert [again.ranks[r] for r in (0, 1)] == [first.ranks[r] for r in (0, 1)], "nodes of the last group stay"
        assert again.counts == {"0"}, "growing costs no restart"
        c.finish()


def test_it_grows_at_once_if_told_so(job):
    with cluster(job, "c10d", 3) as c:
        c.start(0, 1, nnodes="2:3", options=[QUICK_CALL, "--grow=now"])
        first = c.group(nodes=2)
        c.start(2, nnodes="2:3", options=[QUICK_CALL, "--grow=now"])
        c.group(nodes=3, after=first)
        c.finish()


def test_it_never_grows_by_itself_if_told_so(job):
    words = ("start", "rank=0", "gate=saved", "rank=0", "notify=MUSTER_SAFE_POINT=1", "work")
    with cluster(job, "c10d", 4) as c, gates(job, "saved") as open_gate:
        c.start(0, 1, nnodes="2:4", options=[QUICK_CALL, "--grow=never"], words=words)
        first = c.group(nodes=2)
        c.start(2, nnodes="2:4", options=[QUICK_CALL, "--grow=never"], words=words)
        c.come(3)
        open_gate("saved")
        c.no_group(first, 1)
        c.lose(first.ranks[1], "killed")
        again = c.group(nodes=2, after=first)  # but the place of a lost node is filled
        assert again.ranks[1] == "h2"
        c.finish(lost=[first.ranks[1]])


@places
def test_a_node_that_returns_is_a_newcomer(job, place):
    """Its host comes back, with another agent: it joins the group at the next safe point, and all nodes run again."""
    with cluster(job, place, 3) as c:
        c.start(0, 1, 2, nnodes="2:3", options=[LONG_CALL, "--grow=now"])
        first = c.group(nodes=3)
        victim = c.followers()[0]
        c.lose(victim, "killed")
        second = c.group(nodes=2, after=first)
        c.start(c.host_of[victim], nnodes="2:3", options=[LONG_CALL, "--grow=now"], tag="back")
        third = c.group(nodes=3, after=second)
        assert tags_of(third)[:2] == tags_of(second), "those who were there keep their order"
        assert tags_of(third)[2] == f"back{c.host_of[victim]}"
        c.finish(lost=[victim])


def test_the_place_of_a_lost_node_is_kept_for_a_while(job):
    """--regroup-wait: a group of three follows a group of three, without a group of two in between."""
    with cluster(job, "c10d", 3) as c:
        c.start(0, 1, 2, nnodes="2:3", options=[LONG_CALL, "--regroup-wait=20"])
        first = c.group(nodes=3)
        victim = first.ranks[1]
        c.lose(victim, "killed")
        c.no_group(first, 1)
        c.start(c.host_of[victim], nnodes="2:3", options=[LONG_CALL, "--regroup-wait=20"], tag="back")
        again = c.group(nodes=3, after=first)
        assert again.ranks == {r: f"back{c.host_of[victim]}" if t == victim else t for r, t in first.ranks.items()}
        assert len(c.groups()) == 2
        c.finish(lost=[victim])


def test_nobody_comes_and_it_goes_on_with_fewer(job):
    with cluster(job, "c10d", 3) as c:
        c.start(0, 1, 2, nnodes="2:3", options=[LONG_CALL, "--regroup-wait=1.5"])
        first = c.group(nodes=3)
        at = c.lose(first.ranks[2], "killed")
        again = c.group(nodes=2, after=first)
        assert 1.4 <= again.began - at <= 2.5 * SLOWER, c.said()
        c.finish(lost=[first.ranks[2]])


# ---- budgets ----

def test_so_many_nodes_may_be_lost_and_no_more(job):
    with cluster(job, "c10d", 4) as c:
        c.start(0, 1, 2, 3, nnodes="1:4", options=[LONG_CALL, "--max-node-losses=1"])
        first = c.group(nodes=4)
        lost = [first.ranks[3], first.ranks[2]]
        c.lose(lost[0], "killed")
        second = c.group(nodes=3, after=first)
        c.lose(lost[1], "killed")
        c.all_end(75, r"max-node-losses", but=lost)
        assert c.groups()[-1].generation == second.generation


def test_a_node_that_fails_again_and_again_is_left_out(job):
    """Its spare runs instead: --exclude-after."""
    with cluster(job, "dir", 3) as c, gates(job, "ready") as open_gate:
        options = ["--max-restarts=5", "--exclude-after=2"]
        good, bad = ("start", "work"), ("start", "gate=ready", "exit=9")
        c.start(0, nnodes=2, options=options, words=good)
        c.agents["h0"].wait_said("1 of 2")
        c.start(1, nnodes=2, options=options, words=bad)
        c.group(nodes=2)
        c.start(2, nnodes=2, options=options, words=good)
        c.come(3)
        open_gate("ready")
        last = c.group(nodes=2)
        while "h2" not in last.ranks.values():
            last = c.group(nodes=2, after=last)
        assert last.ranks == {0: "h0", 1: "h2"}
        assert len(c.job.events.all("start", tag="h1")) == 2
        c.agents["h0"].wait_said(r"excluded|left out")
        c.still_works(last)
        c.job.go()
        assert c.agents["h0"].wait() == 0 and c.agents["h2"].wait() == 0, c.said()
        c.agents["h1"].wait()
        c.apart()


def crash_loop(c, words):
    """How many groups started; a worker can be stopped before it can report its start."""
    c.start(0, 1, nnodes=2, options=["--max-restarts=50", "--crash-loop=5"], words=words)
    c.all_end(1, r"exitcode *: 9")
    said = c.agents["h0"].said()
    assert "crash loop: the same failure within 5 s of the start, twice in a row" in said, c.said()
    assert "restart 1 of 50" in said and "restart 2 of 50" not in said, said
    return len({e.fields["gen"] for e in c.job.events.all("start")})


@pytest.mark.parametrize("words", [("rank=0", "count=0", "exit=9", "rank=1", "count=1", "exit=9", "work"),
                                   ("rank=1", "exit=9", "work"), ("exit=9",)], ids=["another rank", "the same rank", "all ranks"])
def test_a_crash_loop_ends_the_job_although_restarts_are_left(job, words):
    with cluster(job, "c10d", 2) as c:
        assert crash_loop(c, ("start", *words)) == 2, c.said()


def test_restarts_wait_longer_and_longer(job):
    with cluster(job, "c10d", 2) as c:
        c.start(0, 1, nnodes=2, options=["--max-restarts=2", "--crash-loop=0", "--restart-backoff=0.5"],
                words=("start", "rank=1", "count=0", "exit=9", "rank=1", "count=1", "exit=9", "work"))
        c.job.events.wait("start", 2, count=2)
        waits = [n["stopped_to_formed_ms"] / 1e3 for n in c.notes("formed") if n["generation"] != "1.1"]
        assert len(waits) == 2 and 0.49 <= waits[0] <= 0.7 * SLOWER and 0.99 <= waits[1] <= 1.2 * SLOWER, waits
        c.finish()


def test_several_hosts_that_fall_silent_at_once_are_given_a_moment(job):
    """A switch restarts: no node that sends again in time counts as lost, and nothing overlaps."""
    with cluster(job, "c10d", 4) as c:
        c.start(0, 1, 2, 3, nnodes="2:4", options=[LONG_CALL, "--hold=6"])
        first = c.group(nodes=4)
        for n in (1, 2, 3):
            c.hosts.cut(n)
        c.agents["h0"].wait_said(r"several nodes became silent at once", 20)
        for n in (1, 2, 3):
            c.hosts.heal(n)
        again = c.group(nodes=4, after=first)
        assert again.ranks == first.ranks
        assert not c.notes("node_lost"), c.said()
        c.finish()


# ---- odd jobs ----

def test_two_agents_on_one_host_are_two_nodes(job):
    with cluster(job, "dir", 2) as c:
        c.start(0, nnodes="2:3", options=[LONG_CALL])
        c.start(0, nnodes="2:3", options=[LONG_CALL], tag="other")
        c.start(1, nnodes="2:3", options=[LONG_CALL])
        first = c.group(nodes=3)
        assert set(first.ranks.values()) == {"h0", "other0", "h1"}
        c.lose("other0", "killed")
        again = c.group(nodes=2, after=first)
        assert set(again.ranks.values()) == {"h0", "h1"}
        c.finish(lost=["other0"])


@places
def test_nodes_with_unequal_numbers_of_workers(job, place):
    with cluster(job, place, 3) as c:
        for n, nproc in ((0, 1), (1, 3), (2, 2)):
            c.start(n, nnodes="2:3", nproc=nproc, options=[LONG_CALL, "--rank-order=host"])
        first = c.group(nodes=3, world=6)
        leader = c.leader_tag()
        rest = [t for t in ("h0", "h1", "h2") if t != leader]
        count = {"h0": 1, "h1": 3, "h2": 2}
        assert list(first.ranks.values()) == [t for t in [leader] + rest for _ in range(count[t])]
        c.lose(rest[0], "killed")
        again = c.group(nodes=2, after=first)
        assert list(again.ranks.values()) == [t for t in [leader, rest[1]] for _ in range(count[t])]
        c.finish(lost=[rest[0]])


@pytest.mark.parametrize("turn", range(kills(3) if not SLOW else 50))
def test_no_worker_of_a_lost_node_outlives_it(job, turn):
    """Workers with descendants that ignore SIGTERM, one of them in a session of its own."""
    with cluster(job, "dir", 3) as c:
        c.start(0, 1, 2, nnodes="2:3", options=[LONG_CALL], words=("family", "start", "work"))
        first = c.group(nodes=3)
        victim = (c.followers() + [c.leader_tag()])[turn % 3]
        c.lose(victim, ["killed", "guardian killed"][turn % 2])
        again = c.group(nodes=2, after=first)
        assert c.job.held(victim) == [], c.job.culprits()
        c.still_works(again)
        c.finish(lost=[victim])


# ---- a trainer ----

@pytest.mark.torch
@pytest.mark.parametrize("place, lost", [pytest.param("c10d", "follower", marks=pytest.mark.slow), ("dir", "leader")])
def test_ddp_resumes_from_its_checkpoint_on_the_other_nodes(job, place, lost):
    """Four nodes train; one agent dies; three continue from the last checkpoint, and finish the training."""
    script = HERE.parent.parent / "examples" / "pytorch-ddp" / "train.py"
    with cluster(job, place, 4, times=DEFAULTS, names=True) as c:
        env = {"PYTHON_EXEC": TORCH_PYTHON, "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "eth0"}
        c.start(*range(4), nnodes="3:4", options=[LONG_CALL], env=env, program=[
            script, "--epochs=12", "--checkpoint", job.tmp / "saved.pt", "--losses", job.tmp / "losses"])
        leader = None
        for tag, agent in c.agents.items():
            agent.wait_said("attempt 1: ", 60)
        leader = c.leader_tag()
        heard = c.agents[leader].out  # rank 0 is the leader's
        assert heard.until(lambda: b"epoch 2 of 12" in heard.raw, 180), c.said() + heard.text()
        victim = leader if lost == "leader" else c.followers()[1]
        c.lose(victim, "killed")
        for tag in c.agents:
            if tag != victim:
                code, _, err = c.agents[tag].finish(240)
                assert code == 0, c.said()
        output = "".join(a.output() for a in c.agents.values())
        assert "world size 3" in output and "epoch 12 of 12" in output, output
        assert re.search(r"continuing from the checkpoint of epoch \d", output), output
        assert float(re.search(r"test accuracy: ([0-9.]+) %", output)[1]) >= 90, output
