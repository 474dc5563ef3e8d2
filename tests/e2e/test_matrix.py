"""Every fault in every phase of the group, on the leader's host and on another: the job continues, or ends with a
reason.

Hosts are cut off, crash, lose power, freeze, receive or send nothing, are separated, lose frames or have slow links;
agents, guardians and workers are killed. This happens while nodes gather, while a group forms, runs, or stops, and
while a successor takes over. A phase is prolonged by causes that users meet: a node that is not started yet, one that
acknowledges slowly, workers that take 2 s to end, a leader whose host is off. The quick run has some of each;
MUSTER_TEST_SCALE=slow has all of them.
"""
import os

import pytest

from trial import DEADLY, KINDS, NEEDS, PHASES, trial

SLOW = os.environ.get("MUSTER_TEST_SCALE") == "slow"
LINGER_MS = 2000
READ_TIMEOUT, JOIN_TIMEOUT = 5, 20
SIZES = (4, 3, 5, 4, 6, 8)

QUICK = {
    ("dir", "gathering"): [("agent killed", "leader"), ("cut", "other")],
    ("dir", "forming"): [("crash", "leader"), ("freeze", "other"), ("guardian killed", "other")],
    ("dir", "running"): [("power off", "leader"), ("node killed", "other"), ("cut off", "leader"), ("mute", "leader"), ("deaf", "other"),
                         ("split", "leader"), ("slow", "leader"), ("worker killed", "leader"), ("arbiter hangs", "leader")],
    ("dir", "stopping"): [("agent killed", "leader"), ("power off", "other"), ("worker killed", "other")],
    ("dir", "succession"): [("agent killed", "leader"), ("crash", "other"), ("loss", "leader")],
    ("c10d", "gathering"): [("crash", "other")],
    ("c10d", "forming"): [("mute", "other")],
    ("c10d", "running"): [("guardian killed", "leader"), ("cut", "leader"), ("loss", "other")],
    ("c10d", "stopping"): [("freeze", "leader"), ("agent killed", "other")],
}


def cases():
    number = 0
    for place in ("dir", "c10d"):
        for phase in PHASES:
            if place == "c10d" and phase == "succession":
                continue  # without an arbiter there is no successor
            for kind in KINDS:
                for whose in ("leader", "other") if (place, kind) != ("c10d", "arbiter hangs") else ():
                    number += 1
                    quick = (kind, whose) in QUICK[(place, phase)]
                    nodes = 4 if quick and not SLOW else SIZES[number % len(SIZES)]
                    if phase == "succession" or phase == "forming":
                        nodes = max(nodes, 4)  # two are lost, or one more is stopped
                    yield pytest.param(place, phase, kind, whose, nodes, marks=[] if quick else [pytest.mark.slow],
                                       id=f"{place}-{phase}-{kind}-{whose}-{nodes}".replace(" ", "_"))


class Case:
    def __init__(self, t, place, phase, kind, whose):
        self.t, self.place, self.phase, self.kind, self.whose = t, place, phase, kind, whose
        self.more = {"nnodes": f"1:{t.nodes}", "program": t.trainer(LINGER_MS if phase == "stopping" else 0),
                     "options": ["--max-restarts=9", "--crash-loop=0", "--exclude-after=0",
                                 f"--rdzv-conf=last_call_timeout=1,read_timeout={READ_TIMEOUT},join_timeout={JOIN_TIMEOUT}"]}
        t.limits = (1, t.nodes, 1)

    def victim(self):
        t = self.t
        others = [tag for tag in t.living() if tag != t.leading()]
        return t.leading() if self.whose == "leader" else others[-1]

    def most(self):
        """Starts all agents except the last host's; they have found each other."""
        t = self.t
        t.start(*range(t.nodes - 1), **self.more)
        assert t.noted.until(lambda: len(t.notes("node_joined")) >= t.nodes - 1, 30), t.story()

    def last(self):
        self.t.start(self.t.nodes - 1, **self.more)

    def all(self):
        self.t.start(*range(self.t.nodes), **self.more)
        return self.t.group(nodes=self.t.nodes)

    # ---- the phases: each makes the fault, and returns the group before it and the remaining work ----

    def gathering(self):
        self.most()
        assert not self.t.noted.all("formed"), self.t.story()
        return None, self.make(), self.last

    def forming(self):
        """A node acknowledges slowly: the other nodes know the group, and nothing runs."""
        t = self.t
        self.most()
        victim = self.victim()
        slow = next(tag for tag in t.living() if tag not in (victim, t.leading()))
        go_on = t.hold(slow)
        self.last()
        assert t.noted.until(lambda: len(t.notes("node_joined")) >= t.nodes, 30), t.story()
        fault = self.make(victim)
        assert not t.noted.all("formed"), t.story()
        return None, fault, go_on

    def running(self):
        return self.all(), self.make(), None

    def stopping(self):
        t = self.t
        first = self.all()
        victim = self.victim()
        provoker = next(tag for tag in t.living() if tag != victim)
        seen = len(t.noted.lines)
        t.fault("worker killed", provoker)
        assert t.noted.wait(lambda note: note["event"] == "stopping", 10, seen), t.story()
        fault = self.make(victim)
        assert t.phase() in ("stopping", "succession"), t.story()
        return first, fault, None

    def succession(self):
        """The leader's host is off; its successor, or another node, gets a fault, too, before it can take over."""
        t = self.t
        first = self.all()
        successors = t.successors()
        lost = t.host_of[t.leading()]
        t.fault("power off", t.leading())
        fault = self.make(successors[0] if self.whose == "leader" else successors[-1])
        assert t.leading() is None, t.story()
        return first, fault, lambda: t.boot(lost)

    def make(self, victim=None):
        victim = victim or self.victim()
        return self.t.fault(self.kind, victim, self.phase, share=60)

    # ---- after it ----

    def run(self):
        t = self.t
        if self.kind in NEEDS and t.links.lacks(NEEDS[self.kind]):
            pytest.skip(f"{self.kind}: no {t.links.lacks(NEEDS[self.kind])}")
        first, fault, then = getattr(self, self.phase)()
        if self.place == "c10d" and self.whose == "leader" and self.kind in DEADLY:
            if self.phase == "forming":
                then()
            t.ends(75, "leader", seconds=READ_TIMEOUT + JOIN_TIMEOUT + 20, go=False)
            return
        t.pause(0.3)
        if then:
            then()
        t.pause(1.5 * (t.times["lease"] + t.times["margin"]))
        fault.restore()
        if self.kind in DEADLY:
            t.boot(t.host_of[fault.tag])
        group, _ = t.recovers(t.now(), t.bound(last_call=1, linger=LINGER_MS / 1000))
        if first:
            self.places_are_kept(first, group, fault)
        t.ends(0)

    def places_are_kept(self, first, group, fault):
        """The nodes without a fault keep their order."""
        hit = {f.tag for f in self.t.made if f.kind != "worker killed"}
        if self.kind in ("split", "loss"):
            return  # more than one node may have been lost

        def row(g):
            return [tag for tag in dict.fromkeys(g.ranks.values()) if tag not in hit]

        common = set(row(first)) & set(row(group))
        assert [x for x in row(first) if x in common] == [x for x in row(group) if x in common], self.t.story()


@pytest.mark.parametrize("place, phase, kind, whose, nodes", cases())
def test_a_fault_in_a_phase(job, place, phase, kind, whose, nodes):
    with trial(job, place, nodes) as t:
        Case(t, place, phase, kind, whose).run()


@pytest.mark.parametrize("kind", ["agent killed", pytest.param("power off", marks=pytest.mark.slow)])
def test_a_spare_takes_the_place_of_a_leader_that_is_lost(job, kind):
    """There are fewer nodes than min without it: the next leader does not know the spare, and waits for it."""
    with trial(job, "dir", 4) as t:
        t.start(*range(4), nnodes="3", program=t.trainer(), options=["--rdzv-conf=last_call_timeout=1"])
        first = t.group(nodes=3)
        assert t.noted.until(lambda: len(t.notes("node_joined")) >= 4, 30), t.story()
        spare, = set(t.agents) - set(first.ranks.values())
        if t.leading() == spare:
            pytest.skip("the spare leads")  # then no node takes its place
        fault = t.fault(kind, t.leading())
        again, _ = t.recovers(fault.at, t.bound())
        assert set(again.ranks.values()) == set(t.living()), t.story()
        t.ends(0)
