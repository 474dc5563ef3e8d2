"""A job on emulated hosts that lose each other: where it meets, what its workers recorded, which agent leads.

    with cluster(job, "dir", 3) as c:              # or "c10d", "etcd": three members on three more hosts
        c.start(0, 1, 2, nnodes="2:3")
        first = c.group(nodes=3)                   # the group's generation, its workers by rank
        at = c.now()
        c.hosts.power_off(c.leader())
        again = c.group(nodes=2, after=first)
        took = again.began - at
        c.finish()                                 # all that live succeed; nothing is left; no two groups overlapped

Every worker appends its start, a sign of life every 20 ms and its end to one file (E2E_RECORD), with the time of the
CLOCK_MONOTONIC that all emulated hosts share. With it apart() proves that no two generations lived at the same time.
Each host has a run directory of its own, as real hosts have; the file system is shared.
"""
import collections
import contextlib
import json
import os
import re
import signal
import time

import pytest

import harness
from hosts import hosts_or_skip

# Muster's defaults, for tests of times; and short times, for tests of the order of events.
DEFAULTS = {"lease": 5.0, "heartbeat": 1.0, "margin": 1.0, "arbiter_lease": 60.0}
SHORT = {"lease": 1.0, "heartbeat": 0.2, "margin": 1.0, "arbiter_lease": 6.0}
WORK = ("start", "work")

Group = collections.namedtuple("Group", "generation world ranks began counts")
Line = collections.namedtuple("Line", "what generation at rank node tag pid")


def order(generation):
    """"2.3" as a value that can be compared."""
    return tuple(int(x) for x in generation.split("."))


class Cluster:
    def __init__(self, job, hosts, place, nodes, times, etcd=None):
        self.job, self.hosts, self.place, self.nodes, self.times, self.etcd = job, hosts, place, nodes, times, etcd
        self.agents, self.host_of, self.frozen, self.faults = {}, {}, set(), []
        self.directory = job.tmp / "shared"

    def meeting(self):
        if self.place == "dir":
            return [f"--rdzv-endpoint=dir:{self.directory}"]
        if self.place == "etcd":
            return [f"--rdzv-endpoint=etcd://{','.join(self.etcd.endpoints)}/muster"]
        return ["--rdzv-backend=c10d", f"--rdzv-endpoint={self.hosts.address(0)}:29400"]

    def timing(self):
        if self.times is DEFAULTS:
            return []
        words = [f"--lease={self.times['lease']}", f"--heartbeat-interval={self.times['heartbeat']}"]
        return words + ([f"--arbiter-lease={self.times['arbiter_lease']}"] if self.place in ("dir", "etcd") else [])

    def start(self, *numbers, nnodes=None, nproc=1, options=(), program=None, words=WORK, tag="h", env=None,
              run_id="cluster", launcher=None, stdout=None):
        """Starts an agent on each of these hosts; its tag is `tag` plus the host's number."""
        program = program or ["--no-python", self.job.worker, *words]
        for n in numbers:
            name = f"{tag}{n}"
            extra = {"MUSTER_RUN_DIR": self.job.tmp / f"run-host{n}", **(env or {})}
            log = [f"--event-log={self.job.tmp}/log-{name}"] if launcher is None else []
            self.agents[name] = self.job.agent(
                name, f"--nnodes={nnodes or self.nodes}", f"--nproc-per-node={nproc}", *self.meeting(),
                f"--rdzv-id={run_id}", *(self.timing() if launcher is None else []), *log, *options, *program,
                prefix=self.hosts.enter(n), env=extra, program=launcher, stdout=stdout)
            self.host_of[name] = n
        return [self.agents[f"{tag}{n}"] for n in numbers]

    @staticmethod
    def now():
        return time.monotonic()

    # ---- groups ----

    def groups(self):
        """Every generation of which all workers have started, in order."""
        return self._groups(self.job.events.all("start"))

    @staticmethod
    def _groups(events):
        found = collections.defaultdict(dict)
        for event in events:
            found[event.fields["gen"]][int(event.fields["rank"])] = event
        whole = []
        for generation in sorted(found, key=order):
            ranks = found[generation]
            world = int(next(iter(ranks.values())).fields["world"])
            if sorted(ranks) == list(range(world)):
                began = max(int(e.fields["ns"]) for e in ranks.values()) / 1e9
                whole.append(Group(generation, world, {r: e.fields["tag"] for r, e in sorted(ranks.items())}, began,
                                   {e.fields["count"] for e in ranks.values()}))
        return whole

    def group(self, nodes=None, world=None, after=None, seconds=40):
        """Waits for a complete group of this many nodes, later than `after`."""
        def found():
            for g in self._groups(self.job.events._all("start", {})):
                if (after is None or order(g.generation) > order(after.generation)) and \
                        nodes in (None, len(set(g.ranks.values()))) and world in (None, g.world):
                    return g
            return None

        end = harness.deadline(seconds)
        group = None
        while group is None and time.monotonic() < end:
            group = self.job.events.until(found, 1)
            if all(agent.process.poll() is not None for agent in self.agents.values()):
                break
        assert group, (f"no group of {nodes or 'any'} nodes after {after and after.generation} in {seconds} s; "
                       f"there were {self.groups()}\n{self.said()}")
        return group

    def no_group(self, after, seconds):
        """Fails if any later group starts meanwhile."""
        def later():
            return [e for e in self.job.events._all("start", {}) if order(e.fields["gen"]) > order(after.generation)]

        found = self.job.events.until(later, seconds)
        assert not found, f"{found}\n{self.said()}"

    # ---- the leader ----

    def notes(self, kind=None, name=None):
        """The lines of the leaders' event logs, ordered by the shared clock."""
        found = []
        for tag in [name] if name else self.agents:
            with contextlib.suppress(FileNotFoundError):
                for line in (self.job.tmp / f"log-{tag}").read_text().splitlines():
                    note = json.loads(line) | {"tag": tag}
                    if kind in (None, note["event"]):
                        found.append(note)
        return sorted(found, key=lambda note: int(note["monotonic_ns"]))

    def leader_tag(self):
        return self.notes("leads")[-1]["tag"]

    def leader(self):
        """The number of the host whose agent leads."""
        return self.host_of[self.leader_tag()]

    def followers(self):
        return [tag for tag in self.agents if tag != self.leader_tag()]

    def successors(self):
        """The other nodes in the order of succession, which is their order in the first group, after its leader."""
        first = self.groups()[0]
        by_rank = list(dict.fromkeys(first.ranks.values()))
        return [tag for tag in by_rank if tag != self.leader_tag()]

    def agent_child(self, tag):
        """The agent itself, below its guardian."""
        return self.agents[tag].agent_pid()

    def arbiter_child(self, tag):
        """The process that accesses the shared directory for this agent."""
        for pid in harness.children(self.agent_child(tag)):
            with contextlib.suppress(OSError):
                if open(f"/proc/{pid}/comm").read().strip() == "muster-arbiter":
                    return pid
        raise AssertionError(f"{tag} has no arbiter's child; {self.said()}")

    def come(self, agents, seconds=30):
        """Waits until this many agents have joined since the beginning."""
        end = harness.deadline(seconds)
        while len(self.notes("node_joined")) < agents:
            assert self.now() < end, f"{len(self.notes('node_joined'))} of {agents} came\n{self.said()}"
            self.pause(0.05)

    # ---- faults ----

    def lose(self, tag, how):
        """Makes a fault of the host or the agent of this tag. Returns the time just before it."""
        n = self.host_of[tag]
        at = self.now()
        if how == "killed":
            harness.kill(self.agent_child(tag))
        elif how == "guardian killed":
            harness.kill(self.agents[tag].pid)
        elif how == "powered off":
            self.hosts.power_off(n)
        elif how == "frozen":
            self.frozen.add(tag)
            self.hosts.freeze(n)
        elif how == "cut off":
            if self.place == "dir":  # the shared file system is unreachable: the process that reads it hangs
                harness.kill(self.arbiter_child(tag), signal.SIGSTOP)
            self.hosts.cut(n)
        elif how == "cut from the nodes":
            self.hosts.cut(n) if self.place == "dir" else self.hosts.cut_from_near(n)
        else:
            raise ValueError(how)
        self.faults.append((at, self.now(), f"{tag} {how}"))
        return at

    def come_back(self, tag, how, joins, seconds=60):
        """Ends a fault of a host that is still alive. Nodes that the fault separated from the leader join the current
        leader."""
        before = len(self.notes("node_joined"))
        if how == "frozen":
            self.hosts.thaw(self.host_of[tag])
        else:
            if self.place == "dir":
                harness.kill(self.arbiter_child(tag), signal.SIGCONT)
            self.hosts.heal(self.host_of[tag])
        end = harness.deadline(seconds)
        while len(self.notes("node_joined")) < before + len(joins):
            assert self.now() < end, f"{joins} did not come back in {seconds} s\n{self.said()}"
            self.pause(0.05)

    # ---- the workers' record ----

    def record(self):
        lines = []
        with contextlib.suppress(FileNotFoundError):
            for text in (self.job.tmp / "record").read_text().splitlines():
                what, *words = text.split()
                f = dict(word.split("=", 1) for word in words)
                lines.append(Line(what, f["gen"], int(f["ns"]) / 1e9, int(f["rank"]), f["node"], f["tag"],
                                  int(f["pid"])))
        return lines

    def apart(self):
        """No sign of life of a generation is later than the first of a later generation, except on frozen hosts."""
        first, last = {}, {}
        for line in self.record():
            g = order(line.generation)
            first[g] = min(first.get(g, line.at), line.at)
            if line.tag not in self.frozen and (g not in last or line.at > last[g].at):
                last[g] = line
        generations = sorted(first)
        for earlier, later in zip(generations, generations[1:]):
            assert earlier not in last or last[earlier].at < first[later], f"{last[earlier]} is younger than the start of {later}"
        for event in self.job.events.all("start"):
            held = [x for x in event.fields["overlap"].split(",") if x and x.split(".")[-1] not in self.frozen]
            assert not held, f"alive together: {held} as {event} started"
        return generations

    def pids(self, group):
        return {e.fields["rank"]: e.fields["pid"] for e in self.job.events.all("start", gen=group.generation)}

    def still_works(self, group, seconds=10):
        """Every rank of this group gives a sign of life after this call."""
        at = self.now()
        end = harness.deadline(seconds)
        while True:
            seen = {line.rank for line in self.record() if line.generation == group.generation and line.at > at}
            if seen == set(range(group.world)):
                return
            assert self.now() < end, f"only {sorted(seen)} of {group} live\n{self.said()}"
            self.pause(0.05)

    def pause(self, seconds):
        """Waits while a fault lasts, because no event marks its end. Ends early if a new worker starts."""
        before = len(self.job.events.lines)
        self.job.events.until(lambda: len(self.job.events.lines) > before, seconds / harness.SLOWER)

    def last_sign(self, tag):
        """The time when a worker of this agent was last seen alive."""
        return max(line.at for line in self.record() if line.tag == tag)

    # ---- the end ----

    def said(self):
        """For a failure's message: all agents' output, the leaders' event logs, and the first and last sign of each
        agent's workers."""
        notes = [f"{int(n['monotonic_ns']) / 1e9:.3f} {n['tag']} {n['event']} {n.get('node', '')} {n.get('cause', '')}"
                 for n in self.notes()]
        lives = collections.defaultdict(list)
        for line in self.record():
            lives[line.generation, line.rank, line.tag].append(line.at)
        notes += [f"{first:.3f} … {last:.3f} generation {key[0]} rank {key[1]} on {key[2]}"
                  for key, ats in lives.items() for first, last in [(min(ats), max(ats))]]
        if self.faults:
            notes += [f"{at:.3f} … {done:.3f} {what}" for at, done, what in self.faults]
        return "\n".join(sorted(notes)) + "\n" + "\n".join(f"---- {tag} ({agent.process.poll()}):\n{agent.said()}"
                         for tag, agent in self.agents.items())

    def finish(self, lost=(), seconds=60):
        """Lets the workers end. All agents except lost ones report success, and nothing is left."""
        self.job.go()
        for tag, agent in self.agents.items():
            if tag not in lost:
                code, _, err = agent.finish(seconds)
                assert code == 0, f"{tag}: {code}\n{err}\n{self.said()}"
                assert self.job.held(tag) == [], self.job.culprits()
        for tag in lost:
            if self.agents[tag].wait(0.5) is not None:
                assert self.job.held(tag) == [], self.job.culprits()
        if all(agent.process.poll() is not None for agent in self.agents.values()):
            assert harness.processes_with(self.job.mark.encode()) == [], self.job.culprits()
        self.apart()

    def all_end(self, code, said, seconds=60, but=()):
        """Every agent ends with this status and prints a reason that matches."""
        for tag, agent in self.agents.items():
            if tag not in but:
                got, _, err = agent.finish(seconds)
                assert got == code, f"{tag}: {got}\n{self.said()}"
                assert re.search(said, err), f"{tag}: no {said!r} in\n{err}"
                assert self.job.held(tag) == [], self.job.culprits()
        self.apart()


@contextlib.contextmanager
def cluster(job, place, nodes, times=SHORT, etcd_members=3, **more):
    with contextlib.ExitStack() as stack:
        hosts = stack.enter_context(hosts_or_skip(nodes, far=etcd_members if place == "etcd" else 0, **more))
        etcd = None
        if place == "etcd":
            import etcd as real
            etcd = stack.enter_context(real.EtcdCluster(
                etcd_members, where=[(hosts.address(nodes + i), hosts.enter(nodes + i)) for i in range(etcd_members)]))
        c = Cluster(job, hosts, place, nodes, times, etcd)
        if place == "dir":
            c.directory.mkdir()
        try:
            yield c
        finally:
            for tag in c.frozen:
                hosts.thaw(c.host_of[tag])


def mostly(values):
    """Smallest, median and largest, for people."""
    values = sorted(values)
    return f"{values[0]:.3f} / {values[len(values) // 2]:.3f} / {values[-1]:.3f} s"


def kills(default=1):
    """How often a random test is run: MUSTER_KILLS_CLUSTER (200 in the slow suite)."""
    return int(os.environ.get("MUSTER_KILLS_CLUSTER", "200" if os.environ.get("MUSTER_TEST_SCALE") == "slow" else default))


__all__ = ["Cluster", "DEFAULTS", "SHORT", "WORK", "cluster", "kills", "mostly", "order", "pytest"]
