"""A job under faults of every kind, in a phase of the group that the test chooses; and checks of what must hold
afterwards.

    with trial(job, "dir", 4) as t:
        t.start(0, 1, 2, 3, nnodes="2:4", program=t.trainer())
        t.whole()                                  # a group runs
        fault = t.fault("freeze", "h2")            # made now; fault.restore() undoes it
        fault.restore()
        t.recovers(since=fault.at)
        t.ends()                                   # with success, on all that live

It reacts to the lines of --event-log, which all agents of the job write to one FIFO. Kinds of fault: see KINDS.
"""
import collections
import contextlib
import json
import os
import random
import re
import select
import signal
import time

import harness
from cluster import SHORT, Cluster, order
from hosts import hosts_or_skip
from links import Links

# What a fault leaves: a dead agent, a host that comes back, or only a dead worker.
DEADLY = ("crash", "power off", "node killed", "agent killed", "guardian killed")
PASSING = ("cut", "cut off", "freeze", "mute", "deaf", "split", "loss", "slow", "arbiter hangs")
KINDS = DEADLY + PASSING + ("worker killed",)
NEEDS = {"mute": "one_way", "deaf": "one_way", "split": "part", "loss": "lossy", "slow": "slow"}
PHASES = ("gathering", "forming", "running", "stopping", "succession")
CHECKPOINT_EVERY = 5


Step = collections.namedtuple("Step", "what generation at rank tag pid step")


class Notes(harness.Heard):
    """The event logs of all agents of a job, as they are written."""

    def __init__(self, path):
        os.mkfifo(path)
        self._own = os.open(path, os.O_RDWR)
        super().__init__(os.open(path, os.O_RDONLY))

    def all(self, *kinds):
        with self.changed:
            lines = list(self.lines)
        return [note for note in map(json.loads, lines) if not kinds or note["event"] in kinds]

    def wait(self, matches, seconds, after=0):
        """The first note that matches, without the first `after` notes; None if it does not come."""
        def found():
            for line in self.lines[after:]:
                note = json.loads(line)
                if matches(note):
                    return note
            return None

        return self.until(found, seconds)

    def stop(self):
        os.write(self._own, b"\0stop\n")
        self.join()
        os.close(self._own)


class Fault:
    """A fault that was made: its kind, its target, in which phase, when, and how to undo it."""

    def __init__(self, kind, tag, phase, at, undo=None):
        self.kind, self.tag, self.phase, self.at, self._undo = kind, tag, phase, at, undo
        self.restored = None if undo else at

    def restore(self):
        if self.restored is None:
            self._undo()
            self.restored = time.monotonic()

    def __str__(self):
        return f"{self.kind} of {self.tag} while {self.phase}"


class Trial(Cluster):
    def __init__(self, job, hosts, place, nodes, times, etcd=None, port=29400, links=None, run_id="trial"):
        super().__init__(job, hosts, place, nodes, times, etcd)
        self.links, self.port, self.run_id = links or Links(hosts), port, run_id
        self.noted = Notes(job.tmp / "notes")
        self.dead, self.killed_workers, self.stopped_at, self.lives = set(), 0, [], 0
        self.half_dead = []  # the times during which workers of a node were killed, but its agent was not killed yet
        self.silenced = set()  # hosts whose link is cut
        self.limits = None  # smallest and largest number of nodes, and the unit
        self.made, self._start, self.born = [], {}, {}
        self._lines, self._read = [], 0

    def meeting(self):
        if self.place == "c10d":
            return ["--rdzv-backend=c10d", f"--rdzv-endpoint={self.hosts.address(0)}:{self.port}"]
        return super().meeting()

    def start(self, *numbers, **more):
        """Like Cluster's, but all event logs go to one FIFO. The arguments are kept for start_again()."""
        tag = more.get("tag", "h")
        for n in numbers:
            path = self.job.tmp / f"log-{tag}{n}"
            if not os.path.lexists(path):
                path.symlink_to(self.job.tmp / "notes")
            self.born[f"{tag}{n}"] = self.now()
        self._start = more
        return super().start(*numbers, **{"run_id": self.run_id, **more})

    def start_again(self, n):
        """Starts a new agent on host n, whose last one is dead."""
        self.lives += 1
        self.start(n, **{**self._start, "tag": f"n{self.lives}h"})
        return f"n{self.lives}h{n}"

    def trainer(self, linger_ms=0):
        linger = [f"linger={linger_ms}"] if linger_ms else []
        return ["--no-python", self.job.worker, *linger, "start", "train"]

    def notes(self, kind=None, name=None):
        found = self.noted.all(*[kind] if kind else [])
        for note in found:
            note["tag"] = self.tag_on(int(note["host"].removeprefix("host")) - 1, note)
        return found

    def tag_on(self, n, note=None):
        """The agent that was alive on host n when this was noted, else the newest."""
        tags = [tag for tag, host in self.host_of.items() if host == n]
        if note:
            tags = [t for t in tags if self.born[t] <= int(note["monotonic_ns"]) / 1e9] or tags
        return tags[-1]

    def living(self):
        return [tag for tag in self.agents if tag not in self.dead and self.agents[tag].process.poll() is None]

    def leading(self):
        """The leader, as far as known; None before the first one and after its death."""
        leads = self.notes("leads")
        newest = max(leads, key=lambda note: note["epoch"])["tag"] if leads else None
        return newest if newest not in self.dead else None

    def phase(self):
        """The phase, from the newest line of a leader, or that the leader is gone."""
        last = [n for n in self.noted.all() if n["event"] in ("leads", "formed", "started", "stopping", "stopped")]
        if last and self.leading() is None:
            return "succession"
        kind = last[-1]["event"] if last else "leads"
        return {"leads": "gathering", "stopped": "forming", "stopping": "stopping"}.get(kind, "running")

    # ---- faults ----

    def fault(self, kind, tag, phase=None, against=None, share=40, way="both"):
        """Makes a fault now. `against`: with "split", the nodes on the side of this node."""
        n = self.host_of[tag]
        others = [i for i in range(self.nodes) if i != n]
        phase, at, undo = phase or self.phase(), self.now(), None
        if kind in DEADLY:
            self._kill(kind, tag, n)
            self.dead.add(tag)
        elif kind == "worker killed":
            self._kill_worker(tag)
        elif kind in ("cut", "cut off"):
            undo = self._cut(tag, n, kind == "cut off")
        elif kind == "arbiter hangs":
            undo = self._hang_arbiter(tag)
        elif kind == "freeze":
            self.hosts.freeze(n)
            undo = self._thaw(tag, n)
        else:
            self._link(kind, n, others, against, share, way)
            undo = self.links.clear
        self.made.append(Fault(kind, tag, phase, at, undo))
        return self.made[-1]

    def _kill(self, kind, tag, n):
        if kind == "agent killed":
            for pid in harness.children(self.agents[tag].pid):
                harness.kill(pid)
        elif kind == "guardian killed":
            harness.kill(self.agents[tag].pid)
        elif kind == "node killed":
            self._kill_piecemeal(tag)
        else:
            if kind == "power off":
                self.hosts.cut(n)
                self.silenced.add(n)
            self._all_die(n)

    def _kill_piecemeal(self, tag):
        """Kills workers, agent and guardian in any order and within 50 ms, as when a machine goes down. Often the
        workers die first: that must not count as their failure."""
        dice = random.Random(f"{self.run_id} {tag}")
        guardian = self.agents[tag].pid
        agents = harness.children(guardian)
        workers = [pid for agent in agents for pid in harness.children(agent)]
        pids = workers + agents + [guardian]
        if dice.random() < 0.5:
            dice.shuffle(pids)
        ends = sorted(dice.random() for _ in pids) if dice.random() < 0.8 else [0.0] * len(pids)
        began, within = self.now(), dice.choice([0.001, 0.01, 0.05])
        first = time.monotonic()
        for pid, share in zip(pids, ends):
            # the actual time, however slow the other steps are
            self.pause(max(0.0, began + share * within - self.now()) * harness.SLOWER)
            harness.kill(pid)
            if pid in agents:
                self.half_dead.append((first, time.monotonic()))

    def _all_die(self, n):
        """All die at the same time, as far as others can see: processes that could report it die last, and nothing runs
        in between."""
        self.hosts.freeze(n)
        for pid in reversed(self.hosts.processes(n)):
            with contextlib.suppress(ProcessLookupError):
                fd = os.pidfd_open(pid)
                harness.kill(pid)
                select.select([fd], [], [], 5)
                os.close(fd)

    def _kill_worker(self, tag):
        pids = [int(e.fields["pid"]) for e in self.job.events.all("start", tag=tag)]
        living = [pid for pid in pids if harness.alive(pid)]
        if living:
            self.killed_workers += 1
            harness.kill(living[-1])

    def _cut(self, tag, n, arbiter_too):
        # the shared file system is unreachable: processes that read it hang
        readers = self._readers(tag) if arbiter_too else []
        for pid in readers:
            harness.kill(pid, signal.SIGSTOP)
        if arbiter_too or self.place != "etcd":
            self.hosts.cut(n)
        else:
            self.hosts.cut_from_near(n)
        self.silenced.add(n)

        def heal():
            self.hosts.heal(n)
            self.silenced.discard(n)
            for pid in readers:
                harness.kill(pid, signal.SIGCONT)

        return heal

    def _hang_arbiter(self, tag):
        """The directory does not answer this node, or etcd answers no node."""
        if self.place == "etcd":
            self.etcd.freeze(0)
            return lambda: self.etcd.thaw(0)
        readers = self._readers(tag)
        for pid in readers:
            harness.kill(pid, signal.SIGSTOP)
        return lambda: [harness.kill(pid, signal.SIGCONT) for pid in readers]

    def _readers(self, tag):
        """The process that reads the directory for this agent; none if the agent has only just started."""
        with contextlib.suppress(AssertionError):
            return [self.arbiter_child(tag)] if self.place == "dir" else []
        return []

    def _thaw(self, tag, n):
        self.frozen.add(tag)
        since = self.now()

        def thaw():
            self.stopped_at.append((tag, since, self.now()))
            self.frozen.discard(tag)
            self.hosts.thaw(n)

        return thaw

    def _link(self, kind, n, others, against, share, way):
        if kind == "mute":
            self.links.one_way([n], others)
        elif kind == "deaf":
            self.links.one_way(others, [n])
        elif kind == "split":
            side = set(against or ()) | {n}
            self.links.part(sorted(side), [i for i in range(self.nodes) if i not in side])
        elif kind == "loss":
            self.links.lossy(n, share, way)
        else:
            assert kind == "slow", kind
            self.links.slow(n)

    def boot(self, n):
        """Host n is up again, and starts muster as before."""
        if n in self.silenced:
            self.hosts.heal(n)
            self.silenced.discard(n)
        return self.start_again(n)

    def hold(self, tag):
        """Stops this agent, as on a machine that lacks memory; its kernel answers. Returns a function that undoes
        it."""
        pids = harness.children(self.agents[tag].pid)
        for pid in pids:
            harness.kill(pid, signal.SIGSTOP)
        return lambda: [harness.kill(pid, signal.SIGCONT) for pid in pids]

    # ---- what must hold ----

    def settle(self):
        """Waits until every silence has been noticed."""
        return (self.times["lease"] + self.times["margin"] + 2 * self.times["heartbeat"]) * harness.SLOWER

    def bound(self, last_call=0.0, linger=0.0):
        """The seconds within which a group must run again, whichever nodes were lost: the longest wait in the rules
        (leader and successors lost at once: the agent that claims then waits for the arbiter's lease), plus the delay
        of a busy machine."""
        t = self.times
        quiet = t["lease"] + t["margin"]
        claim = 3 * quiet + t["arbiter_lease"] + t["margin"] if self.place in ("dir", "etcd") else 2 * quiet
        return claim + 9 + last_call + linger + 12

    def newest(self):
        groups = self.groups()
        return groups[-1] if groups else None

    def recovers(self, since, within):
        """Waits until a complete group works at a time when no fault can end it any more. Returns the group and the
        time at which its last worker started."""
        ready, end = since + self.settle(), harness.deadline(within + self.settle())
        while True:
            self.nobody_ended_early()
            group = self.newest()
            if group and self.works(group, after=ready):
                return group, group.began
            assert self.now() < end, (f"no group runs {within:.0f} s after the last fault; the newest is {group}\n"
                                      f"{self.story()}")
            self.pause(0.25)

    def works(self, group, after):
        """Whether every rank of the group gave a sign of life after that time."""
        seen = set()
        for line in reversed(self.lived()):
            if line.at <= after - 1:  # lines are almost sorted
                break
            if line.generation == group.generation and line.at > after:
                seen.add(line.rank)
        return seen == set(range(group.world))

    def nobody_ended_early(self):
        for tag, agent in self.agents.items():
            code = agent.process.poll()
            assert tag in self.dead or code is None, f"{tag} ended with {code} before the job did\n{self.story()}"

    def lived(self):
        """All lines of the record so far; each line is read once."""
        with contextlib.suppress(FileNotFoundError), open(self.job.tmp / "record", "rb") as file:
            file.seek(self._read)
            whole = file.read().rpartition(b"\n")[0]
            self._read += len(whole) + 1 if whole else 0
            for text in whole.decode().splitlines():
                what, *words = text.split()
                f = dict(word.split("=", 1) for word in words)
                self._lines.append(Step(what, f["gen"], int(f["ns"]) / 1e9, int(f["rank"]), f["tag"], int(f["pid"]),
                                        int(f["step"])))
        return self._lines

    def record(self):
        """The record without lines of a stopped host about what it ran before."""
        lines = self.lived()
        stopped = self.stopped_at + [(tag, 0, self.now()) for tag in self.frozen]
        if not stopped:
            return lines
        born = {}
        for line in lines:
            born.setdefault((line.tag, line.pid), line.at)
        return [line for line in lines
                if not any(line.tag == tag and born[(tag, line.pid)] < until and line.at > since
                           for tag, since, until in stopped)]

    def apart(self):
        """No sign of life of a generation is later than the first of a later generation."""
        first, last = {}, {}
        for line in self.record():
            g = order(line.generation)
            first[g] = min(first.get(g, line.at), line.at)
            if g not in last or line.at >= last[g].at:
                last[g] = line
        newest = None
        for g in sorted(first):
            assert newest is None or newest.at < first[g], f"{newest} lives beside {g}\n{self.story()}"
            newest = last[g] if newest is None or last[g].at > newest.at else newest
        once = {tag for tag, _, _ in self.stopped_at} | self.frozen
        for event in self.job.events.all("start"):
            held = [x for x in event.fields["overlap"].split(",") if x and x.split(".")[-1] not in once]
            assert not held, f"alive together: {held} as {event} started\n{self.story()}"
        return sorted(first)

    def ranks(self):
        """In each generation every rank exists once, all report the same size, and the limits are kept."""
        seen = {}
        for event in self.job.events.all("start"):
            f = event.fields
            group = seen.setdefault(f["gen"], {"world": f["world"], "ranks": {}, "nodes": {}})
            assert group["world"] == f["world"], f"two sizes of {f['gen']}\n{self.story()}"
            assert f["rank"] not in group["ranks"], f"rank {f['rank']} of {f['gen']} twice\n{self.story()}"
            assert int(f["rank"]) < int(f["world"]), event
            group["ranks"][f["rank"]] = f["tag"]
            assert group["nodes"].setdefault(f["node"], f["tag"]) == f["tag"], f"node {f['node']} twice, {f['gen']}"
        if self.limits:
            low, high, unit = self.limits
            for g in self.groups():
                count = len(set(g.ranks.values()))
                assert low <= count <= high and count % unit == 0, f"{g}: {self.limits}\n{self.story()}"
        used = max([int(e.fields["count"]) for e in self.job.events.all("start")] or [0])
        # A node that can still report that all its workers have stopped has had a failure: if restarts are left, the
        # leader does not wait to see whether the node dies, too.
        stops = [int(note["monotonic_ns"]) / 1e9 for note in self.noted.all("stopping")]
        heard = sum(any(first <= at <= last for at in stops) for first, last in self.half_dead)
        dead = f"{self.killed_workers} dead workers and {heard} nodes that died slowly"
        assert used <= self.killed_workers + heard, f"{used} restarts for {dead}\n{self.story()}"

    def leaders(self):
        """There is one leader for each epoch."""
        by_epoch = {}
        for note in self.noted.all("leads"):
            who = by_epoch.setdefault(note["epoch"], note["host"])
            assert who == note["host"], f"epoch {note['epoch']} is {who}'s and {note['host']}'s\n{self.story()}"

    def training(self):
        """Rank 0 begins each generation with the last checkpoint that earlier generations saved."""
        saved, newest = 0, None
        for line in self.lived():
            if line.what == "start" and line.rank == 0:
                assert newest is None or order(line.generation) > order(newest), f"{line} after {newest}"
                assert saved <= line.step <= saved + CHECKPOINT_EVERY, f"{line}, but {saved} was saved\n{self.story()}"
                newest = line.generation
            elif line.what == "saved":
                saved = line.step
        return saved

    def sound(self):
        """Everything that must hold for a job at any time."""
        self.apart()
        self.ranks()
        self.leaders()
        return self.training()

    # ---- the end ----

    def ends(self, code=0, said=None, seconds=60, go=True):
        """All living agents end with this status and this reason; no process is left. With a fixed leader, a node that
        was not in the last group may have been away when that ended, and then finds no leader."""
        if go:
            self.job.go()
        for tag in list(self.agents):
            if tag in self.dead:
                continue
            got = self.agents[tag].wait(seconds)
            if got == 75 and code == 0 and self.place == "c10d" and tag not in self.newest().ranks.values() and \
                    "leader" in self.agents[tag].said():
                continue
            assert got == code, f"{tag} ended with {got}, not {code}\n{self.story()}"
            self.agents[tag].finish(10)
            assert said is None or re.search(said, self.agents[tag].said()), f"{tag}: no {said!r}\n{self.story()}"
            assert self.job.held(tag) == [], f"{tag} left {self.job.culprits()}\n{self.story()}"
        self.nothing_left()
        self.sound()

    def nothing_left(self, seconds=10):
        end = harness.deadline(seconds)
        for tag in self.agents:
            self.job.wait_gone(tag, max(1, end - self.now()))
        while (left := harness.processes_with(self.job.mark.encode())) and self.now() < end:
            with contextlib.suppress(OSError):
                fd = os.pidfd_open(left[0])
                try:
                    select.select([fd], [], [], max(0.0, end - self.now()))
                finally:
                    os.close(fd)
        assert not left, f"left over: {self.job.culprits()}\n{self.story()}"

    def story(self):
        """Everything that is known, for people: the faults, the notes and all output, by the shared clock."""
        lines = [(f.at, f"FAULT {f}") for f in self.made]
        lines += [(f.restored, f"UNDONE {f}") for f in self.made if f.restored and f.restored != f.at]
        for note in self.noted.all():
            rest = {k: v for k, v in note.items() if k not in ("time", "monotonic_ns", "event", "run_id", "host")}
            lines.append((int(note["monotonic_ns"]) / 1e9, f"{note['host']}: {note['event']} {rest}"))
        for tag, agent in self.agents.items():
            lines.append((self.born[tag], f"{tag}: agent starts"))
            lines += [(at, f"{tag}: {text}") for text, at in zip(agent.err.lines, agent.err.times)]
        for event in self.job.events.all():
            lines.append((event.time, f"worker: {event.kind} {event.fields}"))
        ended = {tag: agent.process.poll() for tag, agent in self.agents.items()}
        lines.sort()
        begin = lines[0][0] if lines else 0
        return "\n".join([f"{at - begin:9.3f} {text}" for at, text in lines] + [f"agents: {ended}, dead: {self.dead}"])

    def close(self):
        """Undoes the remaining faults."""
        for fault in self.made:
            fault.restore()
        for n in list(self.silenced):
            self.hosts.heal(n)
        self.silenced.clear()
        self.links.clear()

    def stop(self):
        self.noted.stop()


@contextlib.contextmanager
def trial(job, place, nodes, times=SHORT, hosts=None, etcd=None, etcd_members=1, port=29400, links=None):
    """Runs on these hosts, or on hosts of its own."""
    with contextlib.ExitStack() as stack:
        if hosts is None:
            hosts = stack.enter_context(hosts_or_skip(nodes, ipv6=False, far=etcd_members if place == "etcd" else 0))
            if place == "etcd":
                import etcd as real
                etcd = stack.enter_context(real.EtcdCluster(etcd_members, where=[
                    (hosts.address(nodes + i), hosts.enter(nodes + i)) for i in range(etcd_members)]))
        t = Trial(job, hosts, place, nodes, times, etcd, port, links)
        if place == "dir":
            t.directory.mkdir()
        try:
            yield t
        finally:
            t.close()
            t.stop()


__all__ = ["DEADLY", "KINDS", "NEEDS", "PASSING", "PHASES", "Trial", "trial"]
